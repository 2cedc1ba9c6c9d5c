//! Hand-over: a lock that its holder gives back goes to the next waiter of this process, without asking
//! the nodes.
//!
//! The next waiter is always the first of the queue. If a rule forbids the hand-over, the lock is released
//! on the nodes, and the first waiter asks them for a lock of its own.
//!
//! | rule | figure | reason |
//! |---|---|---|
//! | [`MAX_HAND_OVERS`] | 15, so 16 holders in a row | Each hand-over saves the round trips of a release and an acquisition. The gain of more is small, because one acquisition in 16 costs little; the wait of another process that is not known to wait grows with it. |
//! | [`MAX_HAND_OVERS_WITH_REMOTE_WAITERS`] | 3, so 4 holders in a row | The longest wait of the other processes grows with it. |
//! | [`MAX_STREAK_TIME`] | 100 ms from the acquisition to the last hand-over | Bounds the wait of the other processes where each holder works for long. |
//! | [`YIELD_TIME`] | 2 ms | The announcement of the release has to reach another process, and its question has to come back, before this process asks again. |
//! | [`MIN_LEASE_LEFT`] | 3/4 of the lease that the waiter asks for | The waiter gets nearly the lease that it asks for. With less it had better acquire a lease of its own. |
//! | [`EXTEND_BELOW`] | 9/10 of the lease that the new holder asked for | Until the extension is confirmed, the new holder has the rest of the old lease. An extension for less than a tenth is not worth its round trip. |
//!
//! The other rules have no figure, see [`suits`]. [`LockRequest::acquire`](crate::LockRequest::acquire)
//! states for callers what follows from the rules.
//!
//! The hand-over itself is done elsewhere, by one call each: [`Held::hand_over`] makes the lease the next
//! holder's, and `LockRequest::take_over` gives it a guard, a number if it is fenced, and its extension.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::entry::{QueueEntry, WaiterOptions};
use crate::lease::Held;

const MAX_HAND_OVERS: u32 = 15;
const MAX_HAND_OVERS_WITH_REMOTE_WAITERS: u32 = 3;
const MAX_STREAK_TIME: Duration = Duration::from_millis(100);
const YIELD_TIME: Duration = Duration::from_millis(2);
const MIN_LEASE_LEFT: Fraction = Fraction(3, 4);
const EXTEND_BELOW: Fraction = Fraction(9, 10);

/// The hand-overs of a lock since the nodes granted it.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandOverStreak {
    hand_overs: u32,
    since: Instant,
}

/// Lets other processes have their turn.
#[derive(Debug, Default)]
pub(super) struct Fairness {
    /// Whether other processes were waiting when the lock was last released on the nodes.
    has_remote_waiters: bool,
    /// Until when the first waiter lets other processes ask the nodes first.
    yield_until: Option<Instant>,
}

impl HandOverStreak {
    /// The nodes grant the lock now.
    pub(super) fn start() -> Self {
        Self { hand_overs: 0, since: Instant::now() }
    }

    /// Hands a lock over to the next waiter, which leaves the queue with it. Returns the lock as the next
    /// holder's, and `None` if a rule forbids the hand-over.
    pub(super) fn hand_over(
        self,
        held: &Held,
        waiting: &mut VecDeque<Arc<QueueEntry>>,
        fairness: &Fairness,
        node_timeout: Duration,
    ) -> Option<(Arc<Held>, Self)> {
        let next = waiting.front().filter(|next| next.is_waiting())?;
        if !self.may_go_on(fairness) || !suits(held, next.options, node_timeout) {
            return None;
        }
        let held = held.hand_over()?;
        next.hand_over(Arc::clone(&held));
        waiting.pop_front();
        Some((held, Self { hand_overs: self.hand_overs + 1, ..self }))
    }

    fn may_go_on(self, fairness: &Fairness) -> bool {
        let max_hand_overs = if fairness.has_remote_waiters {
            MAX_HAND_OVERS_WITH_REMOTE_WAITERS
        } else {
            MAX_HAND_OVERS
        };
        self.hand_overs < max_hand_overs && self.since.elapsed() < MAX_STREAK_TIME
    }
}

/// Whether a lock gives a waiter what it needs.
fn suits(held: &Held, waiter: WaiterOptions, node_timeout: Duration) -> bool {
    let WaiterOptions { expire, takes_over, fenced, .. } = waiter;
    takes_over
        && held.lease_remaining() >= MIN_LEASE_LEFT.of(expire)
        // The lease is no longer than the waiter asks for, also on a node that has granted an extension
        // whose answer was lost.
        && held.expire() <= expire
        && held.runs_out_within(expire + node_timeout)
        // A fenced waiter needs a lock that the nodes have numbered.
        && (!fenced || held.attempt().is_fenced())
        // A lock that has to stay on the nodes is free for nobody.
        && held.attempt().stays_for().is_none()
        && !held.attempt().stays_until_expiry()
}

/// Whether the new holder's lease is extended after a hand-over.
pub(crate) fn needs_extension(remaining: Duration, expire: Duration) -> bool {
    remaining < EXTEND_BELOW.of(expire)
}

impl Fairness {
    /// Notes that the lock was released on the nodes, where so many processes listened for the release.
    pub(super) fn note_release(&mut self, listeners: usize, this_process_listens: bool) {
        self.has_remote_waiters = listeners > usize::from(this_process_listens);
        if self.has_remote_waiters {
            self.yield_until = Some(Instant::now() + YIELD_TIME);
        }
    }

    /// How much longer the first waiter lets other processes ask the nodes first.
    pub(super) fn yields_for(&self) -> Option<Duration> {
        let left = self.yield_until?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }
}

#[derive(Debug, Clone, Copy)]
struct Fraction(u32, u32);

impl Fraction {
    fn of(self, lease: Duration) -> Duration {
        lease * self.0 / self.1
    }
}
