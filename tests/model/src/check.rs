//! Puts a model to the checker, and says what it found.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::action::Action;
use crate::claim::Claim;
use crate::model::Redlock;
use crate::random::Moody;
use crate::rules::{Rule, Rules};
use crate::state::State;
use crate::world::World;

/// How to search.
#[derive(Debug, Clone, Copy)]
pub enum Search {
    /// Every state that can be reached. A counterexample is the shortest there is.
    Every,
    /// Random walks, for so long.
    Walks {
        /// The same seed makes the same walks.
        seed: u64,
        /// When to stop.
        time: Duration,
    },
}

/// A walk of this length says nothing new: those that end by themselves come back to a state that
/// they have seen.
const LONGEST_WALK: usize = 1000;

/// One world, to look at with the rules kept and broken.
#[derive(Debug, Clone, Copy)]
pub struct Check<const NODES: usize, const CLIENTS: usize> {
    /// What it is called in the output.
    pub name: &'static str,
    /// What may happen.
    pub world: World,
    /// How to search.
    pub search: Search,
}

impl<const NODES: usize, const CLIENTS: usize> Check<NODES, CLIENTS> {
    /// Every promise is kept when every rule is, and not because nothing happens.
    ///
    /// # Panics
    ///
    /// If it is not, with the steps that led there.
    pub fn holds(self) {
        self.hold(Rules::KEPT, None, "all rules are kept");
    }

    /// One promise is kept when every rule is.
    ///
    /// # Panics
    ///
    /// If it is not, with the steps that led there.
    pub fn keeps(self, claim: Claim) {
        self.hold(Rules::KEPT, Some(claim), "all rules are kept");
    }

    /// Every promise is kept even without this rule: here it is not needed.
    ///
    /// # Panics
    ///
    /// If one is not, with the steps that led there.
    pub fn needs_no(self, rule: Rule) {
        self.hold(Rules::without(rule), None, &format!("without {rule:?}"));
    }

    /// Without the rule the promise is broken, and the checker finds out.
    ///
    /// # Panics
    ///
    /// If it does not: then it proves nothing when it finds nothing elsewhere.
    pub fn needs(self, rule: Rule, claim: Claim) {
        self.fail(Rules::without(rule), claim, &format!("without {rule:?}"));
    }

    /// The world is worse than what the library promises to bear: the promise is broken although
    /// all rules are kept.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn is_too_much_for(self, claim: Claim) {
        self.fail(Rules::KEPT, claim, "all rules are kept");
    }

    fn hold(self, rules: Rules, claim: Option<Claim>, said: &str) {
        let mut found = self.run(Redlock { world: self.world, rules, claim });
        let model = Redlock::<NODES, CLIENTS> { world: self.world, rules, claim };
        for property in model.properties() {
            let path = found.discoveries.remove(property.name).map(steps);
            match path {
                Some(steps) if property.expectation.discovery_is_failure() => {
                    panic!("{}, {said}: {} is broken by {steps:#?}", self.name, property.name);
                }
                None if !property.expectation.discovery_is_failure() => {
                    panic!("{}, {said}: it never happens that {}", self.name, property.name);
                }
                Some(_) | None => {}
            }
        }
        let promises = claim.map_or("all promises hold", Claim::name);
        self.say(&format!("{said}: {promises} ({found})"));
    }

    fn fail(self, rules: Rules, claim: Claim, said: &str) {
        let mut found = self.run(Redlock { world: self.world, rules, claim: Some(claim) });
        let path = found.discoveries.remove(claim.name());
        assert!(path.is_some(), "{}, {said}: {} should be broken", self.name, claim.name());
        let steps = path.map(steps).unwrap_or_default();
        let broken = format!("{} is broken in {} steps", claim.name(), steps.len());
        self.say(&format!("{said}: {broken} ({found})"));
        for step in steps {
            println!("        {step}");
        }
    }

    fn run(self, model: Redlock<NODES, CLIENTS>) -> Found<NODES, CLIENTS> {
        let begun = Instant::now();
        let checker = model.checker().finish_when(HasDiscoveries::AnyFailures);
        let (states, discoveries) = match self.search {
            Search::Every => {
                let checker = checker.spawn_bfs().join();
                (checker.unique_state_count(), checker.discoveries())
            }
            Search::Walks { seed, time } => {
                let checker = checker.timeout(time).target_max_depth(LONGEST_WALK);
                let checker = checker.spawn_simulation(seed, Moody).join();
                (checker.state_count(), checker.discoveries())
            }
        };
        Found { states, discoveries, took: begun.elapsed() }
    }

    fn say(self, what: &str) {
        let seed = match self.search {
            Search::Every => String::new(),
            Search::Walks { seed, .. } => format!(", seed {seed}"),
        };
        println!("{} ({NODES} nodes, {CLIENTS} clients{seed}), {what}", self.name);
    }
}

struct Found<const NODES: usize, const CLIENTS: usize> {
    states: usize,
    discoveries: HashMap<&'static str, Path<State<NODES, CLIENTS>, Action>>,
    took: Duration,
}

impl<const NODES: usize, const CLIENTS: usize> std::fmt::Display for Found<NODES, CLIENTS> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} states, {:.1} s", self.states, self.took.as_secs_f64())
    }
}

fn steps<S>(path: Path<S, Action>) -> Vec<String> {
    path.into_actions().iter().map(ToString::to_string).collect()
}
