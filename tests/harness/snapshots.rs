//! A server that cannot save its data.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::redis_server::RedisServer;

const SOON: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(2);

impl RedisServer {
    /// Lets its snapshots fail, so that it takes no writes (`MISCONF`).
    ///
    /// # Panics
    ///
    /// When it has a snapshot already, or its snapshots do not fail.
    pub async fn break_snapshots(&self) {
        // Where the snapshot is to go is something else.
        fs::create_dir(self.snapshot()).expect("a directory in place of the snapshot");
        let mut probe = self.probe().await;
        probe.command::<()>(["CONFIG", "SET", "save", "3600 1000000"]).await;
        probe.command::<redis::Value>(["BGSAVE"]).await;
        let begun = Instant::now();
        // The status may be that of the time before.
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

    /// Lets it make none, so that it takes writes again.
    ///
    /// # Panics
    ///
    /// When they were not [broken](Self::break_snapshots).
    pub async fn give_up_snapshots(&self) {
        self.probe().await.command::<()>(["CONFIG", "SET", "save", ""]).await;
        fs::remove_dir(self.snapshot()).expect("a directory in place of the snapshot");
    }

    fn snapshot(&self) -> PathBuf {
        self.dir().join("dump.rdb")
    }
}
