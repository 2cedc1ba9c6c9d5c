//! Whether and for how long one holder holds a lock.

use std::time::Duration;

use crate::ballot::{GrantedLease, LeaseTerm};
use crate::clock::Moment;

/// Whether a lock is held, released or lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldState {
    /// The lock is held, as long as validity is left.
    Held,
    /// The holder released the lock.
    Released,
    /// The lock was lost before the holder released it.
    Lost,
}

/// Whether and for how long one holder holds a lock.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) state: HoldState,
    /// The lease that this holder asked for. Readers of this process share the lease of one attempt, which each of them
    /// may extend. The own lease ends the holding of a reader that hangs, although the others go on.
    pub(super) own_lease: LeaseTerm,
}

impl Holding {
    pub(super) fn new(own_lease: LeaseTerm) -> Self {
        Self { state: HoldState::Held, own_lease }
    }

    /// Returns how long the holder may rely on the lock, whose attempt has this lease.
    pub(super) fn remaining(&self, lease: &GrantedLease, now: Moment) -> Duration {
        match self.state {
            // Exclusive holders have no other lease than that of the attempt.
            HoldState::Held if self.own_lease == lease.term() => lease.remaining(now),
            HoldState::Held => lease.remaining(now).min(self.own_lease.remaining(now)),
            HoldState::Released | HoldState::Lost => Duration::ZERO,
        }
    }

    pub(super) fn is_valid(&self, lease: &GrantedLease, now: Moment) -> bool {
        !self.remaining(lease, now).is_zero()
    }
}
