//! The machine of one waiter: what it does next, and why and how long it pauses.
//!
//! No clock, no node, no task, no lock: each event comes with its time, and the [`Step`] that the machine returns is all that it
//! does. `driver.rs` does the steps. The model of `tests/model` compiles this file, too, and visits every state.

use std::mem;
use std::time::Duration;

use super::line::{Line, LineHolder, LineSignal, LineWaiter, WaiterState};
use super::pauses::{AFTER_EXPIRY, Backoff, Now, Patience, SHORT_WAIT};
use super::{Instant, Mode};

/// The conditions of a wait, which do not change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Terms {
    pub(super) mode: Mode,
    pub(super) has_several_keys: bool,
    /// Whether the waiter waits for ever, also while no quorum of nodes answers.
    pub(super) is_endless: bool,
    /// When the caller began to wait.
    pub(super) since: Instant,
    /// The end of the `wait_time`.
    pub(super) deadline: Option<Instant>,
    /// The number of nodes.
    pub(super) nodes: usize,
    /// Whether the nodes give the readers a turn.
    pub(super) has_turns: bool,
    pub(super) node_timeout: Duration,
    /// How long a waiter keeps its place while no quorum of nodes answers.
    pub(super) outage_grace: Duration,
}

/// The state of one waiter that no other caller reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Machine<H, G: LineSignal> {
    terms: Terms,
    state: Activity<H, G>,
    /// The index of the key in whose line the waiter stands. `None` as long as it asks the nodes before it joins a line.
    at: Option<usize>,
    /// Since when the caller has waited for a holder, and not only for the nodes. `None` for a new caller.
    waiting_since: Option<Instant>,
    /// When a lock of several keys last went on to the line of another key.
    moved: Option<Instant>,
    /// The time until which the waiter does not ask the nodes.
    not_before: Option<Instant>,
    /// The time until which a writer does not ask behind readers of its process: the nodes have forgotten their locks.
    behind_readers_until: Option<Instant>,
    /// Whether the next question does not look up the holder's remaining time to live.
    skips_lookup: bool,
    /// The pauses of a waiter whose votes were split.
    backoff: Backoff,
    patience: Patience,
    /// The pauses in the present outage.
    outage: Option<Outage>,
}

/// What the waiter does at the moment.
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

/// A question to the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Question<G: LineSignal> {
    begun: Instant,
    /// The signal that was in effect, and the releases that had been published before.
    pub(super) heard: Option<(G, G::Counts)>,
}

/// An outage in which the waiter waits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Outage {
    /// Since when the waiter waits for its end, if it waits for ever.
    since: Option<Instant>,
    backoff: Backoff,
}

/// Why a waiter sleeps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Pause<H, G: LineSignal> {
    /// It stands behind another waiter of this process.
    Queue,
    /// Its process does not have the first ticket of the fair queue.
    Fair,
    /// This process holds the lock.
    Holder(H),
    /// Another process holds the lock. A published release ends the sleep.
    Release(Question<G>),
    /// Several callers got votes.
    Split(Question<G>),
    /// Other processes have their turn, or the nodes name one key and then another.
    Yield,
    /// Its subscription to the releases is not in effect yet.
    Subscribe,
    /// No quorum of nodes answers. The waiter asks again after this time, when a quorum is up.
    Outage {
        pause: Duration,
        /// Whether the nodes try to connect first: a server that is back is used at once.
        reconnects: bool,
    },
}

impl<H, G: LineSignal> Pause<H, G> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Queue => "Queue",
            Self::Fair => "Fair",
            Self::Holder(_) => "Holder",
            Self::Release(_) => "Release",
            Self::Split(_) => "Split",
            Self::Yield => "Yield",
            Self::Subscribe => "Subscribe",
            Self::Outage { .. } => "Outage",
        }
    }
}

/// The event that has ended a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Wake {
    /// Another caller of this process: it has handed the lock over or called the waiter, has got, shared or released the lock,
    /// or has reached a quorum. Or the manager was shut down.
    Notified,
    Release,
    Timer,
    HolderEnded,
    Subscribed,
    QuorumIsBack,
    FairQueue,
    HomeIsIdle,
}

/// The next step of a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// It looks at its line again.
    Look,
    /// It asks the nodes.
    Ask,
    /// It takes the lock that another caller of this process has handed over.
    Take,
    /// It sleeps, until this time at most.
    Sleep(Option<Instant>),
    /// It leaves its line, and joins that of the key at this index.
    Join(usize, AfterJoin),
    /// It gives up.
    Fail(Failure),
}

