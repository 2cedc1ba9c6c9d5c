//! Makes and checks the connections of the pool.

use std::sync::Arc;
use std::time::Duration;

use bb8_redis::bb8;
use bb8_redis::redis::{Cmd, PushKind, RedisError, Value};
use futures_util::future::{try_join, try_join_all};

use super::endpoint::Endpoint;
use super::refusable::{none_if_refused, text};
use super::replication::{self, LagSetting};
use super::route::Route;
use super::{Connection, Identity};
use crate::clock::Clock;
use crate::error::NodeError;
use crate::node::redis::delayed_restart::wall_clock::Reading;
use crate::node::redis::link::Link;
use crate::node::redis::script::Script;
use crate::node::redis::sentinel::Master;
use crate::node::redis::subscriptions::Subscriptions;
use crate::node::redis::{encode, error};

/// Makes connections that are ready for use: after the handshake, with loaded scripts and a known identity.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    pub(crate) route: Route,
    pub(crate) connect_timeout: Duration,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether to read how long a master accepts writes after it was cut off.
    pub(crate) reads_max_lag: bool,
    /// Whether a connection reads the replies to several commands in slices.
    pub(crate) reads_in_slices: bool,
}

impl Connector {
    async fn connect_to(
        &self,
        endpoint: &Endpoint,
        master: Option<Master>,
    ) -> Result<Connection, NodeError> {
        let connect = async {
            let on_push = notify(&self.subscriptions);
            let opened = endpoint.open(self.connect_timeout, self.reads_in_slices, on_push).await?;
            let (link, expiring_login) = opened;
            let time = async { none_if_refused(time(&link, &*self.clock).await) };
            let (scripts, time) = try_join(load_scripts(&link), time).await?;
            let mut identity = Identity { time, ..identify(&link).await? };
            let lag = match self.route {
                Route::Server(_) => None,
                Route::Sentinel(_) => Some(LagSetting::REPLICAS),
                Route::Shard(..) => Some(LagSetting::CLUSTER),
            };
            if lag.is_some() {
                let lag = lag.filter(|_| self.reads_max_lag);
                identity.replication = replication::read(&link, lag).await?;
            }
            let connection = Connection::new(link, scripts, identity);
            Ok(Connection { master, expiring_login, ..connection })
        };
        match connect.await {
            Ok(connection) => Ok(connection),
            Err(error) => Err(not_connected(endpoint, &error).await),
        }
    }
}

async fn not_connected(endpoint: &Endpoint, error: &RedisError) -> NodeError {
    if error.is_connection_dropped()
        && !error.is_connection_refusal()
        && let Some(reason) = endpoint.rejection_reason().await
    {
        return NodeError::Server(reason.into());
    }
    error::not_connected(error)
}

/// An error of the pool.
#[derive(Debug, Clone)]
pub(crate) enum PoolError {
    /// The pool has discarded a broken connection.
    Stale,
    /// No connection could be made.
    Connect(NodeError),
}

impl bb8::ManageConnection for Connector {
    type Connection = Arc<Connection>;
    type Error = PoolError;

    async fn connect(&self) -> Result<Arc<Connection>, PoolError> {
        let connect = async {
            let (endpoint, master) = self.route.next().await?;
            let address = master.as_ref().map(|master| master.address.clone());
            tokio::select! {
                biased;
                connection = self.connect_to(&endpoint, master) => connection.map(Arc::new),
                () = self.route.leaves(address.as_ref()) => {
                    Err(NodeError::NotConnected("another server was promoted meanwhile".into()))
                }
            }
        };
        let words = || format!("no connection within {:?}", self.connect_timeout);
        tokio::time::timeout(self.connect_timeout, connect)
            .await
            .unwrap_or_else(|_| Err(NodeError::NotConnected(words().into())))
            .map_err(PoolError::Connect)
    }

    /// Reads a flag only: the commands themselves, and the check for silence, detect a broken connection.
    async fn is_valid(&self, connection: &mut Arc<Connection>) -> Result<(), PoolError> {
        if connection.is_alive() { Ok(()) } else { Err(PoolError::Stale) }
    }

    fn has_broken(&self, connection: &mut Arc<Connection>) -> bool {
        !connection.is_alive()
    }
}

/// Returns a function that notifies the subscribers of a channel about a message. Other pushes concern nobody: a server of a
/// cluster sends `sunsubscribe` unasked when a slot moves.
pub(crate) fn notify(
    subscriptions: &Arc<Subscriptions>,
) -> impl Fn(PushKind, Vec<Value>) + Send + Sync + use<> {
    let subscriptions = Arc::clone(subscriptions);
    move |kind, data| {
        if kind == PushKind::Message
            && let [Value::BulkString(channel), Value::BulkString(message), ..] = &data[..]
        {
            subscriptions.notify_subscribers(&String::from_utf8_lossy(channel), message);
        }
    }
}

/// Loads all scripts in one round trip.
async fn load_scripts(link: &Link) -> Result<[String; Script::COUNT], RedisError> {
    let loads = Script::ALL.map(|script| async move { text(link, &encode::load(script)).await });
    let mut shas = [const { String::new() }; Script::COUNT];
    for (sha, loaded) in shas.iter_mut().zip(try_join_all(loads).await?) {
        *sha = loaded;
    }
    Ok(shas)
}

async fn identify(link: &Link) -> Result<Identity, RedisError> {
    let mut identity = Identity::default();
    for section in ["server", "memory"] {
        let mut info = Cmd::new();
        info.arg("INFO").arg(section);
        if let Some(text) = none_if_refused(text(link, &info).await)? {
            identity.read(&text);
        }
    }
    Ok(identity)
}

async fn time(link: &Link, clock: &dyn Clock) -> Result<Reading, RedisError> {
    Reading::take(clock, async { link.send(&encode::time()).await }).await
}

impl Identity {
    fn read(&mut self, info: &str) {
        for line in info.lines() {
            match line.split_once(':') {
                Some(("run_id", value)) => self.run_id = Some(value.trim().to_owned()),
                Some(("uptime_in_seconds", value)) => {
                    self.uptime = value.trim().parse().ok().map(Duration::from_secs);
                }
                Some(("maxmemory_policy", value)) => {
                    self.maxmemory_policy = Some(value.trim().to_owned());
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_read_from_info() {
        let mut identity = Identity::default();
        identity.read("# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:42\r\n");
        identity.read("# Memory\r\nmaxmemory_policy:allkeys-lru\r\n");
        assert_eq!(identity.run_id.as_deref(), Some("abc"));
        assert_eq!(identity.uptime, Some(Duration::from_secs(42)));
        assert_eq!(identity.maxmemory_policy.as_deref(), Some("allkeys-lru"));
    }
}
