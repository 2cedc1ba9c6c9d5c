//! The effect of each step. This is the algorithm, from the client's request to the removal of its child: ask, create, list,
//! decide, leave.

use super::client::{CLIENTS, Client, Guard, Request, Stage};
use super::ensemble::Ensemble;
use super::model::World;
use super::rules::{Rule, Rules};

/// The ensemble and all clients at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) ensemble: Ensemble,
    pub(super) clients: [Client; CLIENTS],
    /// The highest fencing number that was handed out before the last one.
    pub(super) handed_out_before: u8,
    /// The last fencing number that was handed out.
    pub(super) handed_out: u8,
}

impl State {
    /// A client asks for the lock. If its child is in the queue already, it takes that place over.
    pub(super) fn ask(&mut self, client: usize, rules: Rules) {
        let was_free = !rules.keep(Rule::ListAfterTheCreation) && self.ensemble.queue.is_empty();
        let request = Request { age: 0, stage: Stage::Sent, was_free, is_former: false };
        self.clients[client].request = Some(request);
    }

    /// The leader executes the creation of the child.
    pub(super) fn create(&mut self, client: usize, world: World, rules: Rules) {
        if !self.ensemble.has_child(client) {
            let zxid = self.ensemble.next_zxid(world.is_fenced());
            self.ensemble.queue.push(client);
            self.ensemble.pzxid = zxid;
            self.clients[client].czxid = zxid;
        }
        if let Some(request) = &mut self.clients[client].request {
            request.stage = Stage::Created;
        }
        if !world.is_fenced() {
            self.list(client, rules);
        }
    }

    /// The server lists the queue. If time passes, this follows the creation at once.
    pub(super) fn list(&mut self, client: usize, rules: Rules) {
        let is_first = self.ensemble.is_first(client);
        let at = &mut self.clients[client];
        let kept = rules.keep(Rule::NumberOfTheQueue);
        let number = if kept { self.ensemble.pzxid } else { at.czxid };
        if let Some(request) = &mut at.request {
            request.stage = Stage::Listed { is_first: is_first || request.was_free, number };
        }
    }

    /// The client gets the list, and decides. If it is not granted the lock, its child stays as its place in the queue.
    pub(super) fn decide(&mut self, client: usize, world: World, rules: Rules) {
        let at = &mut self.clients[client];
        let Some(Request { age, stage: Stage::Listed { is_first, number }, is_former, .. }) =
            at.request.take()
        else {
            return;
        };
        let is_of_session = !is_former || !rules.keep(Rule::EvidenceOfTheSameSession);
        let is_proven = is_of_session && at.evidence.vouches(age, world.times());
        let is_certain = is_proven || !rules.keep(Rule::Evidence);
        if is_first && is_certain && age < world.times().lease {
            at.guard = Some(Guard { age, number });
            self.hand_out(number);
        } else if !is_certain {
            // The request may have been executed.
            self.leave(client);
        }
    }

    fn hand_out(&mut self, number: u8) {
        self.handed_out_before = self.handed_out;
        self.handed_out = number;
    }

    /// A holder hands its lock over to another caller of its process, whose number is greater by one. A write to the child
    /// confirms the number.
    pub(super) fn hand_over(&mut self, client: usize, world: World) {
        let zxid = self.ensemble.next_zxid(world.is_fenced());
        if let Some(guard) = &mut self.clients[client].guard
            && guard.number < zxid
        {
            guard.number += 1;
            let number = guard.number;
            self.hand_out(number);
        }
    }

    /// A client releases the lock, or gives its place up.
    pub(super) fn leave(&mut self, client: usize) {
        let has_child = self.ensemble.has_child(client);
        let at = &mut self.clients[client];
        (at.request, at.guard, at.leaves) = (None, None, has_child);
    }

    /// The leader executes the removal of the child.
    pub(super) fn remove(&mut self, client: usize, world: World) {
        self.ensemble.remove_child(client, world.is_fenced());
        self.clients[client].leaves = false;
    }

    /// The leader ends a session that it has not heard of for the timeout.
    pub(super) fn end(&mut self, client: usize, world: World) {
        self.ensemble.end(client, world.is_fenced());
        self.clients[client].leaves = false;
    }

    /// A client connects again. The server asks the leader about the session, or makes a new one.
    pub(super) fn reconnect(&mut self, client: usize) {
        let at = &mut self.clients[client];
        let has_ended = std::mem::take(&mut self.ensemble.sessions[client].has_ended);
        at.request = at.request.filter(|request| matches!(request.stage, Stage::Listed { .. }));
        if let Some(request) = &mut at.request {
            request.is_former |= has_ended;
        }
        at.beat = None;
        at.evidence.connected();
        self.ensemble.sessions[client].is_short = false;
        self.ensemble.forget_beats(client);
        self.ensemble.touch(client);
    }

    /// A client connects to a server that shortens its session, and leaves it: it has no connection then. Its evidence stays.
    pub(super) fn shorten(&mut self, client: usize) {
        let at = &mut self.clients[client];
        at.request = at.request.filter(|request| matches!(request.stage, Stage::Listed { .. }));
        self.ensemble.sessions[client].is_short = true;
        self.ensemble.touch(client);
    }

    /// The follower takes the next message of the leader.
    pub(super) fn take(&mut self, world: World, rules: Rules) {
        if let Some((client, age)) = self.ensemble.take() {
            self.clients[client].evidence.answered(age, world.times(), rules);
        }
    }

    /// A tick passes on all clocks.
    pub(super) fn tick(&mut self, world: World, rules: Rules) {
        let times = world.times();
        self.ensemble.advance(times);
        for client in 0..CLIENTS {
            let at = &mut self.clients[client];
            at.evidence.advance(times, rules);
            at.beat = at.beat.map(|age| age + 1).filter(|age| !times.is_gap(*age));
            if let Some(request) = &mut at.request {
                request.age = times.lease.min(request.age + 1);
            }
            if let Some(guard) = &mut at.guard {
                guard.age += 1;
                if guard.age == times.lease {
                    self.leave(client);
                }
            }
        }
    }
}
