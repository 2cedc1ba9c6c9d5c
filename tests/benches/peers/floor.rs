//! The floors of the comparison: the two commands of a lock, sent directly with the redis crate.
//!
//! The **plain** floor uses the redis crate as it comes: with its default settings, by `Cmd::query_async`. The **batched** floor gives it a
//! [stream](crate::batching) that writes the commands of many callers together, as this library does.

use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisResult, Value,
};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::batching::{Batching, InFlight};
use crate::lockers::Locker;
use crate::settings::LEASE;

/// A copy of this library's release script, so that the server has the same work to do.
const RELEASE: &str = "\
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and value.err then return -3 end
if value ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
local subscribers = redis.pcall('PUBLISH', KEYS[1], '0')
if type(subscribers) ~= 'number' then return 1 end
return 1 + subscribers";

/// The number of bytes after which the driver of the batched floor writes, even if more commands are ready.
const WRITE_BOUNDARY: usize = 16 * 1024;

/// A multiplexed connection to each node. Sends each command to all nodes at once and waits for every
/// reply, at most for the response timeout of the redis crate. It has no validity and no clean-up.
#[derive(Clone)]
pub(crate) struct Floor {
    nodes: Vec<Node>,
    release: Arc<str>,
    /// The local queue of the callers that wait, in FIFO order.
    queue: Arc<Mutex<()>>,
}

/// The token, and the place in the local queue of a caller that has waited.
pub(crate) type Held = (String, Option<OwnedMutexGuard<()>>);

impl Floor {
    /// Connects with the redis crate as it comes, except that Nagle's algorithm is off. Without that, the
    /// second of two commands waits for a round trip.
    pub(crate) async fn plain(urls: &[String]) -> Self {
        Self::new(join_all(urls.iter().map(|url| Node::plain(url))).await).await
    }

    /// Connects with the redis crate over a stream that batches.
    pub(crate) async fn batched(urls: &[String]) -> Self {
        Self::new(join_all(urls.iter().map(|url| Node::batched(url, urls.len() == 1))).await).await
    }

    async fn new(nodes: Vec<Node>) -> Self {
        let mut release = String::new();
        for node in &nodes {
            let mut connection = node.connection.clone();
            let mut load = redis::cmd("SCRIPT");
            let sha = load.arg("LOAD").arg(RELEASE).query_async(&mut connection).await;
            release = sha.expect("a loaded script");
        }
        Self { nodes, release: release.into(), queue: Arc::default() }
    }

    /// Makes one round trip to the first node, without work for the server.
    pub(crate) async fn ping(&self) {
        self.nodes[0].send(&redis::cmd("PING")).await.expect("a reply");
    }

    /// Sends one command to all nodes, and succeeds if a majority gives the wanted reply.
    async fn ask(&self, command: &Cmd, wanted: &Value) -> Result<(), String> {
        if let [node] = &self.nodes[..] {
            let reply = node.send(command).await.map_err(|error| error.to_string())?;
            return if reply == *wanted { Ok(()) } else { Err("refused".into()) };
        }
        let replies = try_join_all(self.nodes.iter().map(|node| node.send(command))).await;
        let replies = replies.map_err(|error| error.to_string())?;
        let granted = replies.iter().filter(|reply| *reply == wanted).count();
        if granted > self.nodes.len() / 2 { Ok(()) } else { Err("refused".into()) }
    }
}

/// The connection to one node.
#[derive(Clone)]
struct Node {
    connection: MultiplexedConnection,
    /// Counts the commands of the batched floor.
    in_flight: Option<InFlight>,
}

impl Node {
    async fn plain(url: &str) -> Self {
        let info = information(url);
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(tcp)).expect("a client");
        let connection = client.get_multiplexed_async_connection().await;
        Self { connection: connection.expect("a connection"), in_flight: None }
    }

    async fn batched(url: &str, is_only_node: bool) -> Self {
        let info = information(url);
        let ConnectionAddr::Tcp(host, port) = info.addr() else { panic!("only TCP is batched") };
        let stream = TcpStream::connect((&**host, *port)).await.expect("a connection");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        let in_flight = InFlight::default();
        let stream = Batching::new(stream, in_flight.clone(), is_only_node);
        let settings = AsyncConnectionConfig::new().set_write_backpressure_boundary(WRITE_BOUNDARY);
        let connection =
            MultiplexedConnection::new_with_config(info.redis_settings(), stream, settings).await;
        let (connection, driver) = connection.expect("a connection");
        tokio::spawn(driver);
        Self { connection, in_flight: Some(in_flight) }
    }

    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let mut connection = self.connection.clone();
        let reply = command.query_async(&mut connection);
        match &self.in_flight {
            Some(in_flight) => in_flight.count(reply).await,
            None => reply.await,
        }
    }
}

fn information(url: &str) -> ConnectionInfo {
    url.into_connection_info().expect("a URL")
}

impl Locker for Floor {
    type Held = Held;

    async fn lock(&self, key: &str, waits: bool) -> Result<Held, String> {
        let place = if waits { Some(Arc::clone(&self.queue).lock_owned().await) } else { None };
        let token = format!("{:032x}", rand::random::<u128>());
        let mut command = Cmd::with_capacity(6, key.len() + 96);
        let millis = LEASE.as_millis().to_string();
        command.arg("SET").arg(key).arg(&token).arg("NX").arg("PX").arg(millis);
        self.ask(&command, &Value::Okay).await?;
        Ok((token, place))
    }

    async fn unlock(&self, key: &str, (token, _place): Held) -> Result<(), String> {
        let mut command = Cmd::with_capacity(5, key.len() + 160);
        command.arg("EVALSHA").arg(&*self.release).arg(1).arg(key).arg(&token);
        self.ask(&command, &Value::Int(1)).await
    }
}
