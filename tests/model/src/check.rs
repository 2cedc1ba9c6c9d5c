//! Runs the checker over every state of a model, and prints the result.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::claim::Claim;
use crate::model::Redlock;
use crate::rules::{Rule, Rules};
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
        let claims = claim.map_or("all claims hold", Claim::name);
        let found = Found::by(Redlock::<NODES, CLIENTS> { world: self.world, rules, claim });
        found.expect_kept(&self.name(), &format!("{rules_kept}: {claims}"));
    }

    fn expect_broken(self, rules: Rules, claim: Claim, rules_kept: &str) {
        let claims = Some(claim);
        let model = Redlock::<NODES, CLIENTS> { world: self.world, rules, claim: claims };
        Found::by(model).expect_broken(&self.name(), rules_kept, claim.name());
    }

    fn name(self) -> String {
        format!("{} ({NODES} nodes, {CLIENTS} clients)", self.name)
    }
}

/// Walks through a model: each choice picks one of the possible steps. Returns the number of steps, or the name of a broken
/// claim and the steps that break it.
pub(crate) fn walk<M: Model>(
    model: &M,
    claims: &[Property<M>],
    choices: &[u16],
) -> Result<usize, (&'static str, Vec<String>)>
where
    M::State: Clone,
    M::Action: Clone + Display,
{
    let mut state = model.init_states().remove(0);
    let (mut steps, mut actions) = (Vec::new(), Vec::new());
    for choice in choices {
        actions.clear();
        model.actions(&state, &mut actions);
        // A step that changes nothing is none, as for the checker.
        let next = |action: M::Action| Some((action.clone(), model.next_state(&state, action)?));
        let mut possible: Vec<_> = actions.drain(..).filter_map(next).collect();
        if possible.is_empty() {
            break;
        }
        let (action, next) = possible.swap_remove(usize::from(*choice) % possible.len());
        steps.push(action.to_string());
        state = next;
        if let Some(broken) = claims.iter().find(|claim| !(claim.condition)(model, &state)) {
            return Err((broken.name, steps));
        }
    }
    Ok(steps.len())
}

/// The findings of the checker in one model.
pub(crate) struct Found {
    /// The steps that break a claim.
    broken: HashMap<&'static str, Vec<String>>,
    /// The situations that never occur.
    missing: Vec<&'static str>,
    states: usize,
    took: Duration,
}

impl Found {
    /// Runs the checker over every state of a model, until a claim is broken.
    pub(crate) fn by<M>(model: M) -> Self
    where
        M: Model + Send + Sync + 'static,
        M::State: Clone + PartialEq + Hash + Send + Sync + 'static,
        M::Action: Clone + PartialEq + Display,
    {
        let begun = Instant::now();
        let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let mut discoveries = checker.discoveries();
        let (mut broken, mut missing) = (HashMap::new(), Vec::new());
        for property in checker.model().properties() {
            let is_claim = property.expectation.discovery_is_failure();
            match discoveries.remove(property.name) {
                Some(path) if is_claim => {
                    let steps = path.into_actions().iter().map(ToString::to_string).collect();
                    broken.insert(property.name, steps);
                }
                None if !is_claim => missing.push(property.name),
                Some(_) | None => {}
            }
        }
        let (states, took) = (checker.unique_state_count(), begun.elapsed());
        Self { broken, missing, states, took }
    }

    /// # Panics
    ///
    /// If a claim is broken, or a situation never occurs.
    pub(crate) fn expect_kept(&self, name: &str, rules_kept: &str) {
        let Self { broken, missing, .. } = self;
        assert!(broken.is_empty(), "{name}, {rules_kept}: broken by these steps: {broken:#?}");
        assert!(missing.is_empty(), "{name}, {rules_kept}: it never happens that {missing:?}");
        self.print(name, rules_kept);
    }

    /// # Panics
    ///
    /// If the claim holds.
    pub(crate) fn expect_broken(&self, name: &str, rules_kept: &str, claim: &str) {
        let Some(steps) = self.broken.get(claim) else {
            panic!("{name}, {rules_kept}: {claim} should be broken");
        };
        self.print(name, &format!("{rules_kept}: {claim} is broken in {} steps", steps.len()));
        for step in steps {
            println!("        {step}");
        }
    }

    fn print(&self, name: &str, result: &str) {
        let Self { states, took, .. } = self;
        println!("{name}, {result} ({states} states, {:.1} s)", took.as_secs_f64());
    }
}
