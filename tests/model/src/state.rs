//! The state of the model: all nodes, clients and messages at one moment.

use crate::client::{Client, Phase};
use crate::network::{Attempt, Connection, InFlight, Message, Request};
use crate::node::{Node, Owner};
use crate::rules::{Rule, Rules};
use crate::world::World;

/// A node and its connections, one from each client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Site<const CLIENTS: usize> {
    pub(crate) node: Node,
    pub(crate) connections: [Connection; CLIENTS],
    /// The clients that share the lock on this node: ticks on the node's clock since each one's lease began.
    pub(crate) readers: [Option<u8>; CLIENTS],
}

/// All nodes, clients and messages at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State<const NODES: usize, const CLIENTS: usize> {
    pub(crate) sites: [Site<CLIENTS>; NODES],
    pub(crate) clients: [Client; CLIENTS],
    /// The highest fencing number that was ever handed out.
    pub(crate) handed_out: u8,
}

impl<const NODES: usize, const CLIENTS: usize> State<NODES, CLIENTS> {
    /// Returns an initial state, in which all clients are idle. The counters may differ, because a node
    /// that could not be reached has missed acquisitions.
    pub(crate) fn new(counters: [u8; NODES]) -> Self {
        Self {
            sites: counters.map(|counter| Site {
                node: Node::new(counter),
                connections: [Connection::default(); CLIENTS],
                readers: [None; CLIENTS],
            }),
            clients: [Client::default(); CLIENTS],
            handed_out: 0,
        }
    }

    /// Returns whether a node has a key of the attempt, or a request of it has not arrived yet.
    pub(crate) fn is_left(&self, client: usize, attempt: Attempt) -> bool {
        let owner = Owner::new(client, attempt);
        self.sites.iter().any(|site| {
            !site.connections[client].of(attempt).is_empty()
                || site.node.holds_key_of(owner)
                || site.has_reader(owner)
        })
    }

    /// Returns whether a client may begin an attempt. The model follows two attempts of a client at most.
    pub(crate) fn may_ask(&self, client: usize, world: World) -> bool {
        let no_former = || (0..CLIENTS).all(|client| !self.is_left(client, Attempt::Former));
        // The model knows only present attempts that share the lock.
        let retries = world.retries && !world.is_shared();
        self.clients[client].phase == Phase::Idle
            && (!self.is_left(client, Attempt::Present) || retries && no_former())
    }

    /// Returns whether a message may be the next one to arrive.
    pub(crate) fn may_arrive(&self, message: Message, rules: Rules) -> bool {
        let Message { client, node, attempt, request } = message;
        let behind = request == Request::Delete && rules.keep(Rule::CleanUpBehindItsSet);
        let in_flight = self.sites[node].connections[client].of(attempt);
        in_flight.has(request) && !(behind && in_flight.acquires())
    }

    /// Drops messages that can have no effect, so that states which differ only in such messages become
    /// one.
    ///
    /// If neither the SET of an attempt, or its request to share, is in flight nor its key on the node, the node has nothing that
    /// another request of the attempt could change.
    pub(crate) fn settle(&mut self, rules: Rules) {
        if !rules.late_messages_are_harmless() {
            return;
        }
        for site in &mut self.sites {
            for client in 0..CLIENTS {
                for attempt in [Attempt::Present, Attempt::Former] {
                    let owner = Owner::new(client, attempt);
                    let is_there = site.node.holds_key_of(owner) || site.has_reader(owner);
                    let in_flight = site.connections[client].of_mut(attempt);
                    if !in_flight.acquires() && !is_there {
                        *in_flight = InFlight::default();
                    }
                }
            }
        }
    }
}
