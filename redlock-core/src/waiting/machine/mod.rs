//! The machine of one waiter: its next step, and the reason and the length of each pause.
//!
//! No clock, no node, no task, no lock: each event comes with its time, and the [`Step`] that the machine returns is all that it
//! does. `driver.rs` does the steps. The model of `tests/model` compiles these files, too, and visits every state.
//!
//! * [`events`] has the words: the steps, the pauses, the answers of the nodes, and what ends a sleep.
//! * [`look`]: before a question. The waiter asks the nodes, or something is in its way.
//! * [`refuse`]: after a question. The waiter has not got the lock, and pauses.
//! * This file has the state, the arrival, and the end of a sleep.

mod events;
mod look;
mod refuse;

use std::mem;
use std::time::Duration;

use super::Instant;
use super::line::{Line, LineHolder, LineSignal, LineWaiter};
use super::pauses::{Backoff, Now, Patience};

pub(super) use events::{
    AfterJoin, Failure, Fair, Pause, Question, Sight, Step, Terms, WaitRefusal, Wake,
};

/// The state of one waiter that no other caller reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Machine<H, G: LineSignal> {
    terms: Terms,
    state: Activity<H, G>,
    /// The index of the key in whose line the waiter stands. `None` as long as it asks the nodes before it joins a line.
    at: Option<usize>,
    /// Since when the caller has waited for a holder, a waiter or the fair queue, and not only for the nodes. `None` for a new
    /// caller, which does not keep its place in an outage.
    waiting_since: Option<Instant>,
    /// When a lock of several keys last went on to the line of another key.
    moved: Option<Instant>,
    /// The time until which the waiter does not ask the nodes.
    not_before: Option<Instant>,
    /// The time until which a writer does not ask behind readers of its process: the nodes have forgotten their locks.
    behind_readers_until: Option<Instant>,
    /// Whether the reader has waited for the answer of another one, and asks itself now.
    has_followed: bool,
    /// Whether the next question does not look up the holder's remaining time to live.
    skips_lookup: bool,
    /// The pauses of a waiter whose votes were split.
    backoff: Backoff,
    patience: Patience,
    /// The pauses in the present outage.
    outage: Option<Outage>,
}

/// The present activity of the waiter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Activity<H, G: LineSignal> {
    /// It looks at its line next.
    Looks,
    /// It asks the nodes.
    Asks(Question<G>),
    /// It takes the lock that was handed over to it, since this time.
    Takes(Instant),
    Sleeps(Pause<H, G>),
}

/// An outage in which the waiter waits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Outage {
    /// Since when the waiter waits for the end of the outage, if it waits for ever. The line knows when the outage began.
    since: Option<Instant>,
    backoff: Backoff,
}

impl<H: LineHolder, G: LineSignal> Machine<H, G> {
    pub(super) fn new(terms: Terms) -> Self {
        Self {
            state: Activity::Looks,
            at: None,
            waiting_since: None,
            moved: None,
            not_before: None,
            behind_readers_until: None,
            has_followed: false,
            skips_lookup: false,
            backoff: Backoff::new(),
            patience: Patience::new(terms.has_turns),
            outage: None,
            terms,
        }
    }

    /// Returns the index of the key in whose line the waiter stands.
    pub(super) fn at(&self) -> Option<usize> {
        self.at
    }

    pub(super) fn skips_lookup(&self) -> bool {
        self.skips_lookup
    }

    /// Returns whether the waiter wants a turn of the readers.
    pub(super) fn wants_turn(&self) -> bool {
        self.patience == Patience::Over
    }

    /// Returns since when a waiter that waits for ever has waited for the nodes in the present outage.
    pub(super) fn outage_since(&self) -> Option<Instant> {
        self.outage.as_ref()?.since
    }

    /// Returns why the waiter sleeps.
    pub(super) fn pause(&self) -> Option<&Pause<H, G>> {
        match &self.state {
            Activity::Sleeps(pause) => Some(pause),
            _ => None,
        }
    }

    pub(super) fn is_over(&self, now: &Now) -> bool {
        self.terms.deadline.is_some_and(|deadline| deadline <= now.at)
    }

    /// Decides whether a new caller joins the line of this key at once. It does not if the waiters there are in an outage: it
    /// asks the nodes before it joins.
    pub(super) fn arrive<W: LineWaiter, S>(
        &mut self,
        line: &mut Line<W, H, G, S>,
        key: usize,
        has_quorum: impl FnOnce() -> bool,
        now: Instant,
    ) -> bool {
        let is_held = line.keeps_out(self.terms.mode, || now).is_some();
        let is_idle = line.is_idle();
        if !is_idle && !is_held && (line.outage().is_some() || !has_quorum()) {
            return false;
        }
        self.at = Some(key);
        if is_held || !is_idle {
            self.waiting_since = Some(self.terms.since);
        }
        true
    }

