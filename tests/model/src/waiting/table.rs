//! The table of the steps of a waiter, from every state of the machine that a few events reach.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use super::line::WaiterState;
use super::machine::{
    AfterJoin, Failure, Fair, Machine, Pause, Sight, Step, Terms, WaitRefusal, Wake,
};
use super::pauses::Now;
use super::state::{Held, KeyLine, Signal, Who};
use super::{Instant, Mode};

/// A waiter in its line, and the step that it does next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Node {
    machine: Machine<Held, Signal>,
    line: KeyLine,
    who: Who,
    now: Instant,
    step: Step,
    was_handed_over: bool,
    is_closed: bool,
    /// How many events of the waiter, and of other callers, there may still be.
    left: u8,
    others: u8,
}

/// The steps in each state at each event.
type Rows = BTreeMap<(String, String), BTreeSet<String>>;

const SECOND: Duration = Duration::from_secs(1);
const FOREVER: Duration = Duration::from_secs(60);

/// Returns the table, as Markdown.
pub fn table() -> String {
    let (mut rows, mut seen) = (Rows::new(), HashSet::new());
    let mut next: Vec<_> = every_waiter().collect();
    while let Some(node) = next.pop() {
        if seen.insert(node.clone()) {
            node.events(&mut |name, mut after| {
                if let Some(name) = name {
                    let state = match node.step {
                        Step::Sleep(_) => format!("sleeps (`{}`)", node.pause()),
                        _ => node.state().to_owned(),
                    };
                    rows.entry((state, name)).or_default().insert(after.step_name());
                    after.left -= 1;
                }
                if after.left > 0 {
                    next.push(after);
                }
            });
        }
    }
    // Events with equal steps share a row.
    let mut events = BTreeMap::<_, Vec<_>>::new();
    for ((state, event), steps) in rows {
        let steps: Vec<_> = steps.into_iter().collect();
        events.entry((state, steps.join(", "))).or_default().push(event);
    }
    let mut table = "| state | event | step |\n|---|---|---|\n".to_owned();
    for ((state, steps), events) in events {
        let row = ["| ", &state, " | ", &events.join("; "), " | ", &steps, " |\n"];
        table += &row.concat();
    }
    table
}

fn every_waiter() -> impl Iterator<Item = Node> {
    let flags = [false, true];
    let all = [Mode::Exclusive, Mode::Shared].into_iter().flat_map(move |mode| {
        flags
            .into_iter()
            .flat_map(move |several| flags.map(move |endless| (mode, several, endless)))
    });
    all.flat_map(move |(mode, has_several_keys, is_endless)| {
        [(1, None), (3, None), (1, Some(SECOND))].map(move |(nodes, wait_time)| {
            let since = Instant::default();
            let terms = Terms {
                mode,
                has_several_keys,
                is_endless,
                since,
                deadline: wait_time.filter(|_| !is_endless).map(|time| since + time),
                nodes,
                has_turns: mode.is_shared(),
                node_timeout: SECOND,
                outage_grace: FOREVER,
            };
            Node {
                machine: Machine::new(terms),
                line: KeyLine::default(),
                who: Who { caller: 0, since, mode, joins: mode.is_shared().then_some(SECOND) },
                now: since,
                step: Step::Look,
                was_handed_over: false,
                is_closed: false,
                left: 6,
                others: 2,
            }
        })
    })
}

