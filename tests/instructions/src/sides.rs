//! The two sides of the comparison.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, Value};
use futures_util::future::{join_all, try_join_all};
use redlock_core::{LockManager, LockManagerBuilder, scope, simulation};

use crate::server::{Connection, Server};

const KEY: &str = "order:42";
/// The name of a script, as long as a real one.
const SHA: &str = "0123456789abcdef0123456789abcdef01234567";
const LEASE: Duration = Duration::from_secs(30);

/// Runs pairs of an acquisition and a release.
pub(crate) fn run(side: &str, nodes: usize, pairs: u64) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().expect("a runtime");
    runtime.block_on(async {
        match side {
            "ours" => ours(&connect(nodes, |builder| builder).await, pairs).await,
            "ordered" => one_of_a_request(&connect(nodes, |builder| builder).await, pairs).await,
            "unordered" => {
                let locks = connect(nodes, |builder| builder.lock_order(false)).await;
                one_of_a_request(&locks, pairs).await;
            }
            "memory" => ours(&LockManager::in_memory(), pairs).await,
            "spans" => (0..pairs).for_each(|_| simulation::trace_a_pair("order:{id}")),
            #[cfg(feature = "metrics")]
            "recorder" => {
                let recorder = metrics_exporter_prometheus::PrometheusBuilder::new();
                recorder.install_recorder().expect("a recorder");
                ours(&connect(nodes, |builder| builder).await, pairs).await;
            }
            "floor" => floor(nodes, pairs).await,
            other => panic!("unknown side {other}"),
        }
    });
}

/// Connects to servers in memory.
async fn connect(
    nodes: usize,
    set: impl FnOnce(LockManagerBuilder) -> LockManagerBuilder,
) -> LockManager {
    let urls: Vec<_> = (0..nodes).map(|number| format!("redis://server-{number}")).collect();
    let begun = Instant::now();
    let dial = |url: &str| -> Arc<dyn simulation::Dial> {
        let number = url.rsplit('-').next().and_then(|number| number.parse().ok());
        Arc::new(Server { number: number.expect("a number") })
    };
    // Under valgrind, a connection takes seconds on a busy machine.
    let limit = Duration::from_secs(60);
    let builder = LockManager::builder()
        .owner_label("shop-7f9c6d5b48-x2x:4121")
        .urls(&urls)
        .connect_timeout(limit);
    simulation::connect(set(builder), move || begun.elapsed(), dial).await.expect("a manager")
}

async fn ours(locks: &LockManager, pairs: u64) {
    for _ in 0..pairs {
        let guard = locks.lock(KEY).expire(LEASE).try_acquire().await.expect("a lock");
        guard.release().await.expect("a release");
    }
}

/// Each request has one lock, for which it may wait.
async fn one_of_a_request(locks: &LockManager, pairs: u64) {
    for _ in 0..pairs {
        scope(async {
            let request = locks.lock(KEY).named("order:{id}").expire(LEASE).wait_time(LEASE);
            request.acquire().await.expect("a lock").release().await.expect("a release");
        })
        .await;
    }
}

/// The commands of a lock, sent with the redis crate as it comes: with its default settings, by
/// [`Cmd::query_async`].
async fn floor(nodes: usize, pairs: u64) {
    let connections = (0..nodes).map(|number| async move {
        let (info, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::new());
        let stream = Connection::new(number as u64);
        let (connection, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
            .await
            .expect("a connection");
        tokio::spawn(driver);
        connection
    });
    let nodes = join_all(connections).await;
    for _ in 0..pairs {
        let token = format!("{:032x}", rand::random::<u128>());
        let mut set = Cmd::with_capacity(6, KEY.len() + 96);
        let millis = u64::try_from(LEASE.as_millis()).expect("a short time");
        set.arg("SET").arg(KEY).arg(&token).arg("NX").arg("PX").arg(millis);
        ask(&nodes, &set, &Value::Okay).await;
        let mut release = Cmd::with_capacity(5, KEY.len() + 160);
        release.arg("EVALSHA").arg(SHA).arg(1).arg(KEY).arg(&token);
        ask(&nodes, &release, &Value::Int(1)).await;
    }
}

/// Sends one command to all nodes, and waits for every reply.
async fn ask(nodes: &[MultiplexedConnection], command: &Cmd, wanted: &Value) {
    if let [node] = nodes {
        let reply: Value = command.query_async(&mut node.clone()).await.expect("a reply");
        assert_eq!(reply, *wanted);
        return;
    }
    let replies = nodes.iter().map(|node| {
        let mut node = node.clone();
        async move { command.query_async::<Value>(&mut node).await }
    });
    let replies = try_join_all(replies).await.expect("replies");
    assert!(replies.iter().all(|reply| reply == wanted));
}
