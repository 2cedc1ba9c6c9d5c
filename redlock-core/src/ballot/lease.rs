//! The lease that the nodes have granted to an attempt.

use std::time::Duration;

use crate::clock::Moment;
use crate::validity;

/// The lease that the nodes have granted to an attempt. After a hand-over, the next holder has it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Lease {
    /// The clock reading before the command was sent that set or extended the lease.
    pub(crate) since: Moment,
    pub(crate) expire: Duration,
    /// When the last requested lease runs out on the nodes, whether they granted it or not.
    pub(crate) latest_expiry: Moment,
    /// Whether the last extension was not confirmed.
    pub(crate) is_unconfirmed: bool,
    /// Whether a quorum of nodes has denied that the attempt holds the lock.
    pub(crate) is_denied: bool,
}

impl Lease {
    /// Returns the lease of an acquisition that began at `since` and was decided at `decided`.
    pub(crate) fn new(since: Moment, decided: Moment, expire: Duration) -> Self {
        // A node may have set the lock, and so started its lease, at any time until the decision.
        let latest_expiry = decided.plus(expire);
        Self { since, expire, latest_expiry, is_unconfirmed: false, is_denied: false }
    }

    /// Returns how long a holder may rely on the lock; zero if the nodes have denied it.
    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        if self.is_denied {
            return Duration::ZERO;
        }
        validity::remaining(self.expire, now.since(self.since))
    }

    /// Returns whether the lease lasts until this moment.
    pub(crate) fn lasts_until(&self, moment: Moment) -> bool {
        self.since.plus(self.expire).has_reached(moment)
    }

    /// Records that a node may hold the lock until this moment.
    pub(crate) fn raise_latest_expiry(&mut self, latest_expiry: Moment) {
        if !self.latest_expiry.has_reached(latest_expiry) {
            self.latest_expiry = latest_expiry;
        }
    }

    /// Records that a quorum has extended the lease to `expire` from `since`. Returns whether this prolongs the lease: of two
    /// concurrent extensions, the later deadline wins.
    pub(crate) fn extend(&mut self, now: Moment, since: Moment, expire: Duration) -> bool {
        self.is_unconfirmed = false;
        let is_longer = Self { since, expire, ..*self }.remaining(now) > self.remaining(now);
        if is_longer {
            (self.since, self.expire) = (since, expire);
        }
        is_longer
    }
}