/// What a waiter does after it has joined a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum AfterJoin {
    Look,
    /// The nodes have answered it.
    EndOutage,
    /// It evaluates the last refusal once more.
    EvaluateRefusal,
}

/// Why a waiter gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Failure {
    /// The last refusal.
    Refused,
    /// Its `wait_time` is over, and it could not ask the nodes.
    TimedOut,
    /// No node keeps the fair order. The driver passes that on as a [refusal](WaitRefusal::NoQuorum).
    NoConductor,
}

/// What the nodes have answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum WaitRefusal {
    /// No quorum has answered.
    NoQuorum {
        /// Whether the reason may pass while the caller waits.
        is_transient: bool,
    },
    /// Another holder has the lock.
    Held {
        /// The index of its key.
        key: usize,
        remaining: Option<Duration>,
        is_split: bool,
    },
    /// A holder of this process relies on the lock, which the nodes have forgotten. The waiter has given it back.
    HeldHere { key: usize, remaining: Duration },
    /// The caller gives up.
    Final,
}

/// What a waiter sees beside its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Sight {
    /// Whether a lock was handed over to the waiter.
    pub(super) was_handed_over: bool,
    /// Whether the manager was shut down.
    pub(super) is_closed: bool,
    /// The index of the first key that a holder of this process [keeps](Machine::blocking) from the waiter.
    pub(super) blocked_key: Option<usize>,
}

