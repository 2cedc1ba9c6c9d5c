//! The last extension of a lease, until a quorum has confirmed it.

use std::fmt::Write;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::error::Votes;

/// The last extension of a lease, until a quorum has confirmed it in time. It has the causes of a loss, and most locks have
/// none.
#[derive(Debug, Default)]
pub(crate) struct LastExtension(Mutex<Option<Box<UnconfirmedExtension>>>);

/// An extension that no quorum has confirmed.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnconfirmedExtension {
    /// When the nodes were asked, if the question has no result yet.
    asked: Option<Moment>,
    /// The votes of the last question with a result.
    pub(crate) votes: Option<Votes>,
    /// How late a renewal has begun, because the process was late.
    late: Duration,
}

impl LastExtension {
    /// Returns the last extension if no quorum has confirmed it.
    pub(crate) fn unconfirmed(&self) -> Option<UnconfirmedExtension> {
        self.0.lock().as_deref().cloned()
    }

    /// Returns whether the last question to the nodes had no quorum.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|unconfirmed| unconfirmed.votes.is_some())
    }

    /// Records that the nodes are asked from now on.
    pub(crate) fn begin(&self, now: Moment) {
        self.0.lock().get_or_insert_default().asked = Some(now);
    }

    /// Records the votes of a question without a quorum.
    pub(crate) fn fail(&self, votes: &Votes) {
        let mut last = self.0.lock();
        let unconfirmed = last.get_or_insert_default();
        (unconfirmed.asked, unconfirmed.votes) = (None, Some(votes.clone()));
    }

    /// Records that a renewal begins, or should have begun, so long after it was due.
    pub(crate) fn record_late(&self, late: Duration) {
        let mut last = self.0.lock();
        let unconfirmed = last.get_or_insert_default();
        unconfirmed.late = unconfirmed.late.max(late);
    }

    /// Records that a quorum has extended the lease, maybe too late.
    pub(crate) fn confirm(&self, is_in_time: bool) {
        let mut last = self.0.lock();
        match &mut *last {
            Some(unconfirmed) if !is_in_time => {
                (unconfirmed.asked, unconfirmed.votes) = (None, None);
            }
            _ => *last = None,
        }
    }
}

impl UnconfirmedExtension {
    /// Returns the reason of a loss, followed by the cause of the delay of the extension.
    pub(crate) fn explain(&self, reason: &str, now: Moment) -> String {
        let Self { asked, votes, late } = self;
        let mut reason = reason.to_owned();
        // Writing into a text cannot fail.
        if !late.is_zero() {
            let _ = write!(
                reason,
                "; the renewal was due {late:.1?} before it ran, so the process was late: code that blocks its threads, or too \
                 little CPU time"
            );
        }
        if let (Some(asked), None) = (asked, votes) {
            let _ =
                write!(reason, "; no reply to the last extension for {:.1?}", now.since(*asked));
        }
        reason
    }
}
