//! The belief of a holder that it holds a lock.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::LockKey;
use tokio::time::Instant;

use super::history::{Hold, Span};
use super::worker::Worker;
use super::world::World;

/// The tolerance for the end of a lease that is not extended: two calculations of it differ by less.
const CLOCK_TICK: Duration = Duration::from_millis(1);

/// How long ago a quorum may have confirmed the lease that a reader joins: `JOIN_WINDOW` of `lease/siblings.rs`, on the clock
/// of a client.
const JOINED: Duration = Duration::from_millis(21);

/// The belief of a holder that it holds all keys of a lock. It lasts until the end of the validity, the loss of the
/// lock, or the drop of this value.
pub(super) struct Belief {
    world: Arc<World>,
    keys: Vec<String>,
    /// The span of each key, without the key.
    span: Span,
    shared_hold: Hold,
    drift: i32,
    /// The end of the belief, unless the lease is extended.
    pub(super) until: Instant,
    pub(super) was_lost: bool,
}

impl Belief {
    pub(super) fn new(worker: &Worker, keys: &[LockKey], hold: Hold, number: Option<i64>) -> Self {
        let start = worker.world.trace.elapsed();
        let keys = keys.iter().map(|key| key.as_str().to_owned()).collect();
        let (key, holder) = (String::new(), worker.name.clone());
        let client = worker.client;
        let (granted, end) = (start, start);
        let (since, leased) = match hold {
            Hold::Reader => (start.saturating_sub(JOINED), start.saturating_sub(JOINED)),
            Hold::Exclusive | Hold::Permit(_) => (start, start),
        };
        let span = Span { key, holder, client, hold, granted, since, leased, start, end, number };
        let shared_hold = if hold == Hold::Exclusive { Hold::Reader } else { hold };
        let (world, drift) = (Arc::clone(&worker.world), worker.drift);
        Self { world, keys, span, shared_hold, drift, until: Instant::now(), was_lost: false }
    }

    /// Adds a span of each key to the history.
    fn report(&self, span: &Span) {
        for key in &self.keys {
            self.world.believed(Span { key: key.clone(), ..span.clone() });
        }
    }

    pub(super) fn hold(&self) -> Hold {
        self.span.hold
    }

    /// Returns how the holder shares the lock after a downgrade.
    pub(super) fn shared_hold(&self) -> Hold {
        self.shared_hold
    }

    pub(super) fn since(&self) -> Duration {
        self.span.since
    }

    /// Ends the belief, because the guard reports that the lock is lost.
    pub(super) fn end(&mut self) {
        self.until = self.until.min(Instant::now());
        self.was_lost = true;
    }

    /// Continues the belief for the validity that the guard reports, measured on the client's clock.
    pub(super) fn continue_for(&mut self, left: Duration) {
        let now = Instant::now();
        let until = now + left.div_f64(1.0 + f64::from(self.drift) / 1e6);
        let start = self.world.trace.at(now);
        if self.span.start < start && self.until + CLOCK_TICK < until {
            // An extension begins a new span: a quorum has confirmed the lease again, in spite of earlier
            // faults.
            let since = self.span.start;
            self.begin_span(Span {
                since,
                leased: since,
                start,
                number: None,
                ..self.span.clone()
            });
        }
        self.until = until;
    }

    /// Continues the belief in another mode, which a quorum has confirmed at `since` or later. The lease keeps its end.
    pub(super) fn change(&mut self, hold: Hold, since: Duration) {
        let start = self.world.trace.elapsed();
        self.begin_span(Span { hold, since, start, number: None, ..self.span.clone() });
    }

    fn begin_span(&mut self, next: Span) {
        let mut before = std::mem::replace(&mut self.span, next);
        before.end = self.world.trace.at(Instant::now().min(self.until));
        self.report(&before);
    }
}

impl Drop for Belief {
    fn drop(&mut self) {
        let end = Instant::now().min(self.until);
        self.span.end = self.world.trace.at(end);
        self.report(&self.span);
    }
}
