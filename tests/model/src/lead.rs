//! Leaders, as a fourth model: two processes that run `lead`, and a resource that both write to.
//!
//! Each process waits for the lock, works while its evidence of the lease lasts, and renews the lease. It begins again after a
//! loss, and resigns when its manager drains. The nodes are one store here: that a quorum of nodes is as good as one store
//! is the claim of the first model.
//!
//! A message takes any time. A leader stops its work one tick before the lease can end. A process may freeze at any moment, and then
//! its work may take a late step before the process notices its loss. No rule of the library prevents this step: the resource
//! refuses it by the fencing token.

use std::fmt;

use stateright::{Model, Property};

use crate::check::Found;

/// A rule of leaders. "If broken" says how a model breaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The work is stopped when the evidence of the lease ends. If broken: it goes on until a node denies a renewal.
    StopAtLoss,
    /// The evidence of a renewal counts from its sending. If broken: from its reply.
    EvidenceFromSending,
    /// The work is stopped before the lock is released. If broken: a leader that resigns releases the lock first.
    StopBeforeRelease,
    /// A leader that resigns releases its lock. If broken: the lease has to end.
    ReleaseAtResignation,
    /// A waiting process that drains gives its request up, and cleans up what the request may get. If broken: it leaves the
    /// request alone.
    CleanUpOfTheWait,
    /// A drain is noticed before a grant. If broken: a grant that comes at the same moment begins a term.
    DrainBeforeGrant,
    /// The resource refuses a step with a smaller token than that of an earlier step. If broken: it accepts each step.
    FencedSteps,
}

/// A property of every state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// At most one process works, apart from processes that were frozen and have not noticed it yet.
    OneWorks,
    /// The resource accepts no step of a leader after a step of a later leader.
    NoLateStep,
    /// When both leaders have resigned and all messages have arrived, no key is left.
    NoKeyLeft,
    /// No term begins after the drain.
    NoTermAfterDrain,
}

impl Claim {
    const ALL: [Self; 4] =
        [Self::OneWorks, Self::NoLateStep, Self::NoKeyLeft, Self::NoTermAfterDrain];

    fn name(self) -> &'static str {
        match self {
            Self::OneWorks => "at most one leader works",
            Self::NoLateStep => "no late step of a former leader is accepted",
            Self::NoKeyLeft => "leaders that have resigned leave no key",
            Self::NoTermAfterDrain => "no term begins after the drain",
        }
    }
}

/// Two processes that lead.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Whether processes freeze.
    pub freezes: bool,
}

impl Check {
    /// Checks that every claim holds, and that leaders work, are lost, follow each other and resign.
    ///
    /// # Panics
    ///
    /// If a claim is broken, with the steps that break it. If one of these situations never occurs.
    pub fn holds(self) {
        let model = Leaders { check: self, broken: None, claim: None };
        Found::by(model).expect_kept(self.name(), "all rules are kept: all claims hold");
    }

    /// Checks that `claim` is broken while `rule` is broken, and prints the steps that break it.
    ///
    /// # Panics
    ///
    /// If the checker finds no such steps.
    pub fn needs(self, rule: Rule, claim: Claim) {
        let model = Leaders { check: self, broken: Some(rule), claim: Some(claim) };
        Found::by(model).expect_broken(self.name(), &format!("without {rule:?}"), claim.name());
    }

    fn name(self) -> &'static str {
        if self.freezes { "leaders that freeze" } else { "leaders" }
    }
}

#[derive(Debug, Clone)]
struct Leaders {
    check: Check,
    broken: Option<Rule>,
    claim: Option<Claim>,
}

const PROCESSES: usize = 2;
/// The lease in ticks.
const LEASE: u8 = 3;
/// The ticks of a lease for which a leader works.
const VALID: u8 = LEASE - 1;
/// The highest token that the checker follows.
const HIGHEST_TOKEN: u8 = 3;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Waits,
    Works,
    Resigned,
}

