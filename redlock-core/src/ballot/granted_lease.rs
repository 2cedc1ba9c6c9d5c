//! The lease that the nodes have granted to an attempt.

use std::time::Duration;

use crate::clock::Moment;
use crate::validity;

/// A lease by its start and its length.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseTerm {
    /// The clock reading before the command was sent that set or extended the lease.
    pub(crate) since: Moment,
    pub(crate) expire: Duration,
}

impl LeaseTerm {
    /// Returns how long a holder may rely on the lease.
    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        validity::remaining(self.expire, now.since(self.since))
    }

    /// Replaces the lease by an extension if this prolongs the lease, and returns whether it does: of two concurrent
    /// extensions, the later deadline wins.
    pub(crate) fn extend(&mut self, now: Moment, extension: Self) -> bool {
        let is_longer = extension.remaining(now) > self.remaining(now);
        if is_longer {
            *self = extension;
        }
        is_longer
    }
}

/// The lease that the nodes have granted to an attempt. After a hand-over, the next holder has it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct GrantedLease {
    term: LeaseTerm,
    /// When the last requested lease runs out on the nodes, whether they granted it or not.
    latest_expiry: Moment,
    /// Whether the last extension was not confirmed.
    unconfirmed: bool,
    /// Whether a quorum of nodes has denied that the attempt holds the lock.
    denied: bool,
}

impl GrantedLease {
    /// Returns the lease of an acquisition that began at `since` and was decided at `decided`.
    pub(crate) fn new(since: Moment, decided: Moment, expire: Duration) -> Self {
        // A node may have set the lock, and so started its lease, at any time until the decision.
        let latest_expiry = decided.plus(expire);
        let term = LeaseTerm { since, expire };
        Self { term, latest_expiry, ..Self::default() }
    }

    /// Returns how long a holder may rely on the lock; zero if the nodes have denied it.
    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        if self.denied { Duration::ZERO } else { self.term.remaining(now) }
    }

    /// Returns the start and the length of the lease.
    pub(crate) fn term(&self) -> LeaseTerm {
        self.term
    }

    /// Returns whether the lease lasts until this moment.
    pub(crate) fn lasts_until(&self, moment: Moment) -> bool {
        self.term.since.plus(self.term.expire).has_reached(moment)
    }

    /// Returns the time until which a node may hold the lock for the attempt.
    pub(crate) fn latest_expiry(&self) -> Moment {
        self.latest_expiry
    }

    /// Records that a node may hold the lock until this moment.
    pub(crate) fn raise_latest_expiry(&mut self, latest_expiry: Moment) {
        if !self.latest_expiry.has_reached(latest_expiry) {
            self.latest_expiry = latest_expiry;
        }
    }

    /// Records that a quorum has extended the lease to `expire` from `since`. Returns whether this prolongs the lease.
    pub(crate) fn extend(&mut self, now: Moment, since: Moment, expire: Duration) -> bool {
        self.unconfirmed = false;
        self.term.extend(now, LeaseTerm { since, expire })
    }

    /// Records that an extension was not confirmed.
    pub(crate) fn set_unconfirmed(&mut self) {
        self.unconfirmed = true;
    }

    /// Returns whether the last extension was not confirmed.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.unconfirmed
    }

    /// Records that a quorum of nodes has denied that the attempt holds the lock.
    pub(crate) fn deny(&mut self) {
        self.denied = true;
    }
}
