//! Fair queues in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smol_str::SmolStr;

use crate::lock::{Dialect, LockSpec};
use crate::node::{FirstTicket, Notify, ProcessId, QueueAction, QueueOp, QueueReply, Subscription};

/// The fair queues of a store in memory, and their subscribers. Clones share them.
#[derive(Clone, Default)]
pub(super) struct MemoryQueues(Arc<Mutex<FairQueueTable>>);

/// The name of a lock and its dialect.
type QueueName = (SmolStr, Dialect);

#[derive(Default)]
struct FairQueueTable {
    by_name: HashMap<QueueName, TicketQueue>,
    /// The subscribers of each process, each with its number.
    subscribers: HashMap<(QueueName, ProcessId), Vec<(u64, Notify)>>,
    next_subscriber: u64,
}

impl MemoryQueues {
    /// Executes an operation, and notifies the processes that it concerns.
    pub(super) fn execute(&self, op: &QueueOp, now: Duration) -> QueueReply {
        let mut table = self.0.lock();
        let (reply, processes) = table.execute(op, now);
        let name = queue_name(&op.spec);
        let subscribers = processes
            .into_iter()
            .filter_map(|process| table.subscribers.get(&(name.clone(), process)))
            .flatten();
        let notified: Vec<Notify> = subscribers.map(|(_, notify)| Arc::clone(notify)).collect();
        drop(table);
        for notify in notified {
            notify();
        }
        reply
    }

    pub(super) fn subscribe(
        &self,
        spec: &LockSpec,
        process: ProcessId,
        notify: Notify,
    ) -> Subscription {
        let channel = (queue_name(spec), process);
        let mut table = self.0.lock();
        let id = table.next_subscriber;
        table.next_subscriber += 1;
        table.subscribers.entry(channel.clone()).or_default().push((id, notify));
        drop(table);
        let queues = self.clone();
        Subscription::new(move || {
            let subscribers = &mut queues.0.lock().subscribers;
            if let Some(of_process) = subscribers.get_mut(&channel) {
                of_process.retain(|(other, _)| *other != id);
                if of_process.is_empty() {
                    subscribers.remove(&channel);
                }
            }
        })
    }

    /// Removes all queues.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn clear(&self) {
        self.0.lock().by_name.clear();
    }

    /// Returns whether no caller waits in any queue.
    #[cfg(test)]
    pub(super) fn is_empty(&self, now: Duration) -> bool {
        let table = self.0.lock();
        !table.by_name.values().any(|queue| queue.present_until.values().any(|until| *until > now))
    }
}

fn queue_name(spec: &LockSpec) -> QueueName {
    (spec.key().stored_name().clone(), spec.dialect())
}

/// The fair queue of one lock.
#[derive(Debug, Default)]
struct TicketQueue {
    /// Arrival, process and number of each ticket. The arrival is in nanoseconds, and may be before the start of the
    /// clock.
    tickets: BTreeSet<(i128, ProcessId, u64)>,
    /// The end of the presence of each process.
    present_until: BTreeMap<ProcessId, Duration>,
}

impl FairQueueTable {
    /// Executes an operation. Also returns the processes that have to be notified: the process that has the first ticket
    /// now, and the process that had it before.
    pub(super) fn execute(&mut self, op: &QueueOp, now: Duration) -> (QueueReply, Vec<ProcessId>) {
        // The queue of a lock that no process uses any more must not stay.
        self.by_name.retain(|_, queue| queue.present_until.values().any(|until| *until > now));
        let name = queue_name(&op.spec);
        let queue = self.by_name.entry(name.clone()).or_default();
        let before = queue.first();
        let was_present = queue.execute(op, now);
        let first = queue.first();
        let reply = QueueReply::new(now, was_present);
        let Some((process, number)) = first else {
            self.by_name.remove(&name);
            return (reply, Vec::new());
        };
        let present_for = queue
            .present_until
            .get(&process)
            .map_or(Duration::ZERO, |until| until.saturating_sub(now));
        let mut notified = vec![process];
        notified.extend(before.map(|(process, _)| process).filter(|before| *before != process));
        notified.retain(|process| *process != op.process && first != before);
        (reply.with_first(FirstTicket { process, number, present_for }), notified)
    }
}

impl TicketQueue {
    fn first(&self) -> Option<(ProcessId, u64)> {
        self.tickets.first().map(|(_, process, number)| (*process, *number))
    }

    /// Executes an operation. Returns whether its process was present before.
    fn execute(&mut self, op: &QueueOp, now: Duration) -> bool {
        let Self { tickets, present_until } = self;
        present_until.retain(|_, until| *until > now);
        tickets.retain(|(_, process, _)| present_until.contains_key(process));
        let process = op.process;
        let was_present = present_until.contains_key(&process);
        match &op.action {
            QueueAction::Enter { tickets: entered } => {
                present_until.insert(process, now + op.presence);
                for ticket in &**entered {
                    let is_there = |(_, other, number): &(i128, ProcessId, u64)| {
                        *other == process && *number == ticket.number
                    };
                    if !tickets.iter().any(is_there) {
                        let arrival = nanos(now) - nanos(ticket.waited);
                        tickets.insert((arrival, process, ticket.number));
                    }
                }
            }
            QueueAction::Refresh if was_present => {
                present_until.insert(process, now + op.presence);
            }
            QueueAction::Leave { numbers } => {
                tickets.retain(|(_, other, number)| *other != process || !numbers.contains(number));
            }
            QueueAction::Refresh | QueueAction::Inspect => {}
        }
        was_present
    }
}

fn nanos(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}
