//! Servers that limit sessions, locks or znodes more than the node needs.

use redlock_tests::{ZookeeperKind, ZookeeperServer};

use crate::{KEY, LONG, connect, start};

/// The soft quota of older versions only logs a warning.
#[tokio::test]
async fn an_exceeded_quota_is_named_with_the_remedy() {
    let options = ZookeeperServer::options().property("zookeeper.enforceQuota", "true");
    let Some(server) = start(options).await else { return };
    let mut client = server.admin().await;
    let quota = format!("/zookeeper/quota{}", server.chroot());
    client.create(&quota, b"", ZookeeperKind::Persistent).await.unwrap();
    let limit = b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=1";
    let stats = format!("{quota}/zookeeper_stats");
    client.create(&stats, b"count=1,bytes=0", ZookeeperKind::Persistent).await.unwrap();
    let limits = format!("{quota}/zookeeper_limits");
    client.create(&limits, limit, ZookeeperKind::Persistent).await.unwrap();

    let locks = connect(&server.url()).await;
    let error = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap_err();
    let reason = error.diagnostics().to_string();
    assert!(reason.contains("QuotaExceeded") && reason.contains("setquota"), "{reason}");
}

mod thorough {
    use std::time::Duration;

    use redlock_core::{LockManager, NodeError};
    use redlock_tests::{EnsembleOptions, Traffic, ZookeeperEnsemble, eventually, skip};
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::{SOON, patient, refused, serves};

    async fn start(options: EnsembleOptions) -> Option<ZookeeperEnsemble> {
        options.start().await.inspect_err(|why| skip(why)).ok()
    }

    /// The limit of two of the servers.
    const LIMIT: Duration = Duration::from_secs(6);

    /// Kills the server of the session while it has a lock, lets the node look for another one, and then cuts it off. Returns for how
    /// long the guard was valid since then. Until its end, the lock must exist.
    async fn cut_off_after_a_move(
        ensemble: &mut ZookeeperEnsemble,
        locks: &LockManager,
    ) -> Duration {
        let lease = Duration::from_secs(15);
        let guard = locks.lock(KEY).expire(lease).wait_time(LONG).acquire().await.unwrap();
        ensemble.kill(0);
        eventually("the other servers are not used", SOON, async || {
            let reason = match locks.lock("other").try_acquire().await {
                Ok(_) => return None,
                Err(error) => error.diagnostics().to_string(),
            };
            reason
                .contains("maxSessionTimeout")
                .then(|| assert!(reason.contains("at most 6s"), "{reason}"))
        })
        .await;
        for server in [1, 2] {
            ensemble.proxy(server).set_both(Traffic::Hold);
        }
        let begin = Instant::now();
        while guard.is_valid() {
            let held = ensemble.locks_count(1).await;
            assert!(held == (1, 0) || !guard.is_valid(), "{held:?}, {:?} left", guard.remaining());
            sleep(Duration::from_millis(50)).await;
        }
        let valid = begin.elapsed();
        for server in [1, 2] {
            ensemble.proxy(server).set_both(Traffic::Pass);
            ensemble.proxy(server).reset();
        }
        ensemble.restart(0).await;
        valid
    }

    /// The session moves to servers that allow less than its timeout. They must not shorten it, because the holder relies on it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lock_outlasts_a_move_to_servers_with_a_smaller_limit() {
        let mut options = ZookeeperEnsemble::options().session_timeout(Duration::from_secs(30));
        for server in [1, 2] {
            options = options.setting_of(server, "maxSessionTimeout", "6000");
        }
        let Some(mut ensemble) = start(options).await else { return };
        let locks = connect(&ensemble.url_of(&[0, 1, 2])).await;
        // The election may last for most of the lease.
        for _ in 0..5 {
            let valid = cut_off_after_a_move(&mut ensemble, &locks).await;
            println!("cut off with {valid:?} left");
            if valid > LIMIT + Duration::from_secs(1) {
                return;
            }
        }
        panic!("the elections last too long");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn servers_with_local_sessions_need_to_upgrade_them() {
        let local = || ZookeeperEnsemble::options().setting("localSessionsEnabled", "true");
        let Some(ensemble) = start(local()).await else { return };
        let reason = refused(patient(&ensemble.url())).await;
        let NodeError::Server(text) = &reason else { panic!("{reason:?}") };
        assert!(text.contains("localSessionsUpgradingEnabled=true"), "{text}");
        drop(ensemble);
        let upgraded = local().setting("localSessionsUpgradingEnabled", "true");
        let Some(ensemble) = start(upgraded).await else { return };
        serves(&connect(&ensemble.url()).await, KEY).await;
    }
}
