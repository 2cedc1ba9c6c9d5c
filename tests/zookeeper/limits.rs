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

    use redlock_core::NodeError;
    use redlock_tests::{EnsembleOptions, ZookeeperEnsemble, eventually, skip};
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::{SOON, patient, refused, serves};

    async fn start(options: EnsembleOptions) -> Option<ZookeeperEnsemble> {
        options.start().await.inspect_err(|why| skip(why)).ok()
    }

    /// The session moves to servers that allow less than its timeout. They must not shorten it, because the holder relies on it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lock_outlasts_a_move_to_servers_with_a_smaller_limit() {
        let limit = Duration::from_secs(6);
        let mut options =
            ZookeeperEnsemble::options().session_timeout(Duration::from_secs(30));
        for server in [1, 2] {
            options = options.setting_of(server, "maxSessionTimeout", "6000");
        }
        let Some(mut ensemble) = start(options).await else { return };
        let locks = patient(&ensemble.url()).connect().await.unwrap();
        let lease = Duration::from_secs(15);
        let guard = locks.lock(KEY).expire(lease).try_acquire().await.unwrap();
        ensemble.kill(0);
        let reason = eventually("the other servers are not used", SOON, async || {
            let error = guard.extend(lease).await.err()?;
            let reason = error.diagnostics().to_string();
            reason.contains("maxSessionTimeout").then_some(reason)
        })
        .await;
        assert!(reason.contains("at most 6s"), "{reason}");
        // For longer than the smaller limit and a tick.
        let end = Instant::now() + limit + Duration::from_secs(2);
        while Instant::now() < end && guard.is_valid() {
            let held = ensemble.locks_count(1).await;
            assert!(held == (1, 0) || !guard.is_valid(), "{held:?}, {:?} left", guard.remaining());
            sleep(Duration::from_millis(100)).await;
        }
        ensemble.restart(0).await;
        serves(&locks, "other").await;
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
