//! A node whose servers are played by the test.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;

use super::encode::NativeCommand;
use super::server::connection::Connection;
use super::server::native::NativeCommands;
use super::server::played_server::{played_connection, played_connection_with};
use super::server::{Observer, Server};
use super::*;
use crate::key::LockKey;
use crate::lock::{Dialect, Mode, Token};
use crate::node::{Action, Ask};
use crate::store::kit::provider::Provider;

pub(super) const LEASE: Duration = Duration::from_secs(30);

pub(super) const HELD: Action =
    Action::Acquire { lease: LEASE, fenced: false, ask: Ask { skip_lookup: true, ..Ask::FIRST } };

pub(super) const RELEASE: Action = Action::Release { min_hold: None };

pub(super) fn settings(restart_guard: Option<Duration>) -> NodeSettings {
    NodeSettings { restart_guard, ..NodeSettings::for_tests(LEASE) }
}

/// Creates the node of a URL. It is not started.
pub(super) fn node(url: &str) -> RedisNode {
    let url = RedisUrl::parse(url).unwrap();
    RedisNode::new(RedisOptions {
        endpoint: Endpoint::of_one(&url),
        url,
        registry: Arc::default(),
        locks: CheckedLocks::default(),
        cluster_refresh: LEASE,
        is_only_node: true,
    })
}

impl RedisNode {
    pub(super) fn set_provider(&self, provider: Provider) {
        self.options.lock().as_mut().unwrap().url.login.provider = Some(provider);
    }

    /// Prepares the node without its tasks.
    pub(super) fn prepare(&self, settings: &NodeSettings) -> Arc<RedisState> {
        let RedisOptions { url, registry, cluster_refresh, .. } =
            self.options.lock().take().unwrap();
        let settings = ServerSettings {
            voter: Arc::clone(&self.name),
            registry,
            refresh: cluster_refresh,
            ..ServerSettings::for_tests(settings.clone())
        };
        // A runtime that has ended drops the tasks of the servers.
        let ended = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let runtime = ended.handle().clone();
        ended.shutdown_background();
        let state = RedisState::new(url, settings, self.status.clone(), &runtime);
        Arc::clone(self.started.get_or_init(|| state))
    }
}

pub(super) fn spec() -> LockSpec {
    LockSpec::new(LockKey::new("order:42").unwrap(), Mode::Exclusive, Dialect::Plain)
}

/// A node of one server that the test plays.
pub(super) struct PlayedNode {
    pub(super) node: RedisNode,
    pub(super) state: Arc<RedisState>,
    pub(super) server: DuplexStream,
}

impl PlayedNode {
    pub(super) fn new(node_timeout: Duration) -> Self {
        let node = node("redis://localhost");
        let state = node.prepare(&NodeSettings::for_tests(node_timeout));
        state.map.insert_one("redis://localhost");
        let mut played = Self { node, state, server: tokio::io::duplex(1).0 };
        played.connect();
        played
    }

    /// Connects the server, again.
    pub(super) fn connect(&mut self) {
        self.connect_with(true, NativeCommands::default());
    }

    /// Connects a server that keeps RESP2's rules for subscriptions.
    pub(super) fn connect_without_subscriptions(&mut self) {
        self.connect_with(false, NativeCommands::default());
    }

    /// Connects a server that has these commands in place of scripts.
    pub(super) fn connect_with_native(&mut self, native: NativeCommands) {
        self.connect_with(true, native);
    }

    fn connect_with(&mut self, takes_subscriptions: bool, native: NativeCommands) {
        let observer = Arc::downgrade(&self.state);
        let (mut connection, server) = played_connection_with(move |event| {
            if let Some(observer) = observer.upgrade() {
                observer.received(event);
            }
        });
        (connection.takes_subscriptions, connection.native) = (takes_subscriptions, native);
        self.set(Ok(Arc::new(connection)));
        self.server = server;
    }

    pub(super) fn set(&self, state: Result<Arc<Connection>, NodeError>) {
        self.owner().set(state);
    }

    pub(super) fn owner(&self) -> Arc<Server> {
        self.state.map.owner_of(0).unwrap()
    }
}

/// A cluster of two masters that the test plays.
pub(super) struct PlayedCluster {
    pub(super) node: RedisNode,
    pub(super) state: Arc<RedisState>,
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
        let node = node("redis-cluster://a:1,b:2");
        let state = node.prepare(&settings(restart_guard));
        let slot = slot("order:42");
        let mut masters = Vec::new();
        for address in ["b:2", "a:1"] {
            let server = state.map.insert_owner(slot, address);
            let (connection, master) = played_connection();
            server.set(Ok(Arc::new(connection)));
            masters.insert(0, master);
        }
        let masters = masters.try_into().unwrap();
        let (spec, token) = (spec(), Token::random(Dialect::Plain));
        Self { node, state, slot, spec, token, masters }
    }

    /// Connects masters that have this command in place of the script of a release.
    pub(super) fn connect_with_native(&mut self, delete: NativeCommand) {
        for number in [0, 1] {
            let (mut connection, master) = played_connection();
            connection.native = NativeCommands::only(Some(delete), false);
            self.master(number).set(Ok(Arc::new(connection)));
            self.masters[number] = master;
        }
    }

    /// Returns the future of an operation of the attempt.
    pub(super) fn call(&self, action: Action) -> ReplyFuture {
        self.node.call(Op::new(&self.spec, self.token, action))
    }

    /// Makes the second master the owner, as after a reading of the slots.
    pub(super) fn move_slot(&self) {
        self.state.map.insert_owner(self.slot, "b:2");
    }

    /// Returns the first or the second master.
    pub(super) fn master(&self, number: usize) -> Arc<Server> {
        let name = ["a:1", "b:2"][number];
        let mut all = self.state.map.all().into_iter();
        all.find(|server| **server.name() == *name).unwrap()
    }

    pub(super) fn redirect(&self, kind: &str) -> String {
        format!("-{kind} {} b:2\r\n", self.slot)
    }
}

/// Returns the future of an operation of a new attempt.
pub(super) fn call(node: &RedisNode, action: Action) -> ReplyFuture {
    node.call(Op::new(&spec(), Token::random(Dialect::Plain), action))
}
