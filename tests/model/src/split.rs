//! Callers that ask at the same moment, without a waiting time, as a third model.
//!
//! Each caller asks all nodes. A node refuses a caller if it has another one, and then looks up which one: that may have left
//! by then. A caller whose votes are split cleans up, and asks again after a pause. Pauses are fair in the end: the last attempt
//! of a caller begins when no other caller asks and no clean-up is on its way, and nobody asks until it ends. The earlier
//! pauses are as unfair as possible.
//!
//! The claim is that one of the callers gets the lock, which nobody had before. No holder releases it: a second run of the
//! same work would hide that the first one is missing. Every path ends, because attempts are bounded. So the claim, which holds
//! eventually, is checked in the last state of each path.
//!
//! The votes are read by redlock-core's own `standing.rs`.

use std::fmt;

use stateright::{Model, Property};

use crate::check::Found;
use crate::quorum::quorum;
use crate::standing::{Stand, Standing};

/// A rule of callers whose votes may be split. "If broken" says how a model breaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A caller whose votes are split asks again. If broken: it leaves the work to the others.
    Repetition,
    /// A node whose holder has left has no holder. If broken: it may hide one.
    LeftIsNobody,
    /// A caller asks once more if a holder has a quorum only together with the nodes that have failed. If broken: it gives
    /// up, as if that holder had the lock.
    DoubtIsRepeated,
    /// The clean-up of an attempt arrives before the next attempt. If broken: it arrives after it.
    CleanUpFirst,
}

/// Callers and nodes.
#[derive(Debug, Clone, Copy)]
pub struct Check<const NODES: usize, const CALLERS: usize> {
    /// How many nodes fail to vote.
    pub down: usize,
    /// How often a caller asks at most. Its last pause is fair.
    pub attempts: u8,
}

impl<const NODES: usize, const CALLERS: usize> Check<NODES, CALLERS> {
    /// Checks that one of the callers gets the lock.
    ///
    /// # Panics
    ///
    /// If nobody gets it, with the steps.
    pub fn holds(self) {
        self.found(None).expect_kept(&self.name(), "all rules are kept");
    }

    /// Checks that nobody may get the lock while `rule` is broken, and prints the steps.
    ///
    /// # Panics
    ///
    /// If there are no such steps.
    pub fn needs(self, rule: Rule) {
        self.found(Some(rule)).expect_broken(&self.name(), &format!("without {rule:?}"), CLAIM);
    }

    fn found(self, broken: Option<Rule>) -> Found {
        Found::by(Callers::<NODES, CALLERS> { check: self, broken })
    }

    fn name(self) -> String {
        let Self { down, attempts } = self;
        format!("split votes ({NODES} nodes, {down} down, {CALLERS} callers, {attempts} attempts)")
    }
}

const CLAIM: &str = "if callers ask and nobody had the lock before, one of them gets it";

#[derive(Debug, Clone)]
struct Callers<const NODES: usize, const CALLERS: usize> {
    check: Check<NODES, CALLERS>,
    broken: Option<Rule>,
}

/// A caller, and the number of its attempt. It stands for the token.
type Token = (u8, u8);

/// The messages of one caller to one node, which arrive in this order: the clean-up of its former attempt, its present
/// attempt, and the clean-up of that.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "each is a message that is on its way or not")]
struct Link {
    former_clean_up: bool,
    set: bool,
    /// The node has refused the caller, and is asked for the holder.
    look_up: bool,
    clean_up: bool,
    stand: Option<Stand<Token>>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// The caller has not asked yet, or pauses.
    #[default]
    Pauses,
    Asks,
    Holds,
    /// Another caller has the lock, as far as the caller knows.
    IsRefused,
    /// The votes of the last attempt were split.
    IsSplit,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
struct Caller {
    phase: Phase,
    attempt: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct State<const NODES: usize, const CALLERS: usize> {
    holders: [Option<Token>; NODES],
    callers: [Caller; CALLERS],
    links: [[Link; NODES]; CALLERS],
}

/// One step. Callers and nodes are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Ask(usize),
    Set(usize, usize),
    LookUp(usize, usize),
    CleanUp(usize, usize),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(caller) => write!(f, "caller {caller} asks"),
            Self::Set(caller, node) => write!(f, "node {node} executes the SET of caller {caller}"),
            Self::LookUp(caller, node) => {
                write!(f, "node {node} names its holder to caller {caller}")
            }
            Self::CleanUp(caller, node) => {
                write!(f, "node {node} executes a clean-up of caller {caller}")
            }
        }
    }
}

impl<const NODES: usize, const CALLERS: usize> State<NODES, CALLERS> {
    fn token(&self, caller: usize) -> Token {
        (u8::try_from(caller).unwrap_or(u8::MAX), self.callers[caller].attempt)
    }

    fn has_ended(&self) -> bool {
        let has_ended = |caller: &Caller| !matches!(caller.phase, Phase::Pauses | Phase::Asks);
        self.callers.iter().all(has_ended)
    }

    fn is_held(&self) -> bool {
        self.callers.iter().any(|caller| caller.phase == Phase::Holds)
    }
}

impl<const NODES: usize, const CALLERS: usize> Callers<NODES, CALLERS> {
    fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    fn is_last(&self, caller: Caller) -> bool {
        caller.attempt + 1 == self.check.attempts
    }

