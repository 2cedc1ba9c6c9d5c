//! The drain of a manager, as a fifth model: four callers in one process, and the caller of `drain`.
//!
//! The first caller locks the first key, and the second one inside of it. Two others lock one of these keys each, and the last
//! one waits for a key that another process has, and does not release. A drain begins at any time. Callers that hold no lock
//! are refused, and the holder is served. A sleeping caller is woken by a change that comes after it has registered, or it
//! sleeps for ever.

use std::fmt;

use stateright::{Model, Property};

use crate::check::Found;

/// A rule of drains. "If broken" says how a model breaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A caller that holds a lock of the manager is served. If broken: it is refused.
    ServeHolders,
    /// A caller looks at the drain before it takes a lock. If broken: it looks only before it sleeps.
    RefuseOthers,
    /// A released lock is not handed over. If broken: it is handed to the caller that waits, which takes it without a look.
    NoHandOver,
    /// When the drain has begun, it wakes all sleeping callers. If broken: only a release wakes them.
    WakeAll,
    /// A caller registers, and then looks. If broken: it looks, and then registers.
    RegisterFirst,
    /// The end of a lock wakes the caller of `drain`. If broken: the drain looks once.
    EndsWakeTheDrain,
}

/// A property of every state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// No caller without a lock gets one after the drain has begun.
    NoNewHolder,
    /// No holder is refused.
    HoldersAreServed,
    /// When nothing more happens, each caller has its answer, `drain` has returned, and no key is left.
    AllAreAnswered,
}

impl Claim {
    const ALL: [Self; 3] = [Self::NoNewHolder, Self::HoldersAreServed, Self::AllAreAnswered];

    fn name(self) -> &'static str {
        match self {
            Self::NoNewHolder => "no caller without a lock gets one after the drain has begun",
            Self::HoldersAreServed => "no holder is refused",
            Self::AllAreAnswered => "all callers are answered, and no key is left",
        }
    }
}

/// Checks that every claim holds, and that holders are served during a drain.
///
/// # Panics
///
/// If a claim is broken, with the steps that break it. If one of these situations never occurs.
pub fn holds() {
    let model = Drain { broken: None, claim: None };
    Found::by(model).expect_kept(NAME, "all rules are kept: all claims hold");
}

/// Checks that `claim` is broken while `rule` is broken, and prints the steps that break it.
///
/// # Panics
///
/// If the checker finds no such steps.
pub fn needs(rule: Rule, claim: Claim) {
    let model = Drain { broken: Some(rule), claim: Some(claim) };
    Found::by(model).expect_broken(NAME, &format!("without {rule:?}"), claim.name());
}

const NAME: &str = "a drain";

/// The keys of each caller, in the order of its requests.
const CALLERS: [&[usize]; 4] = [&[0, 1], &[1], &[0], &[2]];
/// Which keys are held in the beginning: another process has the last one.
const HELD: [bool; 3] = [false, false, true];

#[derive(Debug, Clone)]
struct Drain {
    broken: Option<Rule>,
    claim: Option<Claim>,
}

/// The state of a caller that waits, or of the caller of `drain`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
enum Wait {
    #[default]
    Registers,
    Looks,
    /// With [`Rule::RegisterFirst`] broken: the caller has looked, and registers only now.
    HasLooked,
    Sleeps,
    Over,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
struct Caller {
    wait: Wait,
    /// The number of its keys that the caller holds.
    holds: usize,
    was_refused: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent event")]
struct State {
    callers: [Caller; CALLERS.len()],
    held: [bool; HELD.len()],
    has_begun: bool,
    /// The drain has woken the callers that slept when it began.
    has_woken: bool,
    /// The caller of `drain`, from its beginning on.
    drain: Wait,
    new_holder: bool,
    refused_holder: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Register(usize),
    Look(usize),
    Release(usize),
    Begin,
    Wake,
    RegisterDrain,
    LookOfDrain,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(caller) => write!(f, "caller {caller} registers"),
            Self::Look(caller) => write!(f, "caller {caller} looks at the drain and at its key"),
            Self::Release(caller) => write!(f, "caller {caller} releases its locks"),
            Self::Begin => write!(f, "the drain begins"),
            Self::Wake => write!(f, "the drain wakes all sleeping callers"),
            Self::RegisterDrain => write!(f, "the caller of the drain registers"),
            Self::LookOfDrain => write!(f, "the caller of the drain looks for locks"),
        }
    }
}

impl Drain {
    fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    fn first(&self) -> Wait {
        if self.keeps(Rule::RegisterFirst) { Wait::Registers } else { Wait::Looks }
    }

