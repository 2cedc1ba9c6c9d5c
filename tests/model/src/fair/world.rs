//! The worlds of the model, and the possible steps in them.

use std::time::Duration;

use smallvec::SmallVec;
use stateright::{Model, Property};

use super::Instant;
use super::claim::{Claim, situations};
use super::node::Node;
use super::state::{Caller, Holder, Left, Phase, Process, State};
use super::step::Action;
use crate::check::{self, Found};

/// Something that the surroundings owe to the machine. "If broken" says how a model breaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A waiter looks when its position has changed. If broken: the wake-up is lost.
    Wake,
    /// A removal follows the reply to the operation before it. If broken: a dropped future sends it at once.
    LeaveAfterReply,
    /// A dropped future leaves the queue. If broken: its ticket stays.
    Leave,
    /// A caller that gets the lock uses the first ticket of its process. If broken: it uses its own one.
    Exchange,
}

/// Callers of some processes, and the events that may happen to them.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// The name of the world in the output.
    pub name: &'static str,
    /// The process of each caller.
    pub processes: &'static [usize],
    /// The number of nodes.
    pub nodes: usize,
    /// Whether a node executes the operations of one process in the order in which they were sent.
    pub is_ordered: bool,
    /// How many futures are dropped.
    pub drops: u8,
    /// How often a node is down.
    pub outages: u8,
    /// How often a node forgets its queue, or a notification gets lost.
    pub losses: u8,
    /// How many replies take too long.
    pub timeouts: u8,
    /// How often a future is not polled any more.
    pub stalls: u8,
    /// How many processes are shut down.
    pub shutdowns: u8,
    /// The end of the model.
    pub ends_after: Duration,
    /// The rule that is broken.
    pub broken: Option<Rule>,
}

impl World {
    /// Callers to which nothing happens.
    pub const CALM: Self = Self {
        name: "",
        processes: &[],
        nodes: 1,
        is_ordered: true,
        drops: 0,
        outages: 0,
        losses: 0,
        timeouts: 0,
        stalls: 0,
        shutdowns: 0,
        ends_after: Duration::from_millis(2500),
        broken: None,
    };

    pub(super) fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    /// Returns whether nothing takes a ticket away from a caller that waits.
    pub(super) fn is_calm(&self) -> bool {
        let Self { outages, losses, timeouts, stalls, shutdowns, .. } = self;
        outages + losses + timeouts + stalls + shutdowns == 0
    }
}

/// The model of one world.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fair {
    pub(super) world: World,
    pub(super) claim: Option<Claim>,
}

/// Checks that every claim holds.
///
/// # Panics
///
/// If a claim is broken, with the steps that break it. If a situation never occurs that must occur in such a world.
pub fn holds(world: World) {
    let found = Found::by(Fair { world, claim: None });
    found.expect_kept(world.name, "all rules are kept: all claims hold");
}

/// Checks that `claim` is broken while `rule` is broken, and prints the steps that break it.
///
/// # Panics
///
/// If the checker finds no such steps.
pub fn needs(world: World, rule: Rule, claim: Claim) {
    let world = World { broken: Some(rule), ..world };
    let found = Found::by(Fair { world, claim: Some(claim) });
    found.expect_broken(world.name, &format!("without {rule:?}"), claim.name());
}

/// Walks through a world: each choice picks one of the possible steps. Returns the number of steps.
///
/// # Errors
///
/// Returns the name of a broken claim, and the steps that break it.
pub fn walk(world: World, choices: &[u16]) -> Result<usize, (&'static str, Vec<String>)> {
    let claims = Claim::ALL.map(Claim::property);
    check::walk(&Fair { world, claim: None }, &claims, choices)
}

