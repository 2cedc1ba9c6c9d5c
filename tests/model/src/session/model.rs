//! The model for the checker: the possible steps from each state, and the state after each step.

use stateright::{Model, Property};

use super::action::Action;
use super::claim::{Claim, situations};
use super::client::{CLIENTS, Stage};
use super::ensemble::Message;
use super::evidence::Times;
use super::rules::{Rule, Rules};
use super::step::State;
use crate::check::Found;

/// The events of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum World {
    /// A client sends beats, and nobody asks for the lock.
    Beats {
        /// The ticks for which a chain of beats lasts that proves something, R.
        span: u8,
        /// The ticks between two pings of the leader. If the session timeout is 8 ticks of the ensemble, this is R/4.
        ping: u8,
        /// The most beats that are on their way between the follower and the leader.
        most: usize,
    },
    /// Two clients want one lock. In place of beats, the leader hears of a session at any time, and its client learns at any
    /// time when that was.
    Locks {
        /// The session timeout in ticks.
        timeout: u8,
        /// The longest session that one of the servers allows, in ticks.
        limit: u8,
    },
    /// Two clients want one lock with fencing numbers. No time passes, because the numbers do not depend on it.
    Numbers,
}

/// The highest transaction number that the checker follows.
const HIGHEST_ZXID: u8 = 8;

impl World {
    pub(super) fn times(self) -> Times {
        match self {
            // A beat of a chain is younger than 3R/8, and proves what is R older. No greater age matters.
            Self::Beats { span, .. } => Times { timeout: span + span / 2, span, lease: 0 },
            Self::Locks { timeout, .. } => Times { timeout, span: timeout, lease: timeout / 2 },
            Self::Numbers => Times { timeout: 1, span: 1, lease: 1 },
        }
    }

    pub(super) fn is_fenced(self) -> bool {
        self == Self::Numbers
    }
}

/// Two clients that want one lock.
#[derive(Debug, Clone)]
pub struct Sessions {
    /// The events of the model.
    pub world: World,
    /// The rules that the clients keep.
    pub rules: Rules,
    /// The claim to check; `None` checks all claims.
    pub claim: Option<Claim>,
}

