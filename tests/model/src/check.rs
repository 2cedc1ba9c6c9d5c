//! Runs the checker over every state of a model, and prints the result.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::action::Action;
use crate::claim::Claim;
use crate::model::Redlock;
use crate::rules::{Rule, Rules};
use crate::state::State;
use crate::world::World;

/// A world to check, with every rule kept or with one rule broken.
#[derive(Debug, Clone, Copy)]
pub struct Check<const NODES: usize, const CLIENTS: usize> {
    /// The name of the world in the output.
    pub name: &'static str,
    /// The faults that may happen.
    pub world: World,
}

/// Returns whether the worlds with many states are checked, too, which takes a minute: with `REDLOCK_ALL_NODES`.
pub fn checks_large_worlds() -> bool {
    std::env::var_os("REDLOCK_ALL_NODES").is_some()
}

impl<const NODES: usize, const CLIENTS: usize> Check<NODES, CLIENTS> {
    /// Checks that every claim holds while every rule is kept, and that the lock is really used: clients
    /// hold it, contend for it and leave keys behind.
    ///
    /// # Panics
    ///
    /// If a claim is broken, with the steps that break it. If one of these situations never occurs.
    pub fn holds(self) {
        self.expect_kept(Rules::KEPT, None, "all rules are kept");
    }

    /// Checks that one claim holds while every rule is kept.
    ///
    /// # Panics
    ///
    /// If the claim is broken, with the steps that break it.
    pub fn keeps(self, claim: Claim) {
        self.expect_kept(Rules::KEPT, Some(claim), "all rules are kept");
    }

    /// Checks that every claim holds while `rule` is broken: this world does not need the rule.
    ///
    /// # Panics
    ///
    /// If a claim is broken, with the steps that break it.
    pub fn needs_no(self, rule: Rule) {
        self.expect_kept(Rules::without(rule), None, &format!("without {rule:?}"));
    }

    /// Checks that `claim` is broken while `rule` is broken, and prints the steps that break it.
    ///
    /// # Panics
    ///
    /// If the checker finds no such steps. A checker that misses a broken rule proves nothing in a world
    /// where it finds nothing.
    pub fn needs(self, rule: Rule, claim: Claim) {
        self.expect_broken(Rules::without(rule), claim, &format!("without {rule:?}"));
    }

    /// Checks that `claim` is broken although every rule is kept: this world is worse than the library
    /// promises to bear.
    ///
    /// # Panics
    ///
    /// If the claim holds.
    pub fn is_too_much_for(self, claim: Claim) {
        self.expect_broken(Rules::KEPT, claim, "all rules are kept");
    }

    fn expect_kept(self, rules: Rules, claim: Option<Claim>, rules_kept: &str) {
        let mut found = Self::run(Redlock { world: self.world, rules, claim });
        let model = Redlock::<NODES, CLIENTS> { world: self.world, rules, claim };
        for property in model.properties() {
            let path = found.discoveries.remove(property.name).map(steps);
            match path {
                Some(steps) if property.expectation.discovery_is_failure() => {
                    panic!(
                        "{}, {rules_kept}: {} is broken by {steps:#?}",
                        self.name, property.name
                    );
                }
                None if !property.expectation.discovery_is_failure() => {
                    panic!("{}, {rules_kept}: it never happens that {}", self.name, property.name);
                }
                Some(_) | None => {}
            }
        }
        let claims = claim.map_or("all claims hold", Claim::name);
        self.print(&format!("{rules_kept}: {claims} ({found})"));
    }

    fn expect_broken(self, rules: Rules, claim: Claim, rules_kept: &str) {
        let mut found = Self::run(Redlock { world: self.world, rules, claim: Some(claim) });
        let path = found.discoveries.remove(claim.name());
        assert!(path.is_some(), "{}, {rules_kept}: {} should be broken", self.name, claim.name());
        let steps = path.map(steps).unwrap_or_default();
        let broken = format!("{} is broken in {} steps", claim.name(), steps.len());
        self.print(&format!("{rules_kept}: {broken} ({found})"));
        for step in steps {
            println!("        {step}");
        }
    }

    fn run(model: Redlock<NODES, CLIENTS>) -> Found<NODES, CLIENTS> {
        let begun = Instant::now();
        let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let (states, discoveries) = (checker.unique_state_count(), checker.discoveries());
        Found { states, discoveries, took: begun.elapsed() }
    }

    fn print(self, result: &str) {
        println!("{} ({NODES} nodes, {CLIENTS} clients), {result}", self.name);
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