impl Node {
    fn state(&self) -> &'static str {
        match self.line.state(&self.who) {
            Some(WaiterState::Queued) => "`Queued`",
            Some(WaiterState::Called) => "`Called`",
            Some(WaiterState::Asking) => "`Asking`",
            Some(WaiterState::Refused) => "`Refused`",
            None if self.was_handed_over => "handed over",
            None if self.machine.at().is_some() => "taking",
            None => "in no line",
        }
    }

    fn step_name(&self) -> String {
        match self.step {
            Step::Look => "looks".to_owned(),
            Step::Ask => "asks".to_owned(),
            Step::Take => "takes the lock".to_owned(),
            Step::Join(_, AfterJoin::EvaluateRefusal) => "joins a line, and pauses".to_owned(),
            Step::Join(..) => "joins a line".to_owned(),
            Step::Sleep(_) => format!("sleeps (`{}`)", self.pause()),
            Step::Fail(Failure::TimedOut) => "fails: its `wait_time` is over".to_owned(),
            Step::Fail(Failure::NoConductor) => "no quorum".to_owned(),
            Step::Fail(Failure::Refused) => "fails".to_owned(),
        }
    }

    fn pause(&self) -> &'static str {
        self.machine.pause().map(Pause::name).unwrap_or_default()
    }

    fn at(&self) -> Now {
        Now { at: self.now, chance: || 0.0 }
    }

    /// Calls `f` with each event that may come now, and the state after it. An event without a name is none of the waiter.
    fn events(&self, f: &mut impl FnMut(Option<String>, Self)) {
        match self.step {
            Step::Look => self.looks(f),
            Step::Ask => self.answers(f),
            Step::Take => {
                let mut after = self.clone();
                after.was_handed_over = false;
                after.answers_while_it_takes(f);
            }
            Step::Join(key, then) => {
                let mut after = self.clone();
                after.machine.leave();
                // A lock that was handed over goes on.
                after.was_handed_over = false;
                after.line.remove(&after.who, |_| {});
                after.line.insert(&after.who, || ());
                after.machine.join(key, &self.at());
                after.step = Step::Look;
                if then == AfterJoin::EvaluateRefusal {
                    let refusal = WaitRefusal::NoQuorum { is_transient: true };
                    after.refuse(refusal);
                }
                f(None, after);
            }
            Step::Sleep(_) => self.wakes(f),
            Step::Fail(_) => {}
        }
        if self.others > 0 && !self.is_closed && !matches!(self.step, Step::Fail(_)) {
            self.other_events(f);
        }
    }

    fn looks(&self, f: &mut impl FnMut(Option<String>, Self)) {
        if self.machine.at().is_none() && self.line.is_idle() {
            // A caller of one key joins at once; one of several keys asks before.
            let mut after = self.clone();
            if after.machine.arrive(&mut after.line, 0, || true, self.now) {
                after.line.insert(&after.who, || ());
                f(None, after);
            }
        }
        let fairs = [Fair::First, Fair::Unknown, Fair::Behind(self.now), Fair::NoConductor];
        let is_closed = self.is_closed;
        for (is_closed, blocked_key) in [(is_closed, None), (is_closed, Some(1)), (true, None)] {
            let is_in_line = self.line.state(&self.who).is_some();
            for fair in fairs.into_iter().take(if is_in_line { 4 } else { 1 }) {
                let mut after = self.clone();
                let was_handed_over = self.was_handed_over;
                after.is_closed = is_closed;
                let sight = Sight { was_handed_over, is_closed, blocked_key };
                let line = after.machine.at().map(|_| &mut after.line);
                after.step = after.machine.look(line, &self.who, &self.at(), sight, || fair);
                f(Some("looks".to_owned()), after);
            }
        }
    }

    fn refuse(&mut self, refusal: WaitRefusal) {
        let now = self.at();
        let line = self.machine.at().map(|_| &mut self.line);
        self.step = self.machine.refuse(line, &self.who, &now, refusal, |_| {});
    }

    fn answers(&self, f: &mut impl FnMut(Option<String>, Self)) {
        let remaining = FOREVER;
        for (name, refusal) in [
            ("no quorum", WaitRefusal::NoQuorum { is_transient: true }),
            ("no quorum, for a reason that lasts", WaitRefusal::NoQuorum { is_transient: false }),
            ("refused", WaitRefusal::Held { key: 0, remaining: Some(remaining), is_split: false }),
            ("refused", WaitRefusal::Held { key: 0, remaining: None, is_split: false }),
            (
                "refused for another key",
                WaitRefusal::Held { key: 1, remaining: None, is_split: false },
            ),
            ("the votes are split", WaitRefusal::Held { key: 0, remaining: None, is_split: true }),
            ("granted beside a holder of its process", WaitRefusal::HeldHere { key: 0, remaining }),
            ("another error", WaitRefusal::Final),
        ] {
            // After a shutdown, each attempt fails.
            if !self.is_closed || refusal == WaitRefusal::Final {
                let mut after = self.clone();
                after.refuse(refusal);
                f(Some(name.to_owned()), after);
            }
        }
    }

    fn answers_while_it_takes(&self, f: &mut impl FnMut(Option<String>, Self)) {
        for refusal in [None, Some(WaitRefusal::NoQuorum { is_transient: true })] {
            let mut after = self.clone();
            after.line.insert_first(&self.who, || ());
            after.step = Step::Look;
            let name = match refusal {
                None => "the lock is lost",
                Some(refusal) => {
                    after.refuse(refusal);
                    "no quorum confirms its number"
                }
            };
            f(Some(name.to_owned()), after);
        }
    }

    fn wakes(&self, f: &mut impl FnMut(Option<String>, Self)) {
        let own = match self.machine.pause() {
            Some(Pause::Holder(_)) => Some(Wake::HolderEnded),
            Some(Pause::Release(_)) => Some(Wake::Release),
            Some(Pause::Subscribe) => Some(Wake::Subscribed),
            Some(Pause::Outage { .. }) => Some(Wake::QuorumIsBack),
            Some(Pause::Fair) => Some(Wake::FairQueue),
            _ => None,
        };
        for wake in [Wake::Notified, Wake::Timer].into_iter().chain(own) {
            let mut after = self.clone();
            if let (Wake::Timer, Step::Sleep(None)) = (wake, self.step) {
                continue;
            }
            if let (Wake::Timer, Step::Sleep(Some(until))) = (wake, self.step) {
                after.now = until.max(self.now);
            }
            if wake == Wake::Subscribed {
                let mode = self.who.mode;
                let signal = Signal { caller: 0, mode, in_effect: true, published: 0 };
                after.line.set_signal(signal);
            }
            let is_queued = self.line.is_queued(&self.who);
            after.step = after.machine.wake(wake, false, || is_queued);
            f(Some(format!("`{wake:?}`")), after);
        }
    }

    /// The events of other callers.
    fn other_events(&self, f: &mut impl FnMut(Option<String>, Self)) {
        let mut event = |change: fn(&mut Self) -> bool| {
            let mut after = self.clone();
            after.others -= 1;
            if change(&mut after) {
                f(None, after);
            }
        };
        event(|node| {
            let who = Who { caller: 1, ..node.who };
            let is_there = node.line.state(&who).is_some();
            if !is_there {
                node.line.insert_first(&who, || ());
            }
            !is_there
        });
        event(|node| node.line.remove(&Who { caller: 1, ..node.who }, |_| {}));
        event(|node| {
            let other = Who { caller: 2, ..node.who };
            let now = node.now;
            node.line.begin_question(&other, now);
            other.joins.is_some()
        });
        event(|node| {
            let until = node.now + FOREVER;
            let mode = Mode::Exclusive;
            let is_free = node.line.holders().is_empty();
            if is_free {
                let open_since = None;
                let lease = FOREVER;
                let held = Held { id: 1, token: 1, mode, until, hand_overs: 0, lease, open_since };
                node.line.add_holder(held);
            }
            is_free
        });
        event(|node| {
            let Some(held) = node.line.holders().first().copied() else { return false };
            let now = node.now;
            node.line.remove_holder(&held);
            node.line.fairness.record_release(None, false, || now);
            true
        });
        event(|node| {
            let Some(held) = node.line.holders().first().copied() else { return false };
            let pass = |_: &Who, _: &_| Some(Held { id: held.id + 1, ..held });
            match node.line.hand_over(&held, pass, |_| {}) {
                Some((next, _)) => {
                    node.was_handed_over = next.caller == 0;
                    next.caller == 0
                }
                None => true,
            }
        });
    }
}
