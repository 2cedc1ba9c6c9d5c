//! The metrics, the counter and the span of one acquisition.

use std::time::Duration;

use tokio::time::Instant;

use super::locks::Named;
use super::trace::Trace;
use crate::counters::{Counters, Outcome};
use crate::error::{LockError, Vote};

/// Measures and counts one acquisition, until it has an outcome or is dropped.
#[derive(Debug)]
pub(crate) struct AcquisitionTimer<'a> {
    counters: &'a Counters,
    name: &'a Named,
    trace: &'a Trace,
    /// `None` if nothing records the duration.
    started: Option<Instant>,
    outcome: Outcome,
}

impl<'a> AcquisitionTimer<'a> {
    pub(crate) fn start(counters: &'a Counters, name: &'a Named, trace: &'a Trace) -> Self {
        let is_recorded = cfg!(feature = "metrics") || trace.is_wanted();
        let started = is_recorded.then(Instant::now);
        Self { counters, name, trace, started, outcome: Outcome::Dropped }
    }

    /// Records an acquisition that was refused before it began.
    pub(crate) fn refuse(counters: &Counters, name: &Named, error: &LockError) {
        let trace = Trace::of_acquisition(name.as_str());
        AcquisitionTimer::start(counters, name, &trace).set_outcome(Some(error));
    }

    /// Sets the outcome of the acquisition: acquired, or this error.
    pub(crate) fn set_outcome(&mut self, error: Option<&LockError>) {
        self.outcome = match error {
            None => Outcome::Acquired,
            Some(LockError::Contended { .. }) => Outcome::Contended,
            Some(LockError::Split { .. }) => Outcome::Split,
            Some(LockError::Unavailable { .. }) => Outcome::Unavailable,
            Some(LockError::TimedOut { .. }) => Outcome::TimedOut,
            Some(LockError::TooManyWaiters { .. }) => Outcome::TooManyWaiters,
            Some(LockError::AlreadyHeld { .. }) => Outcome::AlreadyHeld,
            Some(LockError::Lost(_)) => Outcome::Lost,
            Some(LockError::ForeignKey { .. }) => Outcome::ForeignKey,
            Some(LockError::InvalidKey(_) | LockError::InvalidOption(_)) => Outcome::Invalid,
            Some(LockError::Draining) => Outcome::Draining,
            Some(LockError::ShutDown) => Outcome::ShutDown,
            Some(LockError::RuntimeEnded) => Outcome::RuntimeEnded,
        };
        if self.trace.is_wanted()
            && let Some(error) = error
        {
            self.record_refusal(error);
        }
    }

    fn record_refusal(&self, error: &LockError) {
        self.trace.record("error.type", self.outcome.name());
        if let Some(votes) = error.votes().filter(|votes| !votes.is_empty()) {
            let granted = votes.iter().filter(|(_, vote)| matches!(vote, Some(Vote::Agreed)));
            self.trace.record("granted", granted.count());
            self.trace.record("nodes", votes.iter().count());
        }
        if let Some(holder) = error.holder() {
            self.trace.record_text("holder", holder);
        }
    }

    fn record(&self, took: Duration) {
        #[cfg(feature = "metrics")]
        self.name.metrics.acquisition_ended(self.outcome, took);
        #[cfg(not(feature = "metrics"))]
        let _ = self.name;
        if self.trace.is_wanted() {
            self.trace.record("outcome", self.outcome.name());
            self.trace.record("waited_ms", u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        }
    }
}

impl Drop for AcquisitionTimer<'_> {
    fn drop(&mut self) {
        self.counters.record_acquisition(self.outcome);
        if let Some(started) = self.started {
            self.record(started.elapsed());
        }
    }
}