/// A request for the lock, or for its renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Request {
    /// The ticks since its sending.
    age: u8,
    reply: Option<Reply>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reply {
    Granted(u8),
    Denied,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent state of the process")]
struct Process {
    phase: Phase,
    token: u8,
    /// The ticks for which the leader has evidence of its lease.
    valid: u8,
    acquisition: Option<Request>,
    /// The process has given the acquisition up. Its clean-up arrives behind it.
    is_abandoned: bool,
    renewal: Option<Request>,
    /// The token of a release on its way.
    release: Option<u8>,
    drains: bool,
    is_frozen: bool,
    /// The process was frozen, and has not compared its clock with its evidence since then.
    is_late: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    processes: [Process; PROCESSES],
    /// The holder on the nodes, and its token.
    key: Option<(usize, u8)>,
    /// The ticks until the key ends.
    left: u8,
    highest_token: u8,
    /// The greatest token of a step that the resource has accepted.
    written: u8,
    late_step: bool,
    late_term: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Ask(usize),
    Acquire(usize),
    Grant(usize),
    Renew(usize),
    Extend(usize),
    Answer(usize),
    Release(usize),
    Step(usize),
    Lose(usize),
    Drain(usize),
    Resign(usize),
    Freeze(usize),
    Thaw(usize),
    Tick,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(process) => write!(f, "process {process} asks for the lock"),
            Self::Acquire(process) => write!(f, "the nodes execute the SET of process {process}"),
            Self::Grant(process) => write!(f, "process {process} reads its grant"),
            Self::Renew(process) => write!(f, "process {process} sends a renewal"),
            Self::Extend(process) => {
                write!(f, "the nodes execute the renewal of process {process}")
            }
            Self::Answer(process) => write!(f, "process {process} reads the answer to its renewal"),
            Self::Release(process) => write!(f, "the nodes execute a release of process {process}"),
            Self::Step(process) => write!(f, "the work of process {process} takes a step"),
            Self::Lose(process) => write!(f, "process {process} stops its work: the lock is lost"),
            Self::Drain(process) => write!(f, "process {process} begins its drain"),
            Self::Resign(process) => write!(f, "process {process} resigns"),
            Self::Freeze(process) => write!(f, "process {process} freezes"),
            Self::Thaw(process) => write!(f, "process {process} runs again"),
            Self::Tick => write!(f, "a tick"),
        }
    }
}

impl Leaders {
    fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    fn actions_of(&self, state: &State, number: usize, actions: &mut Vec<Action>) {
        let process = &state.processes[number];
        if process.acquisition.is_some_and(|request| request.reply.is_none()) && state.key.is_none()
        {
            actions.push(Action::Acquire(number));
        }
        if process.renewal.is_some_and(|request| request.reply.is_none()) {
            actions.push(Action::Extend(number));
        }
        if process.release.is_some() {
            actions.push(Action::Release(number));
        }
        if process.is_frozen {
            actions.push(Action::Thaw(number));
            return;
        }
        if self.check.freezes && process.phase == Phase::Works && !process.is_late {
            actions.push(Action::Freeze(number));
        }
        if !process.drains {
            actions.push(Action::Drain(number));
        }
        match process.phase {
            Phase::Waits => {
                let is_granted = process.acquisition.is_some_and(|request| request.reply.is_some());
                let notices = process.drains && self.keeps(Rule::DrainBeforeGrant);
                if is_granted && !notices {
                    actions.push(Action::Grant(number));
                }
                if process.acquisition.is_none() && process.release.is_none() && !process.drains {
                    actions.push(Action::Ask(number));
                }
            }
            Phase::Works => {
                actions.push(Action::Step(number));
                match process.renewal {
                    None => actions.push(Action::Renew(number)),
                    Some(Request { reply: Some(_), .. }) => actions.push(Action::Answer(number)),
                    Some(_) => {}
                }
                if process.valid == 0 && self.keeps(Rule::StopAtLoss) {
                    actions.push(Action::Lose(number));
                }
            }
            Phase::Resigned => {
                let is_released_first = process.token > 0;
                if is_released_first {
                    actions.extend([Action::Step(number), Action::Lose(number)]);
                }
            }
        }
        if process.drains && process.phase != Phase::Resigned {
            actions.push(Action::Resign(number));
        }
    }

    fn resign(&self, process: &mut Process) {
        let works = process.phase == Phase::Works;
        process.phase = Phase::Resigned;
        process.renewal = None;
        if works {
            if self.keeps(Rule::ReleaseAtResignation) {
                process.release = Some(process.token);
            }
            if self.keeps(Rule::StopBeforeRelease) {
                process.token = 0;
            }
        } else if self.keeps(Rule::CleanUpOfTheWait) {
            process.is_abandoned = true;
            process.clean_up();
        }
    }

    fn claim(claim: Claim) -> Property<Self> {
        let condition = match claim {
            Claim::OneWorks => |_: &Self, state: &State| {
                state.processes.iter().filter(|process| process.works()).count() <= 1
            },
            Claim::NoLateStep => |_: &Self, state: &State| !state.late_step,
            Claim::NoKeyLeft => |_: &Self, state: &State| !state.is_over() || state.key.is_none(),
            Claim::NoTermAfterDrain => |_: &Self, state: &State| !state.late_term,
        };
        Property::always(claim.name(), condition)
    }
}

impl Process {
    fn works(&self) -> bool {
        // Work that goes on behind the release keeps its token.
        self.token > 0 && !self.is_frozen && !self.is_late
    }

    fn stop(&mut self) {
        self.token = 0;
        self.renewal = None;
        self.is_late = false;
    }

