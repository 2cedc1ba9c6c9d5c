//! Tests of the servers and of the client.

use std::time::Duration;

use super::client::ZookeeperClient;
use super::locks::escape;
use super::{ZookeeperEnsemble, ZookeeperError, ZookeeperKind, ZookeeperOptions, ZookeeperServer};
use crate::{eventually, skip};

const SOON: Duration = Duration::from_secs(60);
/// The longest time in which a server that runs answers.
const SHORT: Duration = Duration::from_millis(300);
const TIMEOUT: Duration = Duration::from_secs(30);

async fn start(options: ZookeeperOptions) -> Option<ZookeeperServer> {
    options.start().await.inspect_err(|why| skip(why)).ok()
}

async fn answers(client: &mut ZookeeperClient) -> bool {
    matches!(tokio::time::timeout(SHORT, client.ping()).await, Ok(Ok(())))
}

/// Adds a child with a lease to the folder of a lock.
async fn enqueue(server: &ZookeeperServer, client: &mut ZookeeperClient, name: &str) -> String {
    let folder = server.path(name);
    let made = client.create(&folder, b"", ZookeeperKind::Container).await;
    assert!(
        made.as_ref().is_err_and(|error| error.is(ZookeeperError::NODE_EXISTS)) || made.is_ok()
    );
    let child = format!("{folder}/_c_1-lock-");
    client.create(&child, b"60000", ZookeeperKind::EphemeralSequential).await.unwrap()
}

#[tokio::test]
async fn the_locks_of_a_test_are_seen_and_deleted_apart_from_those_of_others() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let Some(other) = start(ZookeeperServer::options()).await else { return };
    assert!(server.is_shared() && server.port() == other.port());
    let mut client = ZookeeperClient::connect(server.port(), TIMEOUT).await.unwrap();
    let first = enqueue(&server, &mut client, "a/b").await;
    enqueue(&server, &mut client, "a/b").await;
    assert_eq!(server.locks_count().await, (1, 1));
    assert_eq!(other.locks_count().await, (0, 0));
    assert!(first.ends_with(&server.queue("a/b").await[0]), "{first}");
    let rest = server.locks_rest("a/b").await.unwrap();
    assert!(rest > Duration::from_secs(30) && rest <= Duration::from_secs(60), "{rest:?}");
    assert_eq!(server.locks_rest("b").await, None);
    server.delete_lock("a/b").await;
    assert_eq!((server.locks_count().await, server.locks_rest("a/b").await), ((0, 0), None));
}

/// The server refuses a path with any of these characters as they are.
#[tokio::test]
async fn every_name_is_a_path_that_the_server_accepts() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let mut client = ZookeeperClient::connect(server.port(), TIMEOUT).await.unwrap();
    let names = [
        ".",
        "..",
        "zookeeper",
        "a/b",
        "%2F",
        "a b",
        "\0\u{1f}\u{7f}\u{85}",
        "\u{e000}\u{fff0}",
        "🔒",
        "ä",
    ];
    for name in names {
        let path = server.path(name);
        assert_eq!(client.create(&path, b"", ZookeeperKind::Persistent).await.unwrap(), path);
    }
    assert_eq!(client.children(server.chroot()).await.unwrap().0.len(), names.len());
    assert_eq!(escape("order:42/ä🔒%"), "order:42%2Fä%F0%9F%94%92%25");
}

#[tokio::test]
async fn the_client_reads_writes_and_deletes() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let mut client = ZookeeperClient::connect(server.port(), TIMEOUT).await.unwrap();
    assert_eq!(client.session_timeout(), TIMEOUT);
    let path = format!("{}/a", server.chroot());
    client.create(&path, b"1", ZookeeperKind::Ephemeral).await.unwrap();
    let made = client.exists(&path).await.unwrap();
    let written = client.set(&path, b"2").await.unwrap();
    assert!(written.mzxid > made.czxid && written.owner == made.owner && made.owner != 0);
    assert_eq!(client.get(&path).await.unwrap(), (b"2".to_vec(), written));
    client.sync(&path).await.unwrap();
    client.delete(&path).await.unwrap();
    assert!(client.exists(&path).await.unwrap_err().is(ZookeeperError::NO_NODE));
    let (children, stat) = client.children(server.chroot()).await.unwrap();
    assert!(children.is_empty() && stat.pzxid > written.mzxid);
}

