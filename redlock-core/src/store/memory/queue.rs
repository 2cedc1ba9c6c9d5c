//! Fair queues in memory.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use smol_str::SmolStr;

use crate::clock::{Moment, nanos};
use crate::lock::Dialect;
use crate::node::{FirstTicket, ProcessId, QueueAction, QueueOp, QueueReply};

/// The fair queues of a store in memory, by the name of the lock and its dialect.
#[derive(Default)]
pub(super) struct MemoryQueues(HashMap<(SmolStr, Dialect), TicketQueue>);

/// The fair queue of one lock.
#[derive(Default)]
struct TicketQueue {
    /// The tickets in their order.
    tickets: BTreeSet<StoredTicket>,
    /// The end of the presence of each process.
    present_until: HashMap<ProcessId, Moment>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StoredTicket {
    /// In nanoseconds on the clock of the node. It may be before the start of the clock.
    arrival: i128,
    process: ProcessId,
    number: u64,
}

impl MemoryQueues {
    /// Executes an operation. Also returns the processes that have to be notified: the process that has the first ticket
    /// now, and the process that had it before.
    pub(super) fn execute(&mut self, op: &QueueOp, now: Moment) -> (QueueReply, Vec<ProcessId>) {
        // The queue of a lock that no process uses any more must not stay.
        self.0.retain(|_, queue| queue.is_used(now));
        let name = (op.spec.key().stored_name().clone(), op.spec.dialect());
        let queue = self.0.entry(name.clone()).or_default();
        let before = queue.first();
        let was_present = queue.execute(op, now);
        let first = queue.first();
        let reply = QueueReply::new(now.since(Moment::default()), was_present);
        let Some((process, number)) = first else {
            self.0.remove(&name);
            return (reply, Vec::new());
        };
        let until = queue.present_until.get(&process);
        let present_for = until.map_or(Duration::ZERO, |until| now.time_until(*until));
        let mut notified = vec![process];
        notified.extend(before.map(|(process, _)| process).filter(|before| *before != process));
        notified.retain(|process| *process != op.process && first != before);
        (reply.with_first(FirstTicket { process, number, present_for }), notified)
    }

    /// Removes all queues.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns whether no caller waits in any queue.
    #[cfg(test)]
    pub(super) fn is_empty(&self, now: Moment) -> bool {
        !self.0.values().any(|queue| queue.is_used(now))
    }
}

impl TicketQueue {
    fn is_used(&self, now: Moment) -> bool {
        self.present_until.values().any(|until| !now.has_reached(*until))
    }

    fn first(&self) -> Option<(ProcessId, u64)> {
        self.tickets.first().map(|ticket| (ticket.process, ticket.number))
    }

    /// Executes an operation. Returns whether its process was present before.
    fn execute(&mut self, op: &QueueOp, now: Moment) -> bool {
        let Self { tickets, present_until } = self;
        present_until.retain(|_, until| !now.has_reached(*until));
        tickets.retain(|ticket| present_until.contains_key(&ticket.process));
        let process = op.process;
        let was_present = present_until.contains_key(&process);
        let is_own = |ticket: &StoredTicket| ticket.process == process;
        match &op.action {
            QueueAction::Enter { tickets: entered } => {
                present_until.insert(process, now.plus(op.presence));
                for ticket in &**entered {
                    let number = ticket.number;
                    if !tickets.iter().any(|other| is_own(other) && other.number == number) {
                        let now = now.since(Moment::default());
                        let arrival = i128::from(nanos(now)) - i128::from(nanos(ticket.waited));
                        tickets.insert(StoredTicket { arrival, process, number });
                    }
                }
            }
            QueueAction::Refresh if was_present => {
                present_until.insert(process, now.plus(op.presence));
            }
            QueueAction::Leave { numbers } => {
                tickets.retain(|ticket| !is_own(ticket) || !numbers.contains(&ticket.number));
            }
            QueueAction::Refresh | QueueAction::Inspect => {}
        }
        was_present
    }
}
