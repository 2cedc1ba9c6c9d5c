//! The options of one acquisition, with the manager's defaults.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

use super::{LockOptions, WaitTime};
use crate::error::InvalidOption;
use crate::lock::{Dialect, Mode};
use crate::validity::{self, SHORTEST_JOINED};

/// The manager's values of options that a caller has not set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    pub(crate) expire: Duration,
    pub(crate) dialect: Dialect,
}

/// How long a lock stays on the nodes after its holder has released it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MinHold {
    /// For this time, counted from the acquisition.
    For(Duration),
    /// Until the lease runs out. The nodes are not asked to release the lock.
    UntilExpiry,
}

/// How a lock is renewed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewal {
    /// The lease that each renewal requests.
    pub(crate) lease: Duration,
    /// When the renewal ends, even if the lock is still held (`max_hold`).
    pub(crate) until: Option<Instant>,
}

/// The terms of a reader that may join the lock of another reader of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JoinTerms {
    pub(crate) expire: Duration,
    renewed_for: Option<Duration>,
}

impl JoinTerms {
    /// Returns how long the reader's own part of the lock lasts; `None` if it ends with the lease only.
    pub(crate) fn lasts(&self) -> Option<Duration> {
        let validity = validity::remaining(self.expire, Duration::ZERO);
        match self.renewed_for {
            None => Some(validity),
            Some(Duration::MAX) => None,
            // As after the last renewal before the end of `max_hold`.
            Some(time) => Some(time.saturating_add(validity)),
        }
    }
}

/// The options of one acquisition, checked and with the manager's defaults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResolvedOptions {
    pub(crate) expire: Duration,
    /// `None` makes one attempt.
    pub(crate) wait_time: Option<WaitTime>,
    pub(crate) min_hold: Option<MinHold>,
    pub(crate) reentrant: bool,
    pub(crate) mode: Mode,
    /// Whether the caller waits in a fair queue.
    pub(crate) fair: bool,
    pub(crate) dialect: Dialect,
    /// Whether the holder gets a fencing token.
    pub(crate) fenced: bool,
    /// How long the lease is renewed, counted from the acquisition; `None` if it is not renewed.
    renewed_for: Option<Duration>,
}

impl ResolvedOptions {
    /// Returns the renewal of a lock that is acquired now.
    pub(crate) fn renewal(&self) -> Option<Renewal> {
        let time = self.renewed_for?;
        Some(Renewal { lease: self.expire, until: Instant::now().checked_add(time) })
    }

    /// Returns the terms of a reader that may share one lock of the nodes with other readers of its process: it has no order
    /// of its own, keeps its lock no longer than it holds it, and has a lease from which a moment may be missing.
    pub(crate) fn joins(&self) -> Option<JoinTerms> {
        let Self { expire, renewed_for, .. } = *self;
        let is_plain = !self.fair && !self.fenced && self.min_hold.is_none();
        let joins = self.mode == Mode::SHARED && is_plain && expire >= SHORTEST_JOINED;
        joins.then_some(JoinTerms { expire, renewed_for })
    }
}

impl LockOptions {
    /// Checks the options and adds the manager's defaults. The nodes may allow less.
    pub(crate) fn resolve(&self, defaults: &Defaults) -> Result<ResolvedOptions, InvalidOption> {
        // Decided before the manager's lease is filled in: only a lease that the caller did not set is
        // renewed by default.
        let is_renewed = self.is_renewed();
        let expire = self.expire.unwrap_or(defaults.expire);
        let Self { wait_time, max_hold, min_hold, keep, reentrant, fair, dialect, fenced, .. } =
            *self;
        Self { expire: Some(expire), renew: Some(is_renewed), ..*self }.check()?;
        let dialect = dialect.unwrap_or(defaults.dialect);
        let is_kept = keep.unwrap_or_default();
        let min_hold = min_hold.filter(|min_hold| !min_hold.is_zero()).map(MinHold::For);
        let min_hold = if is_kept { Some(MinHold::UntilExpiry) } else { min_hold };
        Ok(ResolvedOptions {
            expire,
            wait_time: wait_time.filter(|&wait_time| wait_time != Duration::ZERO.into()),
            min_hold,
            reentrant: reentrant.unwrap_or_default(),
            mode: self.mode(),
            fair: fair.unwrap_or_default(),
            dialect,
            fenced: fenced.unwrap_or_default(),
            renewed_for: is_renewed.then_some(max_hold.unwrap_or(Duration::MAX)),
        })
    }

    /// Returns the mode of the lock.
    fn mode(&self) -> Mode {
        let permits = self.permits.and_then(NonZeroU32::new);
        if permits.is_some() || self.shared.unwrap_or_default() {
            Mode::Shared { permits }
        } else {
            Mode::Exclusive
        }
    }
}
