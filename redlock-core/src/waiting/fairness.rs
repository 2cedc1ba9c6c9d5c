//! Fairness between processes: when waiters of other processes have their turn.
//!
//! No clock: the caller passes the time. The model of `tests/model` compiles this file, too.

use std::time::Duration;

use super::Instant;

const MAX_HAND_OVERS: u32 = 15;
const MAX_HAND_OVERS_WITH_REMOTE_WAITERS: u32 = 3;
const MAX_STREAK_TIME: Duration = Duration::from_millis(100);
const YIELD_TIME: Duration = Duration::from_millis(2);

/// Lets the waiters of other processes have their turn. `hand_over.rs` has the figures and their reasons.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Fairness {
    /// Whether other processes were waiting when the lock was last released on the nodes.
    has_remote_waiters: bool,
    /// The time until which the first waiter lets other processes ask the nodes first.
    yield_until: Option<Instant>,
}

impl Fairness {
    /// Returns whether a lock may be handed over once more, `hand_overs` hand-overs and this time after the nodes have
    /// granted it.
    pub(super) fn may_continue(&self, hand_overs: u32, held_for: Duration) -> bool {
        let max_hand_overs = if self.has_remote_waiters {
            MAX_HAND_OVERS_WITH_REMOTE_WAITERS
        } else {
            MAX_HAND_OVERS
        };
        hand_overs < max_hand_overs && held_for < MAX_STREAK_TIME
    }

    /// Records that the lock was released on the nodes, and that `subscribers` processes were notified. If their number is
    /// unknown, other processes count as waiting. `this_process_subscribes` says whether this process is one of them.
    pub(super) fn record_release(
        &mut self,
        subscribers: Option<usize>,
        this_process_subscribes: bool,
        now: impl FnOnce() -> Instant,
    ) {
        let own = usize::from(this_process_subscribes);
        self.has_remote_waiters = subscribers.is_none_or(|subscribers| subscribers > own);
        if self.has_remote_waiters {
            self.yield_until = Some(now() + YIELD_TIME);
        }
    }

    /// Returns until when the first waiter lets other processes ask the nodes first; `None` if it may ask at once.
    pub(super) fn yields_until(&self, now: Instant) -> Option<Instant> {
        self.yield_until.filter(|until| *until > now)
    }
}
