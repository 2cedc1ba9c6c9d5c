//! What is left when all should be over.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::nodes::Nodes;
use crate::probe::Probe;

/// How long clearing up in the background may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sees what was there before a test's work, and waits for all that came with it to go: keys and
/// subscriptions and connections on the servers, tasks of the runtime.
#[derive(Debug)]
pub struct Traces<'a> {
    nodes: &'a Nodes,
    probes: Vec<Probe>,
    connections: Vec<usize>,
    tasks: usize,
}

impl<'a> Traces<'a> {
    /// Looks around, when the managers that stay have connected and have held a lock.
    ///
    /// # Panics
    ///
    /// When a server does not answer.
    pub async fn look(nodes: &'a Nodes) -> Self {
        let mut probes = Vec::new();
        if let Some(servers) = nodes.servers() {
            for server in servers.iter() {
                probes.push(server.probe().await);
            }
        }
        nodes.become_empty().await;
        let mut traces = Self { nodes, probes, connections: Vec::new(), tasks: 0 };
        // The fewest of a while: something may just be ending.
        let (mut connections, mut tasks) = (traces.count_connections().await, tasks());
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            connections = connections.min(traces.count_connections().await);
            tasks = tasks.min(self::tasks());
        }
        (traces.connections, traces.tasks) = (connections, tasks);
        traces
    }

    /// Waits until nothing more is there than at the beginning.
    ///
    /// # Panics
    ///
    /// When something still is after twenty seconds; the message says after what and how much.
    pub async fn are_gone(&mut self, after: &str) {
        let mut left = Vec::new();
        let gone = tokio::time::timeout(PATIENCE, async {
            let mut pause = Duration::from_micros(200);
            loop {
                left = self.what_is_left().await;
                if left.is_empty() {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(10));
            }
        });
        assert!(gone.await.is_ok(), "{after}: left behind: {}", left.join(", "));
    }

    async fn what_is_left(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        let tasks = tasks();
        if tasks > self.tasks {
            left.push(format!("{tasks} tasks instead of {}", self.tasks));
        }
        if self.probes.is_empty() && self.nodes.locks().await > 0 {
            left.push("a lock in memory".to_owned());
        }
        for probe in &mut self.probes {
            let keys = probe.keys().await;
            // The counter of fenced locks stays.
            for key in keys.iter().filter(|key| !key.contains("redlock:fencing")) {
                left.push(format!("the key {key}"));
            }
            let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS"]).await;
            for channel in channels {
                left.push(format!("a subscription of {channel}"));
            }
        }
        let connections = self.count_connections().await;
        if connections > self.connections {
            left.push(format!("connections {connections:?} instead of {:?}", self.connections));
        }
        left
    }

    async fn count_connections(&mut self) -> Vec<usize> {
        let mut counts = Vec::with_capacity(self.probes.len());
        for probe in &mut self.probes {
            counts.push(probe.command::<String>(["CLIENT", "LIST"]).await.lines().count());
        }
        counts
    }
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}