impl Model for Fair {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let World { drops, outages, losses, timeouts, stalls, shutdowns, .. } = self.world;
        let callers = self.world.processes.iter();
        let callers =
            callers.map(|process| Caller { process: *process, phase: Phase::Absent, behind: 0 });
        let processes = self.world.processes.iter().max().map_or(0, |last| last + 1);
        vec![State {
            now: Instant::default(),
            processes: vec![Process::default(); processes],
            callers: callers.collect(),
            nodes: vec![Node::default(); self.world.nodes],
            holder: Some(Holder::Other),
            free_since: None,
            used: SmallVec::new(),
            broken: SmallVec::new(),
            left: Left { drops, outages, losses, timeouts, stalls, shutdowns },
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for caller in 0..state.callers.len() {
            self.actions_of(state, caller, actions);
        }
        for process in 0..state.processes.len() {
            self.actions_of_process(state, process, actions);
        }
        if state.holder == Some(Holder::Other) {
            actions.push(Action::OtherReleases);
        }
        for (index, node) in state.nodes.iter().enumerate() {
            if node.is_down {
                actions.push(Action::Recover(index));
            } else if state.left.outages > 0 {
                actions.push(Action::Fail(index));
            }
            if state.left.losses > 0 && !node.tickets.is_empty() {
                actions.push(Action::Forget(index));
            }
        }
        let looks = |caller: &Caller| {
            let is_first = |first| std::ptr::eq(&raw const state.callers[first], caller);
            caller.phase == Phase::Looks && state.first_of(caller.process).is_some_and(is_first)
        };
        let is_busy = |process: &Process| {
            process.reply.is_some()
                || process.subscribes
                || process.is_notified
                || process.probes.is_some()
                || process.sent.iter().any(|sent| sent.is_awaited || self.world.timeouts == 0)
        };
        let is_told = |caller: usize| {
            state.callers[caller].phase == Phase::Fair
                && state.is_told(caller)
                && self.world.keeps(Rule::Wake)
                && state.first_of(state.callers[caller].process) == Some(caller)
        };
        if state.next_timer().is_some()
            && !state.callers.iter().any(looks)
            && !state.processes.iter().any(is_busy)
            && !(0..state.callers.len()).any(is_told)
        {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let (mut state, world) = (last.clone(), &self.world);
        match action {
            Action::Come(caller) => state.come(caller),
            Action::Look(caller) => state.look(caller, world),
            Action::Release(caller) => state.release(caller, world),
            Action::OtherReleases => state.publish(),
            Action::Drop(caller) => {
                state.left.drops -= 1;
                state.callers[caller].phase = Phase::Gone;
                state.leave(caller, world);
            }
            Action::Stall(caller) => {
                state.left.stalls -= 1;
                state.callers[caller].phase = Phase::Stalled;
            }
            Action::GoOn(caller) => state.callers[caller].phase = Phase::Looks,
            Action::Arrive(process, index) => state.arrive(process, index),
            Action::Reply(process) => state.reply(process, false),
            Action::TimeOut(process) => {
                state.left.timeouts -= 1;
                state.reply(process, true);
            }
            Action::Subscribed(process) => state.subscribed(process),
            Action::Notify(process) => state.notify(process),
            Action::LoseNotification(process) => {
                state.left.losses -= 1;
                state.processes[process].is_notified = false;
            }
            Action::Probed(process) => state.probed(process),
            Action::Fail(node) => {
                state.left.outages -= 1;
                state.nodes[node].is_down = true;
            }
            Action::Recover(node) => state.nodes[node].is_down = false,
            Action::Forget(node) => {
                state.left.losses -= 1;
                (state.nodes[node].tickets, state.nodes[node].present_until) = (vec![], vec![]);
            }
            Action::Close(process) => {
                state.left.shutdowns -= 1;
                state.close(process);
            }
            Action::Tick => state.pass(state.next_timer()?),
        }
        state.record_free();
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

impl Fair {
    fn actions_of(&self, state: &State, caller: usize, actions: &mut Vec<Action>) {
        let one = &state.callers[caller];
        let is_first = state.first_of(one.process) == Some(caller);
        match one.phase {
            Phase::Absent => {
                // Callers of one process are alike.
                let is_alike =
                    |other: &&Caller| other.phase == Phase::Absent && other.process == one.process;
                let first = state.callers.iter().find(is_alike);
                let is_next = first.is_some_and(|first| std::ptr::eq(first, one));
                if is_next && !state.processes[one.process].is_closed {
                    actions.push(Action::Come(caller));
                }
            }
            Phase::Looks if is_first => actions.push(Action::Look(caller)),
            Phase::Fair if is_first && self.world.keeps(Rule::Wake) && state.is_told(caller) => {
                actions.push(Action::Look(caller));
            }
            Phase::Stalled => actions.push(Action::GoOn(caller)),
            Phase::Holds => actions.push(Action::Release(caller)),
            Phase::Looks | Phase::Fair | Phase::Refused(_) | Phase::Gone => {}
        }
        if one.phase.waits() {
            if state.left.drops > 0 {
                actions.push(Action::Drop(caller));
            }
            if state.left.stalls > 0 && one.phase != Phase::Stalled {
                actions.push(Action::Stall(caller));
            }
        }
    }

    fn actions_of_process(&self, state: &State, process: usize, actions: &mut Vec<Action>) {
        let one = &state.processes[process];
        for (index, sent) in one.sent.iter().enumerate() {
            let mut earlier = one.sent[..index].iter();
            let is_next = !earlier.any(|other| other.node == sent.node);
            if is_next || !self.world.is_ordered {
                actions.push(Action::Arrive(process, index));
            }
        }
        if one.reply.is_some() {
            actions.push(Action::Reply(process));
        }
        let is_awaited = one.reply.is_some() || one.sent.iter().any(|sent| sent.is_awaited);
        if is_awaited && state.left.timeouts > 0 {
            actions.push(Action::TimeOut(process));
        }
        if one.subscribes {
            actions.push(Action::Subscribed(process));
        }
        if one.is_notified {
            actions.push(Action::Notify(process));
            if state.left.losses > 0 {
                actions.push(Action::LoseNotification(process));
            }
        }
        if one.probes.is_some() {
            actions.push(Action::Probed(process));
        }
        if state.left.shutdowns > 0 && !one.is_closed && one.machine.is_some() {
            actions.push(Action::Close(process));
        }
    }
}
