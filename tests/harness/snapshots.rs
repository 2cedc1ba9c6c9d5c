//! A server that cannot save its data.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::redis_server::RedisServer;

const SOON: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(2);

impl RedisServer {
    /// Makes the snapshots of the server fail, so that it refuses writes (`MISCONF`).
    ///
    /// # Panics
    ///
    /// If the server already has a snapshot, or its snapshots do not fail.
    pub async fn break_snapshots(&self) {
        // The server cannot replace a directory by its snapshot file.
        fs::create_dir(self.snapshot()).expect("a directory in place of the snapshot");
        let mut probe = self.probe().await;
        probe.command::<()>(["CONFIG", "SET", "save", "3600 1000000"]).await;
        probe.command::<redis::Value>(["BGSAVE"]).await;
        let begun = Instant::now();
        // While a snapshot is in progress, the status is that of the previous one.
        let failed = ["rdb_bgsave_in_progress:0", "rdb_last_bgsave_status:err"];
        loop {
            let info: String = probe.command(["INFO", "persistence"]).await;
            if failed.iter().all(|line| info.contains(line)) {
                return;
            }
            assert!(begun.elapsed() < SOON, "the snapshot does not fail");
            sleep(AGAIN).await;
        }
    }

    /// Switches snapshots off, so that the server accepts writes again.
    ///
    /// # Panics
    ///
    /// If the snapshots were not [broken](Self::break_snapshots) before.
    pub async fn give_up_snapshots(&self) {
        self.probe().await.command::<()>(["CONFIG", "SET", "save", ""]).await;
        fs::remove_dir(self.snapshot()).expect("a directory in place of the snapshot");
    }

    fn snapshot(&self) -> PathBuf {
        self.dir().join("dump.rdb")
    }
}
