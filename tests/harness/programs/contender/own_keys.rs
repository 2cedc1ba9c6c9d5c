//! Acquisitions of keys that no other process uses, abandoned or released in every way.

use std::time::Duration;

use rand::RngExt;
use redlock_core::LockRequest;
use redlock_tests::LONGEST_LEASE;
use tokio::time::{sleep, timeout};

use super::Contender;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

/// Returns the prefix of the keys.
pub(super) fn own_prefix() -> String {
    format!("own:{}:", std::process::id())
}

impl Contender {
    /// Acquires keys of this process alone, and abandons each request or releases each lock at once, until
    /// SIGTERM.
    pub(super) async fn acquire_own_keys(mut self) -> Result<(), String> {
        for number in 0.. {
            if self.end.is_cancelled() {
                break;
            }
            let request = self.own_request(&format!("{}{number}", own_prefix()));
            let patience = self.choices.random_range(0..5000);
            let patience = if self.one_in(2) { patience } else { patience * 20 };
            let acquired = timeout(Duration::from_micros(patience), request.acquire()).await;
            if let Ok(Ok(guard)) = acquired {
                if self.one_in(2) {
                    drop(guard);
                } else {
                    drop(guard.release().await);
                }
            }
            let pause = self.millis(0, 30);
            sleep(pause).await;
        }
        Ok(())
    }

    fn own_request(&mut self, key: &str) -> LockRequest {
        let request = self.locks.lock(key).expire(LONG);
        request.wait_time(if self.one_in(2) { LONGEST_LEASE } else { Duration::ZERO })
    }
}
