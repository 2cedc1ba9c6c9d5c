//! The spans of acquisitions and of held locks. Their parent is the span of the caller. Neither is entered, so no event of
//! another request gets into it.

use std::fmt::Display;

use tracing::field::{Empty, Value, display};
use tracing::level_filters::LevelFilter;
use tracing::{Span, debug_span};

/// A span that costs nothing if no subscriber wants it.
#[derive(Debug, Default)]
pub(crate) struct Trace(Option<Box<Span>>);

impl Trace {
    /// Begins the span of an acquisition.
    #[inline]
    pub(crate) fn of_acquisition(name: &str) -> Self {
        Self::of(|| {
            debug_span!(
                target: "redlock_core", "redlock.acquire",
                lock = name, otel.kind = "client", outcome = Empty, waited_ms = Empty, granted = Empty, nodes = Empty,
                joined = Empty, holder = Empty, error.type = Empty,
            )
        })
    }

    /// Begins the span of a held lock.
    #[inline]
    pub(crate) fn of_hold(name: &str) -> Self {
        Self::of(|| {
            debug_span!(
                target: "redlock_core", "redlock.hold",
                lock = name, end = Empty, renewals = Empty, number = Empty,
            )
        })
    }

    /// Without a subscriber for this level, no span is made.
    #[inline]
    fn of(span: impl FnOnce() -> Span) -> Self {
        if LevelFilter::current() < LevelFilter::DEBUG {
            return Self(None);
        }
        Self::with_subscriber(span)
    }

    /// Not inlined, so that nothing is prepared where no subscriber wants the span.
    #[cold]
    #[inline(never)]
    fn with_subscriber(span: impl FnOnce() -> Span) -> Self {
        let span = span();
        Self((!span.is_disabled()).then(|| Box::new(span)))
    }

    /// Returns whether a subscriber wants the span.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    #[inline]
    pub(crate) fn record(&self, field: &'static str, value: impl Value) {
        if let Some(span) = &self.0 {
            record(span, field, value);
        }
    }

    pub(crate) fn record_text(&self, field: &'static str, value: impl Display) {
        self.record(field, display(value));
    }
}

/// Not inlined, as [`Trace::with_subscriber`].
#[cold]
#[inline(never)]
fn record(span: &Span, field: &'static str, value: impl Value) {
    span.record(field, value);
}