impl Model for Sessions {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        match self.world {
            World::Beats { most, .. } => {
                actions.push(Action::Reconnect(0));
                actions_of_beats(state, 0, most, actions);
                actions_of_ensemble(state, actions);
                actions.push(Action::Tick);
            }
            World::Locks { timeout, limit } => {
                for client in 0..CLIENTS {
                    actions_of_request(state, client, actions);
                    actions.push(Action::Reconnect(client));
                    let session = state.ensemble.sessions[client];
                    if !session.has_ended {
                        actions.extend([Action::Hear(client), Action::Learn(client)]);
                        if !session.is_short && limit < timeout {
                            actions.push(Action::Shorten(client));
                        }
                        let longest = if session.is_short { limit } else { timeout };
                        if session.age >= longest {
                            actions.push(Action::End(client));
                        }
                    }
                }
                actions.push(Action::Tick);
            }
            World::Numbers => {
                for client in 0..CLIENTS {
                    actions_of_request(state, client, actions);
                    if state.clients[client].guard.is_some() {
                        actions.push(Action::HandOver(client));
                    }
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let (world, rules) = (self.world, self.rules);
        let mut state = last.clone();
        match action {
            Action::Ask(client) => state.ask(client, rules),
            Action::Create(client) => state.create(client, world, rules),
            Action::List(client) => state.list(client, rules),
            Action::Decide(client) => state.decide(client, world, rules),
            Action::HandOver(client) => state.hand_over(client, world),
            Action::Leave(client) => state.leave(client),
            Action::Remove(client) => state.remove(client, world),
            Action::Beat(client) => state.clients[client].beat = Some(0),
            Action::Forward(client) => {
                let age = state.clients[client].beat.take()?;
                state.ensemble.forward(client, age);
            }
            Action::Hear(client) => state.ensemble.touch(client),
            Action::Learn(client) => {
                state.clients[client].evidence.learn(state.ensemble.sessions[client].age);
            }
            Action::Reconnect(client) => state.reconnect(client),
            Action::Shorten(_) if rules.keep(Rule::LimitBeforeTheSession) => return None,
            Action::Shorten(client) => state.shorten(client),
            Action::End(client) => state.end(client, world),
            Action::Ping => {
                if let World::Beats { ping, .. } = world {
                    state.ensemble.ping(ping);
                }
            }
            Action::Execute => state.ensemble.execute(),
            Action::Take => state.take(world, rules),
            Action::Tick => state.tick(world, rules),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        if let Some(claim) = self.claim {
            return vec![claim.property()];
        }
        let claims = Claim::ALL.into_iter().map(Claim::property);
        claims.chain(situations(self.world)).collect()
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.ensemble.zxid <= HIGHEST_ZXID
    }
}

fn actions_of_request(state: &State, client: usize, actions: &mut Vec<Action>) {
    let (at, ensemble) = (&state.clients[client], &state.ensemble);
    let is_alive = !ensemble.sessions[client].has_ended;
    match at.request.map(|request| request.stage) {
        None if at.may_ask() && is_alive => actions.push(Action::Ask(client)),
        Some(Stage::Sent) if is_alive => actions.push(Action::Create(client)),
        Some(Stage::Created) if is_alive => actions.push(Action::List(client)),
        Some(Stage::Listed { .. }) => actions.push(Action::Decide(client)),
        _ => {}
    }
    if at.guard.is_some() || at.may_ask() && ensemble.has_child(client) {
        actions.push(Action::Leave(client));
    }
    if at.leaves {
        actions.push(Action::Remove(client));
    }
}

fn actions_of_beats(state: &State, client: usize, most: usize, actions: &mut Vec<Action>) {
    let messages = state.ensemble.to_leader.iter().chain(&state.ensemble.to_follower);
    let beats = messages.filter(|message| matches!(message, Message::Beat(..))).count();
    match state.clients[client].beat {
        Some(_) if beats < most => actions.push(Action::Forward(client)),
        Some(_) => {}
        None => actions.push(Action::Beat(client)),
    }
}

fn actions_of_ensemble(state: &State, actions: &mut Vec<Action>) {
    if state.ensemble.next_ping == 0 {
        actions.push(Action::Ping);
    } else if !state.ensemble.to_leader.is_empty() {
        actions.push(Action::Execute);
    }
    if !state.ensemble.to_follower.is_empty() {
        actions.push(Action::Take);
    }
}

/// A world to check, with every rule kept or with one rule broken.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// The name of the world in the output.
    pub name: &'static str,
    /// The world.
    pub world: World,
}

impl Check {
    /// Checks that every claim holds while every rule is kept, and that the lock is really used.
    ///
    /// # Panics
    ///
    /// If a claim is broken, with the steps that break it. If the lock is not used.
    pub fn holds(self) {
        let model = Sessions { world: self.world, rules: Rules::KEPT, claim: None };
        Found::by(model).expect_kept(self.name, "all rules are kept: all claims hold");
    }

    /// Checks that `claim` is broken while `rule` is broken, and prints the steps that break it.
    ///
    /// # Panics
    ///
    /// If the checker finds no such steps.
    pub fn needs(self, rule: Rule, claim: Claim) {
        let rules = Rules::without(rule);
        let model = Sessions { world: self.world, rules, claim: Some(claim) };
        let broken = format!("without {rule:?}");
        Found::by(model).expect_broken(self.name, &broken, claim.name());
    }
    /// Checks that `claim` is broken although every rule is kept, and prints the steps that break it.
    ///
    /// # Panics
    ///
    /// If the checker finds no such steps.
    pub fn is_too_much_for(self, claim: Claim) {
        let model = Sessions { world: self.world, rules: Rules::KEPT, claim: Some(claim) };
        Found::by(model).expect_broken(self.name, "all rules are kept", claim.name());
    }
}