#[tokio::test]
async fn a_private_path_is_closed_to_others_but_not_to_the_harness() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let mut owner = ZookeeperClient::connect(server.port(), TIMEOUT).await.unwrap();
    owner.login("app", "swordfish").await.unwrap();
    owner.make_private(server.chroot()).await.unwrap();
    owner.children(server.chroot()).await.unwrap();
    let mut other = ZookeeperClient::connect(server.port(), TIMEOUT).await.unwrap();
    let refused = other.children(server.chroot()).await.unwrap_err();
    assert!(refused.is(ZookeeperError::NO_AUTH), "{refused:?}");
    assert_eq!(server.locks_count().await, (0, 0));
}

/// Nothing keeps the session alive but the requests of the test.
#[tokio::test]
async fn a_session_outlasts_its_connection_until_its_timeout() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let timeout = Duration::from_secs(2);
    let mut client = ZookeeperClient::connect(server.port(), timeout).await.unwrap();
    let child = enqueue(&server, &mut client, "a").await;
    client.reconnect(server.port()).await.unwrap();
    client.exists(&child).await.unwrap();
    eventually("the server ends the session", SOON, async || {
        (server.locks_count().await == (0, 0)).then_some(())
    })
    .await;
    client.reconnect(server.port()).await.unwrap_err();
    let mut closed = ZookeeperClient::connect(server.port(), TIMEOUT).await.unwrap();
    enqueue(&server, &mut closed, "a").await;
    closed.close().await.unwrap();
    assert_eq!(server.locks_count().await, (0, 0));
}

#[tokio::test]
async fn a_frozen_server_answers_again_and_a_killed_one_restarts_with_its_data() {
    let Some(mut server) = start(ZookeeperServer::options().independent()).await else { return };
    let mut client = ZookeeperClient::connect(server.port(), TIMEOUT).await.unwrap();
    enqueue(&server, &mut client, "a").await;
    assert!(server.received().await > 0);
    server.freeze();
    assert!(!answers(&mut client).await && !server.is_up());
    server.thaw();
    eventually("the server answers", SOON, async || answers(&mut client).await.then_some(())).await;
    server.kill();
    assert!(ZookeeperClient::connect(server.port(), TIMEOUT).await.is_err());
    server.restart().await;
    assert_eq!(server.locks_count().await, (1, 0));
    client.reconnect(server.port()).await.unwrap();
}

/// A session that asks for a millisecond gets two ticks.
#[tokio::test]
async fn an_independent_server_has_its_own_tick_and_settings() {
    let options = ZookeeperServer::options().tick(Duration::from_millis(700));
    let Some(server) = start(options.setting("maxSessionTimeout", "5000")).await else { return };
    for (wanted, granted) in [(1, 1400), (60_000, 5000)] {
        let wanted = Duration::from_millis(wanted);
        let client = ZookeeperClient::connect(server.port(), wanted).await.unwrap();
        assert_eq!(client.session_timeout(), Duration::from_millis(granted));
    }
}

#[tokio::test]
async fn an_ensemble_outlasts_its_leader() {
    let options = ZookeeperEnsemble::options().observers(1).tick(Duration::from_millis(200));
    let mut ensemble = match options.start().await {
        Ok(ensemble) => ensemble,
        Err(why) => return skip(&why),
    };
    let leader = ensemble.leader().await;
    let [follower, _] = ensemble.followers().await;
    let mut client = ZookeeperClient::connect(ensemble.port(follower), TIMEOUT).await.unwrap();
    let folder = format!("{}/a", ensemble.chroot());
    client.create(&folder, b"", ZookeeperKind::Container).await.unwrap();
    let child = format!("{folder}/x-lock-");
    client.create(&child, b"", ZookeeperKind::EphemeralSequential).await.unwrap();
    // The last server is the observer.
    assert_eq!(ensemble.locks_count(3).await, (1, 0));

    ensemble.kill(leader);
    assert_ne!(ensemble.leader().await, leader);
    ensemble.serves(follower).await;
    assert_eq!(ensemble.locks_count(follower).await, (1, 0));
    ensemble.restart(leader).await;
    assert_eq!(ensemble.locks_count(leader).await, (1, 0));

    // The others elect a leader while this one is cut off, and it follows the new one afterwards.
    let leader = ensemble.leader().await;
    ensemble.isolate(leader);
    eventually("the others elect a leader", SOON, async || {
        (ensemble.leader().await != leader).then_some(())
    })
    .await;
    ensemble.heal();
    ensemble.serves(leader).await;
    assert_ne!(ensemble.leader().await, leader);
}
