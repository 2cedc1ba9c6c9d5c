//! Counts the resources of a measurement: processor time here and on the servers, commands, memory.

use std::time::Duration;

use redlock_tests::{Probe, RedisServer};
use rustix::time::{ClockId, clock_gettime};

/// The commands that the compared clients send. A server also counts commands that scripts call, and
/// those of this benchmark.
const SENT: [&str; 6] = ["set", "evalsha", "eval", "script|load", "subscribe", "unsubscribe"];

/// Reads the usage of this process and of some servers.
#[derive(Clone)]
pub(crate) struct Meter {
    servers: Vec<(i32, Probe)>,
}

/// The usage up to now, or between two readings.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) client: Duration,
    pub(crate) servers: Duration,
    pub(crate) commands: u64,
}

impl Meter {
    /// Meters all servers that are up.
    pub(crate) async fn over(servers: &[RedisServer]) -> Self {
        let mut metered = Vec::with_capacity(servers.len());
        for server in servers.iter().filter(|server| server.is_up()) {
            metered.push((server.process_id(), server.probe().await));
        }
        Self { servers: metered }
    }

    /// Reads the usage so far. It reads the processor times last and [`end`](Self::end) reads them first,
    /// so that the difference does not contain the cost of the readings.
    pub(crate) async fn begin(&mut self) -> Usage {
        let commands = self.commands().await;
        Usage { client: processor_time(), servers: self.processor_time(), commands }
    }

    /// Returns the usage since `begun`.
    pub(crate) async fn end(&mut self, begun: Usage) -> Usage {
        let (client, servers) = (processor_time(), self.processor_time());
        Usage {
            client: client.saturating_sub(begun.client),
            servers: servers.saturating_sub(begun.servers),
            commands: self.commands().await.saturating_sub(begun.commands),
        }
    }

    async fn commands(&mut self) -> u64 {
        let mut commands = 0;
        for (_, probe) in &mut self.servers {
            let calls = probe.calls().await;
            commands += SENT.iter().filter_map(|name| calls.get(*name)).sum::<u64>();
        }
        commands
    }

    fn processor_time(&self) -> Duration {
        self.servers.iter().map(|(id, _)| processor_time_of(*id)).sum()
    }
}

/// Returns the processor time of all threads of this process.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Returns the processor time of a server's main thread, which does all the work; zero on systems without
/// `/proc`.
fn processor_time_of(process: i32) -> Duration {
    let statistics = std::fs::read_to_string(format!("/proc/{process}/schedstat"));
    let nanos = statistics.ok().and_then(|text| text.split(' ').next()?.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

/// Returns the resident memory of this process, in bytes; zero on systems without `/proc`.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or_default() * 1024
}
