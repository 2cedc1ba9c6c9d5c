//! The worlds of the model, and the possible steps in them.

use std::time::Duration;

use smallvec::SmallVec;
use stateright::{Model, Property};

use super::claim::{Claim, situations};
use super::machine::Pause;
use super::state::{Caller, Held, KeyLine, Left, Phase, State, Who};
use super::step::{Action, LEASE, Reason};
use super::{Instant, Mode};
use crate::check::{self, Found};

/// Something that the surroundings owe to the machine and the line. "If broken" says how a model breaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A waiter that the line wakes looks at the line. If broken: the wake-up is lost.
    Wake,
    /// A waiter knows when its caller has come. If broken: a later caller says that it has come earlier.
    KeepOrder,
    /// A holder ends its holding before its lock is handed over. If broken: it goes on.
    EndBeforeHandOver,
    /// A dropped future leaves its line. If broken: its place stays.
    Leave,
    /// The holders of a lock that readers share are counted. If broken: a reader joins a lock, and is not counted.
    CountHolders,
    /// A new reader joins the line. If broken: it asks the nodes at once.
    Queue,
    /// The waiters of a key share an outage. If broken: each failed attempt begins another one.
    ShareTheOutage,
    /// The grant of a lock ends an outage. If broken: each caller that comes goes on to ask before it joins the line.
    EndTheOutage,
}

/// Callers of one process, and the events that may happen to them.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// The name of the world in the output.
    pub name: &'static str,
    /// Which callers are readers.
    pub readers: &'static [bool],
    /// Whether readers join the lock of another one.
    pub joins: bool,
    /// The number of nodes.
    pub nodes: usize,
    /// The caller that waits for ever, if there is one.
    pub endless: Option<usize>,
    /// How long the others wait.
    pub wait_time: Option<Duration>,
    /// How many futures are dropped.
    pub drops: u8,
    /// How many outages there are.
    pub outages: u8,
    /// How often another process has the lock.
    pub others: u8,
    /// How often a writer of another process waits for the readers of this one.
    pub marks: u8,
    /// How often a caller comes again.
    pub agains: u8,
    /// The reader with a longer lease, which joins no other one.
    pub long: Option<usize>,
    /// How many votes are split.
    pub splits: u8,
    /// How often a lock is lost, or all nodes forget.
    pub losses: u8,
    /// Whether the manager is shut down.
    pub shutdowns: u8,
    /// The end of the model.
    pub ends_after: Duration,
    /// The rule that is broken.
    pub broken: Option<Rule>,
}

impl World {
    /// Callers that wait without a limit, and nothing that happens to them.
    pub const CALM: Self = Self {
        name: "",
        readers: &[],
        joins: false,
        nodes: 1,
        endless: None,
        wait_time: None,
        drops: 0,
        outages: 0,
        others: 0,
        marks: 0,
        agains: 0,
        long: None,
        splits: 0,
        losses: 0,
        shutdowns: 0,
        ends_after: Duration::from_millis(310),
        broken: None,
    };

    pub(super) fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }
}

/// The model of one world.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) world: World,
    pub(super) claim: Option<Claim>,
}

/// Checks that every claim holds.
///
/// # Panics
///
/// If a claim is broken, with the steps that break it. If a situation never occurs that must occur in such a world.
pub fn holds(world: World) {
    let found = Found::by(Waiting { world, claim: None });
    found.expect_kept(world.name, "all rules are kept: all claims hold");
}

/// Checks that `claim` is broken while `rule` is broken, and prints the steps that break it.
///
/// # Panics
///
/// If the checker finds no such steps.
pub fn needs(world: World, rule: Rule, claim: Claim) {
    let world = World { broken: Some(rule), ..world };
    let found = Found::by(Waiting { world, claim: Some(claim) });
    found.expect_broken(world.name, &format!("without {rule:?}"), claim.name());
}

/// Walks through a world whose states are too many to visit all: each choice picks one of the possible steps. Returns the
/// number of steps.
///
/// # Errors
///
/// Returns the name of a broken claim, and the steps that break it.
pub fn walk(world: World, choices: &[u16]) -> Result<usize, (&'static str, Vec<String>)> {
    let claims = Claim::ALL.map(Claim::property);
    check::walk(&Waiting { world, claim: None }, &claims, choices)
}

