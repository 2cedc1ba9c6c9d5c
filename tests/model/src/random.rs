//! Random walks, for worlds with too many states to visit them all.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use stateright::Chooser;

use crate::action::Action;
use crate::model::Redlock;
use crate::state::State;

/// Chooses the next step at random. Each walk draws a weight for each kind of step: one walk has many
/// restarts, the next one many losses or hardly a tick. With equal weights all walks would be alike, and no
/// client would ever get far between two restarts.
#[derive(Debug, Clone)]
pub(crate) struct WeightedSteps;

/// The state of one walk.
#[derive(Debug)]
pub(crate) struct Walk {
    random: StdRng,
    weights: [u32; KINDS],
}

const KINDS: usize = 14;
/// The number of weights, which are powers of two: the rarest kind of step is up to 32 times rarer than the
/// most frequent one.
const SPREAD: u32 = 6;

impl<const NODES: usize, const CLIENTS: usize> Chooser<Redlock<NODES, CLIENTS>> for WeightedSteps {
    type State = Walk;

    fn new_state(&self, seed: u64) -> Walk {
        let mut random = StdRng::seed_from_u64(seed);
        let weights = std::array::from_fn(|_| 1 << random.random_range(0..SPREAD));
        Walk { random, weights }
    }

    fn choose_initial_state(&self, walk: &mut Walk, states: &[State<NODES, CLIENTS>]) -> usize {
        walk.random.random_range(0..states.len())
    }

    fn choose_action(
        &self,
        walk: &mut Walk,
        _: &State<NODES, CLIENTS>,
        actions: &[Action],
    ) -> usize {
        let weight = |action: &Action| walk.weights[kind(action)];
        let mut left = walk.random.random_range(0..actions.iter().map(weight).sum());
        let is_chosen = |action: &Action| match left.checked_sub(weight(action)) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        };
        actions.iter().position(is_chosen).unwrap_or(0)
    }
}

fn kind(action: &Action) -> usize {
    match action {
        Action::Ask(_) => 0,
        Action::Leave(_) => 1,
        Action::Renew(_) => 2,
        Action::Arrive(_) => 3,
        Action::Lose(_) => 4,
        Action::Count(..) => 5,
        Action::Tick => 6,
        Action::RunNodeAhead(_) => 7,
        Action::RunClientAhead(_) => 8,
        Action::SetClock(_) => 9,
        Action::Restart(_) => 10,
        Action::AskToShare(_) => 11,
        Action::Upgrade(_) => 12,
        Action::Downgrade(_) => 13,
    }
}