/// The place of the process of a fair waiter in the fair queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Fair {
    First,
    /// The conductor has replied, at this time, that the first ticket belongs to another process.
    Behind(Instant),
    Unknown,
    NoConductor,
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

    fn is_over(&self, now: &Now) -> bool {
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
        let is_first = line.is_idle();
        if !is_first && !is_held && (line.outage().is_some() || !has_quorum()) {
            return false;
        }
        self.at = Some(key);
        if is_held || !is_first {
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

    /// Looks at the line, and decides whether the waiter asks the nodes. `fair` is called if nothing else is in its way, for a
    /// caller in a line.
    pub(super) fn look<W: LineWaiter, S>(
        &mut self,
        mut line: Option<&mut Line<W, H, G, S>>,
        waiter: &W,
        now: &Now,
        sight: Sight,
        fair: impl FnOnce() -> Fair,
    ) -> Step {
        self.state = Activity::Looks;
        if sight.was_handed_over {
            self.state = Activity::Takes(now.at);
            return Step::Take;
        }
        let mut question = Question { begun: now.at, heard: None };
        if sight.is_closed {
            // The attempt fails.
            self.state = Activity::Asks(question);
            return Step::Ask;
        }
        match line.as_ref().and_then(|line| line.state(waiter)) {
            Some(WaiterState::Queued) => return self.queue(now),
            // Its pause is over.
            Some(WaiterState::Refused) => {
                if let Some(line) = &mut line {
                    line.set(waiter, WaiterState::Called);
                }
            }
            Some(WaiterState::Called | WaiterState::Asking) | None => {}
        }
        if let Some(key) = sight.blocked_key.filter(|key| self.at != Some(*key)) {
            return Step::Join(key, AfterJoin::Look);
        }
        if let Some(line) = &mut line
            && let Some(step) = self.obstacle(line, waiter, now)
        {
            return step;
        }
        // A caller that comes in an outage finds out itself whether the outage is over, before it waits for its turn.
        if self.at.is_some() {
            match fair() {
                Fair::First => {}
                Fair::Unknown => return self.sleep(Pause::Fair, None, now),
                Fair::Behind(since) => {
                    // The caller waits for a holder, as if the nodes had refused it the lock.
                    self.waiting_since.get_or_insert(now.at);
                    if let Some(line) = line {
                        end_outage_before(line, since);
                    }
                    return self.sleep(Pause::Fair, None, now);
                }
                Fair::NoConductor => return Step::Fail(Failure::NoConductor),
            }
        }
        if let Some(line) = line {
            // Counted before the question: a release that is published meanwhile is not missed.
            let signal = line.signal(self.terms.mode);
            question.heard = signal.map(|signal| (signal.clone(), signal.counts()));
            line.set(waiter, WaiterState::Asking);
        }
        self.state = Activity::Asks(question);
        Step::Ask
    }

    /// Returns the holder of this process that keeps the waiter from asking the nodes.
    pub(super) fn blocking<'l, W: LineWaiter, S>(
        &self,
        line: &'l Line<W, H, G, S>,
        now: Instant,
    ) -> Option<(&'l H, Duration)> {
        let (held, remaining) = line.conflict(self.terms.mode, || now)?;
        // A writer behind the readers of its own process asks the nodes: it leaves its mark there, so that they admit no
        // further readers.
        let asks = self.terms.mode == Mode::Exclusive && held.mode().is_shared();
        match self.behind_readers_until.filter(|until| *until > now) {
            Some(until) if asks => Some((held, remaining.min(until - now))),
            None if asks => None,
            _ => Some((held, remaining)),
        }
    }

    /// Returns the pause of a waiter that was called and does not ask the nodes, as far as this process knows.
    fn obstacle<W: LineWaiter, S>(
        &mut self,
        line: &mut Line<W, H, G, S>,
        waiter: &W,
        now: &Now,
    ) -> Option<Step> {
        if let Some((held, remaining)) = self.blocking(line, now.at) {
            let held = held.clone();
            if !line.is_first(waiter) {
                // The first waiter calls it again.
                line.set(waiter, WaiterState::Queued);
                return Some(self.queue(now));
            }
            line.watch(waiter, held.id());
            // The holder may overrun its lease.
            let until = now.at.checked_add(remaining.saturating_add(AFTER_EXPIRY));
            return Some(self.sleep(Pause::Holder(held), until, now));
        }
        if self.is_over(now) {
            return None;
        }
        if let Some(until) = self.not_before.filter(|until| *until > now.at) {
            return Some(self.sleep(Pause::Yield, Some(until), now));
        }
        // A lock of several keys was refused for this key before, so it is likely to be refused again.
        if self.moved.is_some() && line.signal(self.terms.mode).is_none() {
            return Some(self.sleep_for(Pause::Subscribe, self.terms.node_timeout, now));
        }
        let until = line.fairness.yields_until(now.at).filter(|_| line.holders().is_empty())?;
        Some(self.sleep(Pause::Yield, Some(until), now))
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

    /// Records that the lock was not acquired, and chooses the pause. `wake` is called for waiters that learn that a quorum
    /// of nodes answers.
    pub(super) fn refuse<W: LineWaiter, S>(
        &mut self,
        mut line: Option<&mut Line<W, H, G, S>>,
        waiter: &W,
        now: &Now,
        refusal: WaitRefusal,
        wake: impl FnMut(&W),
    ) -> Step {
        let (held_at, remaining, is_split) = match refusal {
            WaitRefusal::NoQuorum { is_transient } => {
                return self.wait_in_outage(line, waiter, now, is_transient);
            }
            WaitRefusal::Final => {
                record_quorum(line, waiter, wake);
                return Step::Fail(Failure::Refused);
            }
            WaitRefusal::Held { key, remaining, is_split } => (key, remaining, is_split),
            WaitRefusal::HeldHere { key, remaining } => (key, Some(remaining), false),
        };
        self.waiting_since.get_or_insert(now.at);
        self.outage = None;
        record_quorum(line.as_deref_mut(), waiter, wake);
        if self.is_over(now) {
            return Step::Fail(Failure::Refused);
        }
        let (Some(at), Some(line)) = (self.at, line) else {
            self.moved = Some(now.at).filter(|_| self.terms.has_several_keys);
            return Step::Join(held_at, AfterJoin::EndOutage);
        };
        if let WaitRefusal::HeldHere { remaining, .. } = refusal {
            // The release of this attempt is published, so the waiter does not listen.
            self.behind_readers_until = Some(now.at + now.poll_pause(remaining));
            self.stay_first(line, waiter, WaiterState::Called);
            return Step::Look;
        }
        let question = match mem::replace(&mut self.state, Activity::Looks) {
            Activity::Asks(question) => question,
            _ => Question { begun: now.at, heard: None },
        };
        if !self.stay_first(line, waiter, WaiterState::Refused) {
            return Step::Look;
        }
        let present = line.signal(self.terms.mode);
        let is_subscribed = question
            .heard
            .as_ref()
            .zip(present)
            .is_some_and(|((heard, _), present)| heard.is(present));
        if is_split && is_subscribed {
            // The other callers got the remaining votes. All of them release their votes, and each
            // release wakes all waiters at once. A waiter that asked again at each wake-up would meet
            // the same callers again and again, so it pauses for a random time instead.
            let pause = self.backoff.pause(now);
            let pause = self.patience.limit(pause, now);
            return self.sleep_for(Pause::Split(question), pause, now);
        }
        if held_at != at && self.terms.has_several_keys {
            return self.go_on_to(held_at, now);
        }
        if remaining.is_some() {
            self.backoff = Backoff::new();
        }
        match remaining {
            // A release that was published before the subscription was missed: ask once more.
            _ if !is_subscribed => self.sleep_for(Pause::Subscribe, self.terms.node_timeout, now),
            Some(remaining) => {
                self.sleep_for(Pause::Release(question), now.poll_pause(remaining), now)
            }
            None if self.skips_lookup => {
                self.sleep_for(Pause::Release(question), now.wake_retry_delay(), now)
            }
            None => {
                let pause = self.backoff.pause(now);
                // A single node, whose votes are not split, does not know the rest of the lease.
                let is_single = self.terms.nodes == 1;
                let why = if is_single { Pause::Release } else { Pause::Split };
                self.sleep_for(why(question), pause, now)
            }
        }
    }

    /// Goes on to the line of another key, for which the nodes have refused the lock.
    fn go_on_to(&mut self, key: usize, now: &Now) -> Step {
        let since = self.moved.max(self.not_before);
        let was_short = since.is_some_and(|since| now.at < since + SHORT_WAIT);
        self.moved = Some(now.at);
        if was_short && self.terms.nodes > 1 {
            // Nodes that disagree name one key and then another. Without a pause, the caller could ask
            // them again and again without ever waiting for a holder.
            self.not_before = Some(now.at + now.between(SHORT_WAIT / 2, SHORT_WAIT));
        }
        Step::Join(key, AfterJoin::Look)
    }

    /// Records that no quorum of nodes has answered, and chooses the pause.
    ///
    /// Only a caller that waited before the outage began keeps its place for the grace. A new caller fails within one
    /// round. A caller that waits for ever waits for the end of the outage, whenever it has begun.
    fn wait_in_outage<W: LineWaiter, S>(
        &mut self,
        line: Option<&mut Line<W, H, G, S>>,
        waiter: &W,
        now: &Now,
        is_transient: bool,
    ) -> Step {
        let begun = match self.state {
            Activity::Asks(Question { begun, .. }) | Activity::Takes(begun) => begun,
            Activity::Looks | Activity::Sleeps(_) => now.at,
        };
        let is_endless = self.terms.is_endless && is_transient;
        if is_endless && self.at.is_none() {
            return Step::Join(0, AfterJoin::EvaluateRefusal);
        }
        self.state = Activity::Looks;
        let Some(line) = line else { return Step::Fail(Failure::Refused) };
        let since = line.record_outage(begun);
        let waited_before = self.waiting_since.is_some_and(|waiting| waiting <= since);
        if !(is_endless || waited_before && is_transient) {
            return Step::Fail(Failure::Refused);
        }
        self.skips_lookup = false;
        let grace = since + self.terms.outage_grace;
        let until = self.terms.deadline.map_or(grace, |deadline| deadline.min(grace));
        if !self.stay_first(line, waiter, WaiterState::Refused) {
            return Step::Look;
        }
        let reconnects = is_endless && self.outage.is_none();
        let new_outage = || Outage { since: None, backoff: Backoff::new() };
        let outage = self.outage.get_or_insert_with(new_outage);
        outage.since = outage.since.or(Some(now.at).filter(|_| is_endless));
        let pause = outage.backoff.pause(now);
        self.state = Activity::Sleeps(Pause::Outage { pause, reconnects });
        Step::Sleep((!is_endless).then_some(until))
    }

    /// Sets the state of the first waiter. Every other waiter waits in its place again. Returns whether the waiter is the
    /// first.
    fn stay_first<W: LineWaiter, S>(
        &mut self,
        line: &mut Line<W, H, G, S>,
        waiter: &W,
        state: WaiterState,
    ) -> bool {
        self.state = Activity::Looks;
        let Some(is_first) = line.set_if_first(waiter, state) else { return false };
        if !is_first {
            self.start_anew();
        }
        is_first
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
            Pause::Queue | Pause::Holder(_) | Pause::Yield => return Step::Look,
        };
        if has_passed {
            self.patience.record_release();
        }
        // A published release wakes one waiter per process, and only one of them gets the lock, perhaps
        // for a short time. After a wake-up, a refused waiter therefore skips the lookup of the TTL, to
        // save the server a round trip. Not with several nodes: their refusal may be a split vote, whose
        // end is not published.
        self.skips_lookup = wake == Wake::Release && self.terms.nodes == 1;
        // A waiter before this one asks now.
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
