//! Sentinels that are down, or refuse the client.

use std::time::Instant;

use redlock_core::{ConnectError, LockManager, NodeError};
use redlock_tests::{FailoverGroup, Logs, eventually};

use super::{KEY, QUIET, SOON, builder, refused};

async fn lock_and_release(locks: &LockManager) -> bool {
    match locks.lock(KEY).try_acquire().await {
        Ok(guard) => guard.release().await.is_ok(),
        Err(_) => false,
    }
}

/// The locks outlive their sentinels. But nobody would notice a failover.
#[tokio::test]
async fn locks_go_on_while_all_sentinels_are_down() {
    let _quiet = QUIET.lock().await;
    let logs = Logs::collect();
    let mut group = FailoverGroup::start().await;
    let locks = builder(&group.url()).connect().await.unwrap();
    assert!(lock_and_release(&locks).await);
    group.sentinels[0].freeze();
    group.sentinels[1].kill();
    group.sentinels[2].kill();
    let warned = || logs.count("WARN", "and would not notice a failover");
    eventually("the outage is logged", SOON, async || (warned() > 0).then_some(())).await;
    assert!(lock_and_release(&locks).await);
    // A broken connection is made again at the last known address.
    let master = &group.servers[0];
    master.probe().await.disconnect_others().await;
    eventually("the node is connected again", SOON, async || {
        lock_and_release(&locks).await.then_some(())
    })
    .await;
    // A server that was demoted meanwhile is not used.
    let mut probe = master.probe().await;
    probe.command::<()>(["REPLICAOF", "127.0.0.1", "1"]).await;
    probe.disconnect_others().await;
    eventually("the replica is refused", SOON, async || {
        let error = locks.lock(KEY).try_acquire().await.err()?;
        error.diagnostics().to_string().contains("is a replica").then_some(())
    })
    .await;
    probe.command::<()>(["REPLICAOF", "NO", "ONE"]).await;
    eventually("the master is back", SOON, async || lock_and_release(&locks).await.then_some(()))
        .await;
    // The last reply of the frozen sentinel counts until a question to it has no reply.
    let frozen = format!("sentinel=127.0.0.1:{} reason", group.sentinels[0].port());
    eventually("the frozen sentinel is noticed", SOON, async || {
        (logs.count("WARN", &frozen) > 0).then_some(())
    })
    .await;
    // One sentinel is not enough.
    group.sentinels[1].restart().await;
    let error = refused(&group.url()).await.to_string();
    assert!(error.contains("no majority of the sentinels names a master"), "{error}");
    assert_eq!(logs.count("INFO", "names the master again"), 0);
    group.sentinels[2].restart().await;
    eventually("the end of the outage is logged", SOON, async || {
        (logs.count("INFO", "a majority of the sentinels names the master again") > 0).then_some(())
    })
    .await;
    // Two sentinels are enough for a manager that connects now. The frozen one costs no time-out.
    let begun = Instant::now();
    let late = builder(&group.url()).connect_timeout(SOON).connect().await.unwrap();
    assert!(lock_and_release(&late).await);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(warned(), 1);
    group.sentinels[0].thaw();
}

#[tokio::test]
async fn the_vote_names_what_is_wrong_with_the_sentinels() {
    let _quiet = QUIET.lock().await;
    let options = FailoverGroup::options().password("Kz81serverpass");
    let mut group = options.sentinel_password("Vq52sentinelpass").start().await;
    assert!(lock_and_release(&builder(&group.url()).connect().await.unwrap()).await);
    let hosts: Vec<_> =
        group.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();

    let unknown = refused(&group.url_at(&hosts, "shoop", "")).await;
    assert!(matches!(unknown, NodeError::Server(_)), "{unknown}");
    assert!(unknown.to_string().contains("No such master with that name"), "{unknown}");

    // The password of the servers is never sent to the sentinels, nor the other way round.
    let list = hosts.join(",");
    for (url, reason) in [
        (format!("redis+sentinel://:Kz81serverpass@{list}/shop"), "NOAUTH"),
        (format!("redis+sentinel://{list}/shop?sentinel_password=Vq52sentinelpass"), "NOAUTH"),
        (format!("redis+sentinel://{list}/shop?sentinel_password=Wrong93secret"), "WRONGPASS"),
    ] {
        let error = refused(&url).await;
        assert!(matches!(error, NodeError::Credentials(_)), "{error}");
        let text = format!("{error} {error:?}");
        assert!(text.contains(reason), "{text}");
        for secret in ["Kz81serverpass", "Vq52sentinelpass", "Wrong93secret"] {
            assert!(!text.contains(secret), "{text}");
        }
    }

    for sentinel in &mut group.sentinels {
        sentinel.kill();
    }
    let error = refused(&group.url()).await;
    assert!(matches!(error, NodeError::NotConnected(_)), "{error}");
    assert!(hosts.iter().all(|host| error.to_string().contains(host)), "{error}");
}

#[tokio::test]
async fn two_urls_of_one_group_are_refused() {
    let _quiet = QUIET.lock().await;
    let group = FailoverGroup::start().await;
    let one = format!("127.0.0.1:{}", group.sentinels[0].port());
    let urls = [group.url(), group.url_at(&[one], "shop", "")];
    let error = redlock_tests::builder(urls).connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::SameServer { .. }), "{error}");
}

/// The rights of the guide suffice, and without those for the announcements a failover is noticed by asking.
#[tokio::test]
async fn a_user_of_the_sentinels_needs_few_rights() {
    let _quiet = QUIET.lock().await;
    let logs = Logs::collect();
    let rights =
        "-@all +auth +hello +client|setname +sentinel|master +sentinel|get-master-addr-by-name";
    let group = FailoverGroup::options()
        .sentinel_line(&format!(
            "user app on >Jt64userpass resetchannels &+switch-master {rights} +subscribe"
        ))
        .sentinel_line(&format!("user quiet on >Jt64userpass resetchannels {rights}"))
        .start()
        .await;
    let url =
        |user| group.url_with(&format!("sentinel_username={user}&sentinel_password=Jt64userpass"));
    let app = builder(&url("app")).connect().await.unwrap();
    assert!(lock_and_release(&app).await);
    assert_eq!(logs.count("WARN", "denies the subscription"), 0, "{:?}", logs.lines());
    let quiet = builder(&url("quiet")).connect().await.unwrap();
    assert!(logs.count("WARN", "denies the subscription") > 0);
    group.fail_over().await;
    for locks in [app, quiet] {
        eventually("locks are granted", SOON, async || {
            lock_and_release(&locks).await.then_some(())
        })
        .await;
    }
}
