//! Hand-over: passes a lock from its holder to the next waiter of this process, without asking the nodes.
//!
//! The next waiter is always the first of the queue, also while it pauses. If a rule forbids the hand-over, the lock is
//! released on the nodes, and the first waiter asks the nodes for a lock of its own.
//!
//! | rule | figure | reason |
//! |---|---|---|
//! | `MAX_HAND_OVERS` (`fairness.rs`) | 15, so 16 holders in a row | Each hand-over saves the round trips of a release and an acquisition. A higher limit gains little, because one acquisition per 16 holders costs little, and it prolongs the wait of a process that is not known to wait. |
//! | `MAX_HAND_OVERS_WITH_REMOTE_WAITERS` | 3, so 4 holders in a row | A higher limit prolongs the longest wait of the other processes. |
//! | `MAX_STREAK_TIME` | 100 ms from the acquisition to the last hand-over | Limits the wait of the other processes if each holder keeps the lock for long. |
//! | `YIELD_TIME` | 2 ms | The message about the release has to reach another process, and that process's command has to reach the nodes, before this process asks again. |
//! | [`MIN_LEASE_LEFT`] | 3/4 of the lease that the waiter asks for | The waiter gets nearly the lease that it asks for. With less left, the waiter should acquire a lease of its own. |
//! | [`EXTEND_BELOW`] | 9/10 of the lease that the new holder asked for | Until the extension is confirmed, the new holder has the rest of the old lease. An extension by less than a tenth is not worth its round trip. |
//!
//! The other rules have no figure, see [`meets_requirements`]. The consequences for callers are documented at
//! [`LockRequest::acquire`](crate::LockRequest::acquire).
//!
//! This module applies the rules. [`Holding::for_next_holder`] passes the lease on to the next holder, and
//! `request/grant.rs` creates the next holder's guard, assigns a fencing token to a fenced holder, and
//! extends the lease.

use std::sync::Arc;
use std::time::Duration;

use super::fairness::Fairness;
use super::waiter::{Waiter, WaiterOptions};
use crate::ballot::Lease;
use crate::lease::Holding;

const MIN_LEASE_LEFT: Fraction = Fraction(3, 4);
const EXTEND_BELOW: Fraction = Fraction(9, 10);

/// Returns the same lock for the next holder, or `None` if a rule forbids the hand-over.
pub(super) fn hand_over(
    held: &Holding,
    next: &Waiter,
    fairness: &Fairness,
    node_timeout: Duration,
) -> Option<Arc<Holding>> {
    let Lease { hand_overs, granted, .. } = *held.attempt().lease();
    if fairness.may_continue(hand_overs, held.now().since(granted))
        && meets_requirements(held, next, node_timeout)
    {
        held.for_next_holder(next.options.caller, &next.options.name)
    } else {
        None
    }
}

/// Returns whether a lock meets a waiter's requirements.
fn meets_requirements(held: &Holding, waiter: &Waiter, node_timeout: Duration) -> bool {
    let WaiterOptions { expire, accepts_hand_over, fenced, ref fair, .. } = waiter.options;
    accepts_hand_over
        // Otherwise a waiter of another process is next.
        && fair.as_ref().is_none_or(|queue| queue.is_first())
        // The nodes hold the keys of the former holder, in its mode. A waiter may need more keys. Readers share a lock
        // instead of handing it over. Only the nodes know whether a permit is free for a waiter: there may be more
        // holders than its number of permits, or a writer that waits.
        && held.attempt().spec().keys() == waiter.spec.keys()
        && held.attempt().spec().mode() == waiter.spec.mode()
        && !waiter.spec.mode().is_shared()
        && is_long_enough(held.lease_remaining(), expire)
        // The lease is not longer than the waiter asks for, even on a node that has granted an extension
        // whose reply was lost.
        && held.attempt().lease().expire <= expire
        && held.expires_within(expire + node_timeout)
        // A fenced waiter needs a lock that the nodes have numbered.
        && (!fenced || held.attempt().is_fenced())
        // A lock with a minimum hold time has to stay on the nodes, so no waiter may take it over.
        && held.attempt().min_hold_remaining().is_none()
}

/// Returns whether the rest of a lease is long enough for another caller that asks for `expire`.
pub(super) fn is_long_enough(remaining: Duration, expire: Duration) -> bool {
    remaining >= MIN_LEASE_LEFT.of(expire)
}

/// Returns whether the new holder's lease is extended after a hand-over.
pub(crate) fn needs_extension(remaining: Duration, expire: Duration) -> bool {
    remaining < EXTEND_BELOW.of(expire)
}

#[derive(Debug, Clone, Copy)]
struct Fraction(u32, u32);

impl Fraction {
    fn of(self, lease: Duration) -> Duration {
        lease * self.0 / self.1
    }
}
