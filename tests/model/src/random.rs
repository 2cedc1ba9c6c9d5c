//! Walks at random, where there are too many states to see them all.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use stateright::Chooser;

use crate::action::Action;
use crate::model::Redlock;
use crate::state::State;

/// Chooses the next step at random. Each walk prefers other kinds of steps: in one there are many
/// restarts, in the next many losses or hardly a tick. Equal chances would make all walks alike, and
/// no client would ever get far between two restarts.
#[derive(Debug, Clone)]
pub(crate) struct Moody;

/// One walk.
#[derive(Debug)]
pub(crate) struct Walk {
    random: StdRng,
    weights: [u32; KINDS],
}

const KINDS: usize = 11;
/// The rarest kind is chosen so many times less often than the most frequent, in powers of two.
const SPREAD: u32 = 6;

impl<const NODES: usize, const CLIENTS: usize> Chooser<Redlock<NODES, CLIENTS>> for Moody {
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
        let is_it = |action: &Action| match left.checked_sub(weight(action)) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        };
        actions.iter().position(is_it).unwrap_or(0)
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
    }
}