impl Model for Waiting {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let World { readers, joins, long, drops, outages, .. } = self.world;
        let World { others, marks, agains, splits, losses, shutdowns, .. } = self.world;
        let caller = |(caller, is_reader): (usize, &bool)| Caller {
            who: Who {
                caller,
                since: Instant::default(),
                mode: if *is_reader { Mode::Shared } else { Mode::Exclusive },
                joins: (*is_reader && joins)
                    .then(|| if long == Some(caller) { 2 * LEASE } else { LEASE }),
            },
            came: 0,
            excused: 0,
            phase: Phase::Absent,
            is_woken: false,
            handed_over: None,
            has_mark: false,
            overtaken: 0,
            asked: Instant::default(),
            has_followed: false,
            questions: 0,
        };
        vec![State {
            now: Instant::default(),
            line: KeyLine::default(),
            callers: readers.iter().enumerate().map(caller).collect(),
            granted: SmallVec::new(),
            are_up: true,
            noticed: None,
            is_closed: false,
            published: 0,
            signal: None,
            arrivals: 0,
            other_waits: false,
            was_refused: false,
            alone: None,
            broken: SmallVec::new(),
            left: Left { drops, outages, others, marks, agains, splits, losses, shutdowns },
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for caller in 0..state.callers.len() {
            state.actions_of(caller, actions);
        }
        let other = state.granted.iter().any(is_other);
        if state.left.others > 0 && state.are_up && state.granted.is_empty() {
            actions.push(Action::OtherAcquires);
        }
        if other {
            actions.push(Action::OtherReleases);
        }
        if state.other_waits {
            actions.push(Action::OtherGivesUp);
        } else if state.left.marks > 0 && state.are_up && state.granted.iter().any(is_shared) {
            actions.push(Action::OtherMarks);
        }
        if state.left.outages > 0 && state.are_up {
            actions.push(Action::Fail);
        }
        if !state.are_up {
            actions.push(Action::Recover);
        }
        if state.left.losses > 0 && !state.granted.is_empty() {
            actions.push(Action::Forget);
        }
        if state.left.shutdowns > 0 {
            actions.push(Action::Close);
        }
        if state.next_timer().is_some() {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let (mut state, world) = (last.clone(), &self.world);
        match action {
            Action::Come(caller) => state.come(caller, world),
            Action::Return(caller) => {
                state.left.agains -= 1;
                state.forget(caller);
                state.come(caller, world);
            }
            Action::Do(caller) => state.do_step(caller, world),
            Action::Answer(caller) => state.answer(caller, false, world),
            Action::Split(caller) => {
                state.left.splits -= 1;
                state.answer(caller, true, world);
            }
            Action::Lose(caller) => {
                state.left.losses -= 1;
                state.lose(caller);
            }
            Action::Wake(caller, reason) => state.wake(caller, reason),
            Action::Release(caller) => state.end_holding(caller, world),
            Action::Delete(caller) => {
                if let Phase::Releases(held) = state.callers[caller].phase {
                    state.callers[caller].phase = Phase::Gone;
                    state.delete(held, world);
                }
            }
            Action::Drop(caller) => {
                state.left.drops -= 1;
                state.leave(caller, world);
            }
            Action::OtherAcquires => {
                state.left.others -= 1;
                let until = state.now + LEASE;
                let (id, token) = (usize::MAX, usize::MAX);
                let mode = Mode::Exclusive;
                let open_since = None;
                let lease = LEASE;
                let held = Held { id, token, mode, until, hand_overs: 0, lease, open_since };
                state.granted.push(held);
            }
            Action::OtherMarks => {
                state.left.marks -= 1;
                state.other_waits = true;
            }
            Action::OtherGivesUp => state.other_waits = false,
            Action::OtherReleases => {
                state.granted.retain(|held| !is_other(held));
                state.publish();
            }
            Action::Fail => {
                state.left.outages -= 1;
                state.are_up = false;
            }
            Action::Recover => {
                state.are_up = true;
                state.noticed = None;
            }
            Action::Forget => {
                state.left.losses -= 1;
                state.granted.clear();
            }
            Action::Close => {
                state.left.shutdowns -= 1;
                state.close(world);
            }
            Action::Tick => {
                state.now = state.next_timer()?;
                let now = state.now;
                state.granted.retain(|held| held.until > now);
                state.callers.iter_mut().for_each(|caller| caller.questions = 0);
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        match self.claim {
            Some(claim) => vec![claim.property()],
            None => {
                Claim::ALL.into_iter().map(Claim::property).chain(situations(&self.world)).collect()
            }
        }
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.now <= Instant::default() + self.world.ends_after
    }
}

fn is_shared(held: &Held) -> bool {
    held.mode.is_shared()
}

fn is_other(held: &Held) -> bool {
    held.token == usize::MAX
}

impl State {
    fn actions_of(&self, caller: usize, actions: &mut Vec<Action>) {
        let one = &self.callers[caller];
        match &one.phase {
            Phase::Absent => {
                // Callers are alike, unless they are readers and writers.
                let is_alike = |other: &&Caller| {
                    matches!(other.phase, Phase::Absent) && other.who.mode == one.who.mode
                };
                let first = self.callers.iter().find(is_alike);
                if first.is_some_and(|first| first.who.caller == caller) {
                    actions.push(Action::Come(caller));
                }
            }
            Phase::Steps(..) | Phase::Granted(..) => actions.push(Action::Do(caller)),
            Phase::Asks(_) => {
                actions.push(Action::Answer(caller));
                if self.left.splits > 0 && self.are_up {
                    actions.push(Action::Split(caller));
                }
            }
            Phase::Sleeps(..) => {
                let reasons = self.reasons(caller).into_iter();
                actions.extend(reasons.map(|reason| Action::Wake(caller, reason)));
            }
            Phase::Holds(_) => actions.push(Action::Release(caller)),
            Phase::Releases(_) => actions.push(Action::Delete(caller)),
            Phase::Gone => {
                // Its lock may go on with another caller.
                let has = |one: &Caller| match one.phase {
                    Phase::Granted(_, held) | Phase::Holds(held) | Phase::Releases(held) => {
                        held.token == caller
                    }
                    _ => one.handed_over.is_some_and(|held| held.token == caller),
                };
                let mut holders = self.granted.iter().chain(self.line.holders());
                let is_gone =
                    !holders.any(|held| held.token == caller) && !self.callers.iter().any(has);
                if self.left.agains > 0 && is_gone && !self.is_closed {
                    actions.push(Action::Return(caller));
                }
            }
        }
        if self.left.losses > 0 && one.handed_over.is_some() {
            actions.push(Action::Lose(caller));
        }
        if self.left.drops > 0 && one.phase.waits() {
            actions.push(Action::Drop(caller));
        }
    }

    /// Returns the reasons for which a sleeping caller wakes now. As `Place::sleep`.
    pub(super) fn reasons(&self, caller: usize) -> Vec<Reason> {
        let one = &self.callers[caller];
        let mut reasons = Vec::new();
        let Phase::Sleeps(machine, since, until) = &one.phase else { return reasons };
        let Some(pause) = machine.pause() else { return reasons };
        let is_notified = match pause {
            Pause::Yield | Pause::Split(_) | Pause::Subscribe => {
                one.handed_over.is_some() || self.is_closed
            }
            _ => one.is_woken,
        };
        let is_over = until.is_some_and(|until| until <= self.now);
        if is_notified && !(is_over && matches!(pause, Pause::Outage { .. })) {
            reasons.push(Reason::Notified);
        }
        if is_over && !matches!(pause, Pause::Subscribe) {
            reasons.push(Reason::Timer);
        }
        match pause {
            // A holder that has released its lock is not lost.
            Pause::Holder(held) if self.is_lost(held) => reasons.push(Reason::HolderEnded),
            Pause::Release(question) => {
                let heard = question.heard.as_ref();
                if heard.is_some_and(|(_, published)| self.published > *published) {
                    reasons.push(Reason::Release);
                }
            }
            Pause::Subscribe => reasons.push(Reason::Subscribed),
            Pause::Outage { pause, .. } if self.are_up && *since + *pause <= self.now => {
                reasons.push(Reason::QuorumIsBack);
            }
            _ => {}
        }
        reasons
    }

    fn end_holding(&mut self, caller: usize, world: &World) {
        let Phase::Holds(held) = self.callers[caller].phase else { return };
        self.callers[caller].phase = Phase::Releases(held);
        if self.release(held, world) {
            self.callers[caller].phase =
                if world.keeps(Rule::EndBeforeHandOver) { Phase::Gone } else { Phase::Holds(held) };
        }
    }
}