    /// Records that the waiter has left its line.
    pub(super) fn leave(&mut self) -> Option<usize> {
        self.at.take()
    }

    /// Records that the waiter has joined the line of another key, also after it has asked the nodes.
    pub(super) fn join(&mut self, key: usize, now: &Now) {
        self.at = Some(key);
        self.waiting_since.get_or_insert(now.at);
        self.backoff = Backoff::new();
        self.skips_lookup = false;
    }

    fn sleep_for(&mut self, pause: Pause<H, G>, time: Duration, now: &Now) -> Step {
        self.sleep(pause, now.at.checked_add(time), now)
    }

    /// Sleeps, until the `wait_time` is over at the latest. Gives up if it is over.
    fn sleep(&mut self, pause: Pause<H, G>, until: Option<Instant>, now: &Now) -> Step {
        if self.is_over(now) {
            return Step::Fail(Failure::TimedOut);
        }
        self.state = Activity::Sleeps(pause);
        Step::Sleep(match (until, self.terms.deadline) {
            (Some(until), Some(deadline)) => Some(until.min(deadline)),
            (until, deadline) => until.or(deadline),
        })
    }

    /// Waits behind another waiter.
    fn queue(&mut self, now: &Now) -> Step {
        // Another waiter may have been put before it while it paused: then it wants no turn any more.
        self.start_anew();
        self.sleep(Pause::Queue, None, now)
    }

    /// Forgets what the nodes have answered, as if the waiter had just come.
    fn start_anew(&mut self) {
        self.backoff = Backoff::new();
        self.patience = Patience::new(self.terms.has_turns);
        self.skips_lookup = false;
    }

    /// Records the end of a sleep. `has_fired` says whether a quorum of nodes has published a release since the question, and
    /// `is_queued` whether another waiter was put before this one.
    pub(super) fn wake(
        &mut self,
        wake: Wake,
        has_fired: bool,
        is_queued: impl FnOnce() -> bool,
    ) -> Step {
        let Activity::Sleeps(pause) = mem::replace(&mut self.state, Activity::Looks) else {
            return Step::Look;
        };
        let has_passed = match pause {
            Pause::Release(_) => wake == Wake::Release,
            Pause::Split(_) => has_fired,
            // Before the subscription, a release may have passed unnoticed.
            Pause::Subscribe => true,
            Pause::Outage { .. } | Pause::Fair => false,
            // The nodes were not asked.
            Pause::Queue | Pause::Holder(_) | Pause::Reader | Pause::Yield => return Step::Look,
        };
        if has_passed {
            self.patience.record_release();
        }
        // A published release wakes one waiter per process, and only one of them gets the lock, perhaps
        // for a short time. After a wake-up, a refused waiter therefore skips the lookup of the TTL, to
        // save the server a round trip. Not with several nodes: their refusal may be a split vote, whose
        // end is not published.
        self.skips_lookup = wake == Wake::Release && self.terms.nodes == 1;
        // The grace is over. If another waiter was put before this one, that one finds out whether the outage is.
        if matches!(pause, Pause::Outage { .. }) && wake == Wake::Timer && !is_queued() {
            return Step::Fail(Failure::Refused);
        }
        Step::Look
    }

    /// Records that the caller has the lock.
    pub(super) fn acquired(&mut self) {
        self.outage = None;
    }
}

/// Records that a quorum of nodes answers.
pub(super) fn record_quorum<W: LineWaiter, H: LineHolder, G: LineSignal, S>(
    line: Option<&mut Line<W, H, G, S>>,
    waiter: &W,
    wake: impl FnMut(&W),
) {
    // The waiter itself is awake.
    if let Some(line) = line
        && line.end_outage()
        && !line.is_first(waiter)
    {
        line.wake_first(wake);
    }
}

/// Ends an outage that began before the conductor of the fair queue answered. The caller is awake, and the only waiter
/// that could ask.
pub(super) fn end_outage_before<W: LineWaiter, H: LineHolder, G: LineSignal, S>(
    line: &mut Line<W, H, G, S>,
    answered: Instant,
) {
    if line.outage().is_some_and(|since| since < answered) {
        line.end_outage();
    }
}
