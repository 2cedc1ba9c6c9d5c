//! The metrics and the span of a held lock.

#[cfg(feature = "metrics")]
use tokio::time::Instant;

#[cfg(feature = "metrics")]
use super::locks::LockMetrics;
use super::locks::{HoldEnd, Named};
use super::trace::Trace;

/// A lock that its holder has, from the first guard to the end. The gauge of held locks counts it until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    #[cfg(feature = "metrics")]
    metrics: LockMetrics,
    #[cfg(feature = "metrics")]
    since: Instant,
    trace: Trace,
}

impl Hold {
    /// Begins a hold. The span of the caller is the parent of its span.
    #[inline]
    pub(crate) fn begin(name: &Named) -> Self {
        #[cfg(feature = "metrics")]
        name.metrics.hold_begins();
        Self {
            #[cfg(feature = "metrics")]
            metrics: name.metrics.clone(),
            #[cfg(feature = "metrics")]
            since: Instant::now(),
            trace: Trace::of_hold(name.as_str()),
        }
    }

    /// Records the end of a hold, whose lease was extended `renewals` times. `number` is the fencing number of the holder.
    #[inline]
    pub(crate) fn end(self, end: HoldEnd, renewals: u32, number: Option<i64>) {
        #[cfg(feature = "metrics")]
        self.metrics.hold_ended(end, self.since.elapsed());
        if self.trace.is_wanted() {
            self.trace.record("end", end.name());
            self.trace.record("renewals", renewals);
            self.trace.record("number", number);
        }
    }
}

#[cfg(feature = "metrics")]
impl Drop for Hold {
    fn drop(&mut self) {
        self.metrics.holds_one_less();
    }
}
