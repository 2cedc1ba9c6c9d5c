//! A node with a fair queue, as `store/memory/queue.rs` has it.

use std::time::Duration;

use super::Instant;
use super::machine::{FairReply, First, Operation};

/// How long a process keeps its places after its last sign of life.
pub(super) const PRESENCE: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) is_down: bool,
    /// The arrival, the process and the number of each ticket, in their order.
    pub(super) tickets: Vec<(Instant, usize, u64)>,
    /// The end of the presence of each process.
    pub(super) present_until: Vec<(usize, Instant)>,
}

impl Node {
    /// Returns the process and the number of the first ticket.
    pub(super) fn first(&self) -> Option<(usize, u64)> {
        self.tickets.first().map(|(_, process, number)| (*process, *number))
    }

    /// Forgets the processes that are not present any more.
    pub(super) fn expire(&mut self, now: Instant) {
        self.present_until.retain(|(_, until)| *until > now);
        let is_present = |process| self.present_until.iter().any(|(other, _)| *other == process);
        self.tickets.retain(|(_, process, _)| is_present(*process));
    }

    /// Executes an operation of a process. Also returns the processes that are notified.
    pub(super) fn execute(
        &mut self,
        process: usize,
        operation: &Operation,
        now: Instant,
    ) -> (FairReply, Vec<usize>) {
        self.expire(now);
        let before = self.first();
        let was_present = self.present_until.iter().any(|(other, _)| *other == process);
        let stays = match operation {
            Operation::Enter(_) => true,
            Operation::Refresh => was_present,
            Operation::Leave(_) => false,
        };
        if stays {
            self.present_until.retain(|(other, _)| *other != process);
            self.present_until.push((process, now + PRESENCE));
            self.present_until.sort_unstable();
        }
        match operation {
            Operation::Enter(tickets) => {
                for (number, waited) in tickets {
                    let is_it = |other: &(_, usize, u64)| (other.1, other.2) == (process, *number);
                    if !self.tickets.iter().any(is_it) {
                        self.tickets.push((now.before(*waited), process, *number));
                    }
                }
                self.tickets.sort_unstable();
            }
            Operation::Refresh => {}
            Operation::Leave(numbers) => {
                self.tickets
                    .retain(|(_, other, number)| *other != process || !numbers.contains(number));
            }
        }
        let after = self.first();
        let first = after.map(|(other, number)| {
            let until = self.present_until.iter().find(|(present, _)| *present == other);
            match until {
                _ if other == process => First::Own(number),
                Some((_, until)) => First::Other(*until - now),
                None => First::Other(Duration::ZERO),
            }
        });
        let mut notified = Vec::new();
        if let Some((next, _)) = after
            && after != before
        {
            notified.push(next);
            notified.extend(before.map(|(former, _)| former).filter(|former| *former != next));
            notified.retain(|other| *other != process);
        }
        (FairReply { was_present, first }, notified)
    }
}