    /// Sends the release of the lock that an abandoned acquisition has got.
    fn clean_up(&mut self) {
        if self.is_abandoned
            && let Some(Request { reply: Some(Reply::Granted(token)), .. }) = self.acquisition
        {
            self.acquisition = None;
            self.release = Some(token);
        }
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.processes.iter().all(|process| {
            let is_quiet = process.release.is_none() && process.renewal.is_none();
            process.phase == Phase::Resigned && process.token == 0 && is_quiet
                // A clean-up behind an acquisition that a node refuses deletes nothing.
                && (process.acquisition.is_none() || self.key.is_some())
        })
    }

    fn tick(&mut self) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.key = None;
        }
        for process in &mut self.processes {
            process.valid = process.valid.saturating_sub(1);
            let requests = [&mut process.acquisition, &mut process.renewal];
            for request in requests.into_iter().flatten() {
                request.age = (request.age + 1).min(LEASE);
            }
        }
    }
}

impl Model for Leaders {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for number in 0..PROCESSES {
            self.actions_of(state, number, actions);
        }
        let must_stop = |process: &Process| {
            process.phase == Phase::Works && process.valid == 0 && !process.is_frozen
        };
        if !self.keeps(Rule::StopAtLoss) || !state.processes.iter().any(must_stop) {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        let State { processes, key, left, highest_token, .. } = &mut state;
        match action {
            Action::Ask(number) => {
                processes[number].acquisition = Some(Request { age: 0, reply: None });
            }
            Action::Acquire(number) => {
                *highest_token += 1;
                (*key, *left) = (Some((number, *highest_token)), LEASE);
                let process = &mut processes[number];
                process.acquisition.as_mut()?.reply = Some(Reply::Granted(*highest_token));
                process.clean_up();
            }
            Action::Grant(number) => {
                let process = &mut processes[number];
                let Request { age, reply: Some(Reply::Granted(token)) } =
                    process.acquisition.take()?
                else {
                    return None;
                };
                process.valid = VALID.saturating_sub(age);
                if process.valid == 0 {
                    process.release = Some(token);
                } else {
                    (process.phase, process.token) = (Phase::Works, token);
                    state.late_term |= process.drains;
                }
            }
            Action::Renew(number) => {
                processes[number].renewal = Some(Request { age: 0, reply: None });
            }
            Action::Extend(number) => {
                let process = &mut processes[number];
                let is_own = *key == Some((number, process.token));
                if is_own {
                    *left = LEASE;
                }
                let reply = if is_own { Reply::Granted(process.token) } else { Reply::Denied };
                process.renewal.as_mut()?.reply = Some(reply);
            }
            Action::Answer(number) => {
                let process = &mut processes[number];
                let Request { age, reply } = process.renewal.take()?;
                if reply == Some(Reply::Denied) {
                    process.phase = Phase::Waits;
                    process.stop();
                } else {
                    let age = if self.keeps(Rule::EvidenceFromSending) { age } else { 0 };
                    process.valid = process.valid.max(VALID.saturating_sub(age));
                    process.is_late &= process.valid == 0;
                }
            }
            Action::Release(number) => {
                let token = processes[number].release.take()?;
                *key = key.filter(|key| *key != (number, token));
            }
            Action::Step(number) => {
                let token = processes[number].token;
                let is_late = token < state.written;
                state.late_step |= is_late && !self.keeps(Rule::FencedSteps);
                state.written = state.written.max(token);
            }
            Action::Lose(number) => {
                let process = &mut processes[number];
                if process.phase == Phase::Works {
                    process.phase = Phase::Waits;
                    process.release = Some(process.token);
                }
                process.stop();
            }
            Action::Drain(number) => processes[number].drains = true,
            Action::Resign(number) => {
                processes[number].is_late = false;
                self.resign(&mut processes[number]);
            }
            Action::Freeze(number) => processes[number].is_frozen = true,
            Action::Thaw(number) => {
                processes[number].is_frozen = false;
                processes[number].is_late = true;
            }
            Action::Tick => state.tick(),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        if let Some(claim) = self.claim {
            return vec![Self::claim(claim)];
        }
        let mut all: Vec<_> = Claim::ALL.into_iter().map(Self::claim).collect();
        all.push(Property::sometimes("the next process leads", |_, state: &State| {
            state.written > 1 && state.processes.iter().any(Process::works)
        }));
        all.push(Property::sometimes("both have resigned", |_, state: &State| {
            state.written > 0 && state.is_over()
        }));
        if self.check.freezes {
            all.push(Property::sometimes("a late step is refused", |_, state: &State| {
                state.processes.iter().any(|process| {
                    process.is_late && process.token > 0 && process.token < state.written
                })
            }));
        }
        all
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.highest_token <= HIGHEST_TOKEN
    }
}