    fn look(&self, state: &mut State, caller: usize) {
        let one = &mut state.callers[caller];
        let is_holder = one.holds > 0;
        let key = CALLERS[caller][one.holds];
        let is_free = !state.held[key];
        let looks_at_drain = self.keeps(Rule::RefuseOthers) || !is_free;
        let may_be_refused = !is_holder || !self.keeps(Rule::ServeHolders);
        if state.has_begun && looks_at_drain && may_be_refused {
            (one.was_refused, one.wait) = (true, Wait::Over);
            state.refused_holder |= is_holder;
        } else if is_free {
            self.grant(state, caller);
        } else {
            one.wait = if self.keeps(Rule::RegisterFirst) { Wait::Sleeps } else { Wait::HasLooked };
        }
    }

    fn grant(&self, state: &mut State, caller: usize) {
        let one = &mut state.callers[caller];
        state.new_holder |= state.has_begun && one.holds == 0;
        state.held[CALLERS[caller][one.holds]] = true;
        one.holds += 1;
        one.wait = if one.holds < CALLERS[caller].len() { self.first() } else { Wait::Over };
    }

    fn release(&self, state: &mut State, caller: usize) {
        let one = &mut state.callers[caller];
        let keys = &CALLERS[caller][..one.holds];
        one.holds = 0;
        for key in keys {
            state.held[*key] = false;
            let waits = |other: &usize| {
                let other_one = &state.callers[*other];
                other_one.wait == Wait::Sleeps && CALLERS[*other][other_one.holds] == *key
            };
            let Some(next) = (0..CALLERS.len()).find(waits) else { continue };
            if state.has_begun && self.keeps(Rule::NoHandOver) {
                state.callers[next].wait = self.first();
            } else {
                self.grant(state, next);
            }
        }
        if state.drain == Wait::Sleeps && self.keeps(Rule::EndsWakeTheDrain) {
            state.drain = self.first();
        }
    }

    fn claim(claim: Claim) -> Property<Self> {
        let condition = match claim {
            Claim::NoNewHolder => |_: &Self, state: &State| !state.new_holder,
            Claim::HoldersAreServed => |_: &Self, state: &State| !state.refused_holder,
            Claim::AllAreAnswered => |model: &Self, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                let is_answered = |one: &Caller| one.wait == Wait::Over && one.holds == 0;
                !actions.is_empty()
                    || state.callers.iter().all(is_answered)
                        && state.drain == Wait::Over
                        && state.held == HELD
            },
        };
        Property::always(claim.name(), condition)
    }
}

impl Model for Drain {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State { drain: self.first(), held: HELD, ..State::default() };
        state.callers.iter_mut().for_each(|caller| caller.wait = self.first());
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, caller) in state.callers.iter().enumerate() {
            match caller.wait {
                Wait::Registers | Wait::HasLooked => actions.push(Action::Register(number)),
                Wait::Looks => actions.push(Action::Look(number)),
                Wait::Over if caller.holds > 0 => actions.push(Action::Release(number)),
                Wait::Sleeps | Wait::Over => {}
            }
        }
        match state.drain {
            _ if !state.has_begun => actions.push(Action::Begin),
            _ if !state.has_woken => actions.push(Action::Wake),
            Wait::Registers | Wait::HasLooked => actions.push(Action::RegisterDrain),
            Wait::Looks => actions.push(Action::LookOfDrain),
            Wait::Sleeps | Wait::Over => {}
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        let registered = |wait: &mut Wait| {
            *wait = if *wait == Wait::HasLooked { Wait::Sleeps } else { Wait::Looks };
        };
        match action {
            Action::Register(caller) => registered(&mut state.callers[caller].wait),
            Action::Look(caller) => self.look(&mut state, caller),
            Action::Release(caller) => self.release(&mut state, caller),
            Action::Begin => state.has_begun = true,
            Action::Wake => {
                state.has_woken = true;
                let sleeping = state.callers.iter_mut().filter(|one| one.wait == Wait::Sleeps);
                if self.keeps(Rule::WakeAll) {
                    sleeping.for_each(|caller| caller.wait = self.first());
                }
            }
            Action::RegisterDrain => registered(&mut state.drain),
            Action::LookOfDrain => {
                state.drain = match state.held != HELD {
                    false => Wait::Over,
                    true if self.keeps(Rule::RegisterFirst) => Wait::Sleeps,
                    true => Wait::HasLooked,
                };
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        if let Some(claim) = self.claim {
            return vec![Self::claim(claim)];
        }
        let mut all: Vec<_> = Claim::ALL.into_iter().map(Self::claim).collect();
        all.push(Property::sometimes("a holder waits in a drain", |_, state: &State| {
            let holder = state.callers[0];
            state.has_begun && holder.holds == 1 && holder.wait == Wait::Sleeps
        }));
        all.push(Property::sometimes("a waiter is refused", |_, state: &State| {
            state.callers[1].was_refused && state.callers[0].holds == 2
        }));
        all
    }
}
