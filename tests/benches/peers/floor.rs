//! The floor of the comparison: the two commands of a lock, sent directly with the redis crate.

use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Value};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::locker::Locker;
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

/// A multiplexed connection to each node. Sends each command to all nodes at once and waits for every
/// reply. It has no validity, no clean-up and no timeout.
#[derive(Clone)]
pub(crate) struct Floor {
    nodes: Vec<MultiplexedConnection>,
    release: Arc<str>,
    /// The local queue of the callers of [`wait`](Locker::wait), in FIFO order.
    queue: Arc<Mutex<()>>,
}

/// The token, and after [`wait`](Locker::wait) the guard of the local queue.
pub(crate) type Held = (String, Option<OwnedMutexGuard<()>>);

impl Floor {
    pub(crate) async fn connect(urls: &[String]) -> Self {
        let nodes = join_all(urls.iter().map(|url| connection(url))).await;
        let mut release = String::new();
        for node in &nodes {
            let mut node = node.clone();
            let mut load = redis::cmd("SCRIPT");
            let load = load.arg("LOAD").arg(RELEASE).query_async(&mut node).await;
            release = load.expect("a loaded script");
        }
        Self { nodes, release: release.into(), queue: Arc::default() }
    }

    /// Makes one round trip to the first node, without work for the server.
    pub(crate) async fn ping(&self) {
        let reply = self.nodes[0].clone().send_packed_command(&redis::cmd("PING")).await;
        reply.expect("a reply");
    }

    /// Sends one command to all nodes, and succeeds if a majority gives the wanted reply.
    async fn ask(&self, command: &Cmd, wanted: &Value) -> Result<(), String> {
        if let [node] = &self.nodes[..] {
            let reply = node.clone().send_packed_command(command).await;
            return if reply.map_err(|error| error.to_string())? == *wanted {
                Ok(())
            } else {
                Err("refused".into())
            };
        }
        let replies = self.nodes.iter().map(|node| {
            let mut node = node.clone();
            async move { node.send_packed_command(command).await }
        });
        let replies = try_join_all(replies).await.map_err(|error| error.to_string())?;
        let granted = replies.iter().filter(|reply| *reply == wanted).count();
        if granted > self.nodes.len() / 2 { Ok(()) } else { Err("refused".into()) }
    }
}

impl Locker for Floor {
    type Held = Held;

    async fn lock(&self, key: &str) -> Result<Held, String> {
        let token = format!("{:032x}", rand::random::<u128>());
        let mut command = Cmd::with_capacity(6, key.len() + 96);
        let millis = LEASE.as_millis().to_string();
        command.arg("SET").arg(key).arg(&token).arg("NX").arg("PX").arg(millis);
        self.ask(&command, &Value::Okay).await?;
        Ok((token, None))
    }

    async fn wait(&self, key: &str) -> Result<Held, String> {
        let place = Arc::clone(&self.queue).lock_owned().await;
        let (token, _) = self.lock(key).await?;
        Ok((token, Some(place)))
    }

    async fn unlock(&self, key: &str, (token, _place): Held) -> Result<(), String> {
        let mut command = Cmd::with_capacity(5, key.len() + 160);
        command.arg("EVALSHA").arg(&*self.release).arg(1).arg(key).arg(&token);
        self.ask(&command, &Value::Int(1)).await
    }
}

async fn connection(url: &str) -> MultiplexedConnection {
    let info = redis::IntoConnectionInfo::into_connection_info(url).expect("a URL");
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let client = Client::open(info.set_tcp_settings(tcp)).expect("a client");
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        // Larger than the number of callers, so that no caller waits for space in the pipeline.
        .set_pipeline_buffer_size(1024);
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    connection.expect("a connection")
}
