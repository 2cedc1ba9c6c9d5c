//! All nodes, all clients and all that is between them, at one moment.

use crate::client::{Client, Phase};
use crate::network::{Attempt, Connection, Message, Request, UnderWay};
use crate::node::{Node, Owner};
use crate::rules::{Rule, Rules};
use crate::world::World;

/// A node and its connections, one from each client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Site<const CLIENTS: usize> {
    pub(crate) node: Node,
    pub(crate) connections: [Connection; CLIENTS],
}

/// All nodes, all clients and all that is between them, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State<const NODES: usize, const CLIENTS: usize> {
    pub(crate) sites: [Site<CLIENTS>; NODES],
    pub(crate) clients: [Client; CLIENTS],
    /// The highest fencing number that was ever handed out.
    pub(crate) handed_out: u8,
}

impl<const NODES: usize, const CLIENTS: usize> State<NODES, CLIENTS> {
    /// Nobody wants anything. The counters may differ: a node that could not be reached has counted
    /// less.
    pub(crate) fn new(counters: [u8; NODES]) -> Self {
        Self {
            sites: counters.map(|counter| Site {
                node: Node::new(counter),
                connections: [Connection::default(); CLIENTS],
            }),
            clients: [Client::default(); CLIENTS],
            handed_out: 0,
        }
    }

    /// Whether something of an attempt is left, on a node or on the way there.
    pub(crate) fn is_left(&self, client: usize, attempt: Attempt) -> bool {
        let owner = Owner::new(client, attempt);
        self.sites.iter().any(|site| {
            !site.connections[client].of(attempt).is_nothing() || site.node.holds_key_of(owner)
        })
    }

    /// Whether a client can begin an attempt that the model can tell from its earlier ones.
    pub(crate) fn may_ask(&self, client: usize, world: World) -> bool {
        let no_former = || (0..CLIENTS).all(|client| !self.is_left(client, Attempt::Former));
        self.clients[client].phase == Phase::Idle
            && (!self.is_left(client, Attempt::Present) || world.retries && no_former())
    }

    /// Whether a message may be the next to arrive.
    pub(crate) fn may_arrive(&self, message: Message, rules: Rules) -> bool {
        let Message { client, node, attempt, request } = message;
        let behind = request == Request::Delete && rules.keep(Rule::CleanUpBehindItsSet);
        let under_way = self.sites[node].connections[client].of(attempt);
        under_way.has(request) && !(behind && under_way.has(Request::Set))
    }

    /// Drops what can have no effect any more, so that states that differ in nothing else are one.
    ///
    /// Once its SET is not under way and its key is not there, no request of an attempt finds
    /// anything to change on that node.
    pub(crate) fn settle(&mut self, rules: Rules) {
        if !rules.clean_up_is_harmless() {
            return;
        }
        for Site { node, connections } in &mut self.sites {
            for (client, connection) in connections.iter_mut().enumerate() {
                for attempt in [Attempt::Present, Attempt::Former] {
                    let under_way = connection.of_mut(attempt);
                    let is_there = node.holds_key_of(Owner::new(client, attempt));
                    if !under_way.has(Request::Set) && !is_there {
                        *under_way = UnderWay::default();
                    }
                }
            }
        }
    }
}
