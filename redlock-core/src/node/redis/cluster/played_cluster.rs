//! A cluster whose masters are played by the test.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;

use super::redirect::Redirect;
use super::*;
use crate::key::LockKey;
use crate::lock::{Dialect, Mode, Token};
use crate::node::redis::connection::played_server::played_connection;
use crate::node::redis::url::RedisUrl;
use crate::node::redis::{ConnectionState, NodeSettings};

pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const HELD: Action =
    Action::Acquire { lease: LEASE, fenced: false, lookup: false, met_marks: false, mark: None };
pub(super) const RELEASE: Action = Action::Release { min_hold: None };

/// A cluster of two masters that the test plays.
pub(super) struct PlayedCluster {
    pub(super) node: Arc<ClusterNode>,
    pub(super) slot: usize,
    spec: LockSpec,
    token: Token,
    pub(super) masters: [DuplexStream; 2],
}

impl PlayedCluster {
    /// Makes a cluster whose first master owns the slot of the lock.
    pub(super) fn new() -> Self {
        Self::with_restart_guard(None)
    }

    pub(super) fn with_restart_guard(restart_guard: Option<Duration>) -> Self {
        let node = ClusterNode::new(settings(restart_guard));
        let key = LockKey::new("order:42").unwrap();
        let slot = slot(key.name());
        let mut masters = Vec::new();
        for server in ["b:2", "a:1"] {
            let redirect = redirect("MOVED", slot, server);
            let shard = node.cluster.shards.follow(&redirect, None);
            let (connection, master) = played_connection();
            shard.set(ConnectionState::Up(Arc::new(connection)));
            masters.insert(0, master);
        }
        let spec = LockSpec::new(key, Mode::Exclusive, Dialect::Plain);
        let masters = masters.try_into().unwrap();
        Self { node, slot, spec, token: Token::random(Dialect::Plain), masters }
    }

    /// Returns the future of an operation of the attempt.
    pub(super) fn call(&self, action: Action) -> ReplyFuture {
        self.node.call(Op::new(&self.spec, self.token, action))
    }

    /// Makes the second master the owner, as after a reading of the slots.
    pub(super) fn move_slot(&self) {
        self.node.cluster.shards.follow(&redirect("MOVED", self.slot, "b:2"), None);
    }

    /// Returns the shard of the first or the second master.
    pub(super) fn shard(&self, number: usize) -> Arc<RedisNode> {
        let name = ["a:1", "b:2"][number];
        let mut all = self.node.cluster.shards.all().into_iter();
        all.find(|shard| **shard.name() == *name).unwrap()
    }

    pub(super) fn redirect(&self, kind: &str) -> String {
        format!("-{kind} {} b:2\r\n", self.slot)
    }
}

fn redirect(kind: &str, slot: usize, server: &str) -> Redirect {
    Redirect::of(&NodeError::Server(format!("{kind} {slot} {server}").into())).unwrap()
}

pub(super) fn settings(restart_guard: Option<Duration>) -> ShardSettings {
    ShardSettings {
        url: RedisUrl::parse("redis-cluster://a:1,b:2").unwrap(),
        node: NodeSettings { restart_guard, ..NodeSettings::for_tests(LEASE, LEASE) },
        refresh: LEASE,
    }
}

/// Returns the future of an operation of a new attempt.
pub(super) fn call(node: &ClusterNode, action: Action) -> ReplyFuture {
    let key = LockKey::new("order:42").unwrap();
    let spec = LockSpec::new(key, Mode::Exclusive, Dialect::Plain);
    node.call(Op::new(&spec, Token::random(Dialect::Plain), action))
}
