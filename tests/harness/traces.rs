//! Finds keys, subscriptions, connections and tasks that a test left behind.

use std::any::Any;
use std::time::Duration;

use redlock_core::test_util::node_tests::TestStore;
use tokio::runtime::Handle;

use crate::eventually::eventually;
use crate::nodes::Nodes;
use crate::probe::Probe;
use crate::sentinel_group::FailoverGroup;
use crate::stores::redis_servers;

/// The longest time for clean-up in the background, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Counts the connections to the servers and the tasks of the runtime before a test's work, and waits until
/// the work has left nothing behind: no key, subscription, connection or task.
#[derive(Debug)]
pub struct Traces<'a> {
    nodes: &'a Nodes,
    probes: Vec<Probe>,
    connections: Vec<usize>,
    tasks: usize,
    /// A key that is no trace.
    foreign: Option<String>,
}

impl<'a> Traces<'a> {
    /// Counts the connections and the tasks. Call it after the long-lived managers have connected and have
    /// held a lock, so that the counts include their connections and tasks.
    ///
    /// # Panics
    ///
    /// If a server does not answer.
    pub async fn look(nodes: &'a Nodes) -> Self {
        let mut probes = Vec::new();
        for server in nodes.servers() {
            probes.push(server.probe().await);
        }
        nodes.become_empty().await;
        for store in nodes.iter() {
            if let Some(group) = (&**store as &dyn Any).downcast_ref() {
                are_watched(group).await;
            }
        }
        let mut traces = Self { nodes, probes, connections: Vec::new(), tasks: 0, foreign: None };
        // Take the minimum over 100 ms, because a connection or a task may just be ending.
        let (mut connections, mut tasks) = (traces.count_connections().await, tasks());
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            connections = connections.min(traces.count_connections().await);
            tasks = tasks.min(self::tasks());
        }
        (traces.connections, traces.tasks) = (connections, tasks);
        traces
    }

    /// Sets a key on each server that is no trace: a lock that another process seems to hold for five minutes.
    ///
    /// # Panics
    ///
    /// If a server does not answer.
    pub async fn set_foreign_key(&mut self, key: &str) {
        for probe in &mut self.probes {
            probe.command::<()>(["SET", key, "of another process", "PX", "300000"]).await;
        }
        self.foreign = Some(key.to_owned());
    }

    /// Returns how often the first server has read from a client.
    ///
    /// # Panics
    ///
    /// If there is no server, or it does not answer.
    pub async fn reads(&mut self) -> usize {
        let probe = self.probes.first_mut().expect("a server");
        let stats: String = probe.command(["INFO", "stats"]).await;
        let mut lines = stats.lines();
        let count = lines.find_map(|line| line.strip_prefix("total_reads_processed:"));
        count.and_then(|count| count.trim().parse().ok()).expect("the number of reads")
    }

    /// Waits until no key and no subscription is left, and no more connections and tasks than at the
    /// beginning.
    ///
    /// # Panics
    ///
    /// If anything is left after twenty seconds. The message contains `after`, and lists what is left.
    pub async fn are_gone(&mut self, after: &str) {
        let mut left = Vec::new();
        let gone = tokio::time::timeout(PATIENCE, async {
            let mut pause = Duration::from_micros(200);
            loop {
                left = self.leftovers().await;
                if left.is_empty() {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(10));
            }
        });
        assert!(gone.await.is_ok(), "left behind after {after}: {}", left.join(", "));
    }

    async fn leftovers(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        let tasks = tasks();
        if tasks > self.tasks {
            left.push(format!("{tasks} tasks instead of {}", self.tasks));
        }
        for store in self.others() {
            if store.locks().await > 0 {
                left.push("a lock".to_owned());
            }
            left.extend(store.leftovers().await);
        }
        for probe in &mut self.probes {
            let keys = probe.keys().await;
            // The counter of the fencing tokens stays.
            let stays = |key: &String| {
                key.contains("redlock:fencing") || self.foreign.as_ref() == Some(key)
            };
            for key in keys.iter().filter(|key| !stays(key)) {
                left.push(format!("the key {key}"));
            }
            let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS"]).await;
            for channel in channels {
                left.push(format!("a subscription to {channel}"));
            }
        }
        let connections = self.count_connections().await;
        if connections > self.connections {
            left.push(format!("connections {connections:?} instead of {:?}", self.connections));
        }
        left
    }

    /// Returns the stores that are no Redis servers.
    fn others(&self) -> impl Iterator<Item = &'a dyn TestStore> + use<'a> {
        let nodes: &'a Nodes = self.nodes;
        nodes.iter().map(|store| &**store).filter(|store| redis_servers(*store).is_empty())
    }

    async fn count_connections(&mut self) -> Vec<usize> {
        let mut counts = Vec::with_capacity(self.nodes.len());
        for store in self.others() {
            counts.push(store.connections().await);
        }
        for probe in &mut self.probes {
            counts.push(probe.command::<String>(["CLIENT", "LIST"]).await.lines().count());
        }
        counts
    }
}

/// Waits until the managers, which connect to the first sentinel that answers, watch all sentinels.
async fn are_watched(group: &FailoverGroup) {
    let mut probes = Vec::new();
    for sentinel in &group.sentinels {
        probes.push(sentinel.probe().await);
    }
    eventually("the sentinels are watched", PATIENCE, async || {
        let mut watchers = Vec::new();
        for probe in &mut probes {
            let clients: String = probe.command(["CLIENT", "LIST", "TYPE", "pubsub"]).await;
            watchers.push(clients.lines().count());
        }
        watchers.iter().all(|count| *count > 0 && *count == watchers[0]).then_some(())
    })
    .await;
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}