    fn may_ask(&self, state: &State<NODES, CALLERS>, caller: usize) -> bool {
        let asks = |other: &&Caller| other.phase == Phase::Asks;
        let one = state.callers[caller];
        let is_quiet = || {
            let links = state.links.iter().flatten();
            state.callers.iter().all(|other| !asks(&other))
                && links.clone().all(|link| !link.set && !link.clean_up)
                && (!self.keeps(Rule::CleanUpFirst)
                    || links.clone().all(|link| !link.former_clean_up))
        };
        let is_fair = !state.callers.iter().filter(asks).any(|other| self.is_last(*other));
        one.phase == Phase::Pauses && is_fair && (!self.is_last(one) || is_quiet())
    }

    fn ask(&self, state: &mut State<NODES, CALLERS>, caller: usize) {
        state.callers[caller].phase = Phase::Asks;
        for (node, link) in state.links[caller].iter_mut().enumerate() {
            let is_down = node < self.check.down;
            link.set = !is_down;
            link.stand = is_down.then_some(Stand::Failed);
        }
    }

    /// Counts the votes of a caller that asks, and decides.
    fn decide(&self, state: &mut State<NODES, CALLERS>, caller: usize) {
        if state.callers[caller].phase != Phase::Asks {
            return;
        }
        let stands =
            || state.links[caller].iter().map(|link| link.stand.unwrap_or(Stand::Undecided));
        let count = |is: fn(&Stand<Token>) -> bool| stands().filter(is).count();
        let (own, undecided) =
            (count(|stand| *stand == Stand::Own), count(|stand| *stand == Stand::Undecided));
        let failed = count(|stand| *stand == Stand::Failed);
        let standing = Standing::of(stands());
        let blocking = NODES - quorum(NODES) + 1;
        let refused = NODES - own - undecided - failed;
        if own >= quorum(NODES) {
            state.callers[caller].phase = Phase::Holds;
            return;
        }
        if undecided > 0 && (refused < blocking || standing.is_open()) {
            return;
        }
        let is_split = if self.keeps(Rule::DoubtIsRepeated) {
            standing.is_worth_repeating(None)
        } else {
            standing.is_split()
        };
        let one = &mut state.callers[caller];
        one.phase = match is_split && self.keeps(Rule::Repetition) {
            true if self.is_last(*one) => Phase::IsSplit,
            true => {
                one.attempt += 1;
                Phase::Pauses
            }
            false => Phase::IsRefused,
        };
        let pauses = one.phase == Phase::Pauses;
        for link in &mut state.links[caller] {
            // A node that has refused the caller has nothing to clean up.
            let may_hold = link.set || link.stand == Some(Stand::Own);
            link.look_up = false;
            link.stand = None;
            if pauses {
                link.former_clean_up |= may_hold;
            } else {
                link.clean_up = may_hold;
            }
        }
    }
}

impl<const NODES: usize, const CALLERS: usize> Model for Callers<NODES, CALLERS> {
    type State = State<NODES, CALLERS>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        let (callers, links) = ([Caller::default(); CALLERS], [[Link::default(); NODES]; CALLERS]);
        vec![State { holders: [None; NODES], callers, links }]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Action>) {
        for caller in 0..CALLERS {
            if self.may_ask(state, caller) {
                actions.push(Action::Ask(caller));
            }
            for (node, link) in state.links[caller].iter().enumerate() {
                let is_late = !self.keeps(Rule::CleanUpFirst);
                if link.set && (!link.former_clean_up || is_late) {
                    actions.push(Action::Set(caller, node));
                }
                if link.look_up {
                    actions.push(Action::LookUp(caller, node));
                }
                // In the order of sending.
                let cleans = if is_late { state.has_ended() } else { true };
                if (link.former_clean_up && cleans) || (link.clean_up && !link.set) {
                    actions.push(Action::CleanUp(caller, node));
                }
            }
        }
    }

    fn next_state(&self, last: &Self::State, action: Action) -> Option<Self::State> {
        let mut state = *last;
        match action {
            Action::Ask(caller) => self.ask(&mut state, caller),
            Action::Set(caller, node) => {
                let token = state.token(caller);
                let link = &mut state.links[caller][node];
                link.set = false;
                if state.holders[node].is_some() {
                    link.look_up = state.callers[caller].phase == Phase::Asks;
                    link.clean_up = false;
                } else {
                    state.holders[node] = Some(token);
                    link.stand = Some(Stand::Own);
                }
                self.decide(&mut state, caller);
            }
            Action::LookUp(caller, node) => {
                let left = if self.keeps(Rule::LeftIsNobody) { Stand::Left } else { Stand::Hidden };
                let link = &mut state.links[caller][node];
                link.look_up = false;
                link.stand = Some(state.holders[node].map_or(left, Stand::Of));
                self.decide(&mut state, caller);
            }
            Action::CleanUp(caller, node) => {
                let link = &mut state.links[caller][node];
                let is_former = std::mem::take(&mut link.former_clean_up);
                if !is_former {
                    link.clean_up = false;
                }
                let present = state.callers[caller].attempt;
                let is_own = |(owner, attempt): Token| {
                    usize::from(owner) == caller && (attempt == present) != is_former
                };
                state.holders[node] = state.holders[node].filter(|token| !is_own(*token));
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let claim = |_: &Self, state: &Self::State| !state.has_ended() || state.is_held();
        let is_repeated = |_: &Self, state: &Self::State| {
            state.callers.iter().any(|caller| caller.attempt > 0 && caller.phase == Phase::Holds)
        };
        vec![
            Property::always(CLAIM, claim),
            Property::sometimes("a caller whose votes were split holds the lock", is_repeated),
        ]
    }
}
