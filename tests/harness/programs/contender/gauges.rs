//! Compares the gauges of the process with the snapshots of its managers.

use std::fmt;
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use redlock_core::{LockManager, METRIC_BUCKETS};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The pause between two comparisons.
const PAUSE: Duration = Duration::from_millis(25);
/// The most comparisons in a row that may meet a change, or find a difference.
const MOST: usize = 1_000;

/// The gauges of this process.
pub(crate) struct Gauges(PrometheusHandle);

/// How many locks are held, and how many callers wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    held: usize,
    waiting: usize,
}

/// The gauges did not agree with the snapshots.
#[derive(Debug)]
pub(crate) struct Drift(String);

impl Gauges {
    /// Installs the recorder. Call it before the managers are created.
    pub(crate) fn install() -> Result<Self, BuildError> {
        // Without boundaries, the recorder would compute quantiles at each reading.
        let recorder = PrometheusBuilder::new().set_buckets(METRIC_BUCKETS)?;
        recorder.install_recorder().map(Self)
    }

    fn read(&self) -> Counts {
        let metrics = self.0.render();
        let sum = |name: &str| {
            let of_name = metrics.lines().filter_map(|line| line.strip_prefix(name));
            let values = of_name.filter_map(|rest| rest.rsplit(' ').next()?.parse::<isize>().ok());
            // A gauge below zero is no count.
            usize::try_from(values.sum::<isize>()).unwrap_or(usize::MAX)
        };
        Counts { held: sum("redlock_held{"), waiting: sum("redlock_waiting{") }
    }

    /// Compares until `end`. The other tasks change the counts meanwhile, so a comparison counts only if the gauges have the same
    /// values before and after the snapshots.
    pub(crate) async fn agree_with(
        &self,
        managers: &[LockManager],
        end: &CancellationToken,
    ) -> Result<(), Drift> {
        let (mut agreed, mut differing) = (0, 0);
        while !end.is_cancelled() {
            let before = self.read();
            let snapshots = in_snapshots(managers);
            if before == self.read() && before == snapshots {
                (agreed, differing) = (agreed + 1, 0);
            } else {
                differing += 1;
            }
            if differing > MOST {
                return Err(Drift(format!("gauges {before:?}, snapshots {snapshots:?}")));
            }
            sleep(PAUSE).await;
        }
        if agreed == 0 {
            return Err(Drift("the gauges never had the values of the snapshots".to_owned()));
        }
        Ok(())
    }

    /// Checks that nothing is held and nobody waits after the shutdown of all managers.
    pub(crate) fn are_zero(&self) -> Result<(), Drift> {
        let left = self.read();
        if left == (Counts { held: 0, waiting: 0 }) {
            return Ok(());
        }
        Err(Drift(format!("the gauges have {left:?} after the shutdown")))
    }
}

fn in_snapshots(managers: &[LockManager]) -> Counts {
    let snapshots = managers.iter().map(LockManager::snapshot);
    snapshots.fold(Counts { held: 0, waiting: 0 }, |counts, snapshot| Counts {
        held: counts.held + snapshot.held.len(),
        waiting: counts.waiting + snapshot.waiting.iter().map(|key| key.waiters).sum::<usize>(),
    })
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Drift {}
