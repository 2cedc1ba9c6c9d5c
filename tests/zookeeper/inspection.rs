//! The label of a holder, a look at a lock, and the removal of its holder.

use std::time::{Duration, SystemTime};

use redlock_core::{HolderId, KeyState, LockManager, OwnerLabel, Vote};
use redlock_tests::{ZookeeperKind, ZookeeperServer, eventually, monotonic_nanos};

use crate::curator::{curator, time};
use crate::{KEY, LONG, SOON, are_queued, no_lock_is_left, patient, start};

/// 64 characters that also separate the parts of a stored text.
const LABEL: &str = "#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!";

async fn labelled(server: &ZookeeperServer, label: &str) -> LockManager {
    patient(&server.url()).owner_label(label).connect().await.unwrap()
}

/// Returns the data of the first child of the lock.
async fn data(server: &ZookeeperServer) -> String {
    let path = format!("{}/{}", server.path(KEY), server.queue(KEY).await[0]);
    String::from_utf8(server.admin().await.get(&path).await.unwrap().0).unwrap()
}

/// Returns the label that a refusal has.
async fn refused_by(manager: &LockManager) -> Option<String> {
    let error = manager.lock(KEY).try_acquire().await.unwrap_err();
    assert!(error.is_contended(), "{error:?}");
    error.holder().map(|label| label.as_str().to_owned())
}

#[tokio::test]
async fn a_refusal_and_a_status_name_the_label_of_a_holder_until_its_release() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let (holder, other) = (labelled(&server, LABEL).await, labelled(&server, "other").await);
    let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    for fenced in [false, true] {
        let before = seconds(SystemTime::now());
        let request = holder.lock(KEY).fenced(fenced).expire(LONG);
        let guard = request.try_acquire().await.unwrap();
        for _ in 0..2 {
            assert_eq!(refused_by(&other).await.as_deref(), Some(LABEL));
            let status = other.status(KEY).await.unwrap();
            assert_eq!(status.state(), KeyState::Exclusive);
            let [found] = status.holders() else { panic!("{status:?}") };
            assert_eq!(found.label().map(OwnerLabel::as_str), Some(LABEL));
            let since = seconds(found.since().unwrap());
            // The process reads its wall clock once in a second.
            assert!((before - 1..=seconds(SystemTime::now())).contains(&since), "{since}");
            let rest = found.remaining().unwrap();
            assert!(!found.is_own() && rest <= LONG && rest > LONG / 2, "{found:?}");
            assert!(data(&server).await.ends_with(&format!(" {} {since} {LABEL}", found.id())));
            guard.extend(LONG).await.unwrap();
        }
        guard.release().await.unwrap();
        let status = other.status(KEY).await.unwrap();
        assert!(status.state() == KeyState::Free && status.holders().is_empty(), "{status:?}");
    }
}

/// A version of before has written them, or a process with `off`.
#[tokio::test]
async fn data_without_a_label_name_a_holder_without_one() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let (holder, other) = (labelled(&server, "off").await, labelled(&server, LABEL).await);
    let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    assert_eq!(data(&server).await.split(' ').count(), 2);
    let error = other.lock(KEY).try_acquire().await.unwrap_err();
    assert_eq!(error.holder(), None);
    let status = holder.status(KEY).await.unwrap();
    let [found] = status.holders() else { panic!("{status:?}") };
    assert_eq!((found.label(), found.since(), found.is_own()), (None, None, true));
    let vote = error.votes().and_then(|votes| votes.iter().find_map(|(_, vote)| vote));
    let Some(Vote::Held { holder, .. }) = vote else { panic!("{error:?}") };
    assert_eq!(*holder, Some(found.id()));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_child_of_another_recipe_is_foreign() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let (manager, mut admin) = (labelled(&server, LABEL).await, server.admin().await);
    admin.create(&server.path(KEY), b"", ZookeeperKind::Persistent).await.unwrap();
    let path = format!("{}/a__lock__", server.path(KEY));
    admin.create(&path, b"secret", ZookeeperKind::EphemeralSequential).await.unwrap();
    let status = manager.status(KEY).await.unwrap();
    assert!(status.state() == KeyState::Foreign && status.holders().is_empty(), "{status:?}");
    assert!(!format!("{status:?}").contains("secret"));
}

#[tokio::test]
async fn an_operator_removes_the_holder_that_a_status_has_shown() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let (holder, operator) = (labelled(&server, LABEL).await, labelled(&server, "operator").await);
    let waiter = labelled(&server, "waiter").await;
    let guard = holder.lock(KEY).fenced(true).expire(LONG).try_acquire().await.unwrap();
    let number = guard.fencing_token().unwrap().number();
    let request = waiter.lock(KEY).fenced(true).expire(LONG).wait_time(LONG);
    let waiting = tokio::spawn(request.acquire());
    are_queued(&server, KEY, 2).await;
    let status = operator.status(KEY).await.unwrap();
    assert_eq!(status.waiting_writers(), 1);
    let broken = operator.break_lock(KEY, &status.holders()[0]).await.unwrap();
    let rest = broken.may_be_valid_for().unwrap();
    assert!(rest > LONG / 2 && rest < LONG * 2, "{rest:?}");
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    assert!(next.fencing_token().unwrap().number() > number);
    assert!(guard.extend(LONG).await.is_err());
    assert!(guard.release().await.is_err());
    // The release of the former holder has left the next one alone.
    next.extend(LONG).await.unwrap();
    assert_eq!(refused_by(&operator).await.as_deref(), Some("waiter"));
    next.release().await.unwrap();
    no_lock_is_left(&server).await;
}

/// A waiter that times out has read the label of the holder when it took its place.
#[tokio::test]
async fn a_waiter_that_gives_up_names_the_holder() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let (holder, waiter) = (labelled(&server, LABEL).await, labelled(&server, "waiter").await);
    let _guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let request = waiter.lock(KEY).wait_time(std::time::Duration::from_secs(2));
    let error = request.acquire().await.unwrap_err();
    assert_eq!(error.holder().map(OwnerLabel::as_str), Some(LABEL), "{error:?}");
}

/// Curator writes the address of its host into its children, and ignores the data of ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutex_of_curator_and_our_lock_are_named_and_removed() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let Some(mut java) = curator(&server, SOON) else { return };
    let locks = labelled(&server, LABEL).await;
    time(&java.ask(&format!("acquire 0 /{KEY}")), "acquired");
    let (name, address) = (server.queue(KEY).await.remove(0), data(&server).await);
    assert!(address.parse::<std::net::IpAddr>().is_ok(), "{address}");
    assert_eq!(refused_by(&locks).await.as_deref(), Some(&*address));
    let status = locks.status(KEY).await.unwrap();
    let [found] = status.holders() else { panic!("{status:?}") };
    assert_eq!(found.id(), HolderId::of(&name));
    assert_eq!(found.label().map(OwnerLabel::as_str), Some(&*address));
    assert_eq!((found.since(), found.remaining()), (None, None));
    let broken = locks.break_lock(KEY, found).await.unwrap();
    assert_eq!(broken.may_be_valid_for(), None);
    // Curator does not notice that its lock is gone. Its late release leaves ours alone.
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    time(&java.ask(&format!("release /{KEY}")), "released");
    guard.extend(LONG).await.unwrap();

    assert_eq!(java.ask(&format!("acquire 1 /{KEY}")), "refused");
    java.order(&format!("acquire 60000 /{KEY}"));
    are_queued(&server, KEY, 2).await;
    let status = locks.status(KEY).await.unwrap();
    assert_eq!(status.waiting_writers(), 1);
    assert_eq!(status.holders()[0].label().map(OwnerLabel::as_str), Some(LABEL));
    let before = monotonic_nanos();
    locks.break_lock(KEY, &status.holders()[0]).await.unwrap();
    assert!(time(&java.answer(), "acquired") > before);
    assert!(!guard.is_valid());
    time(&java.ask(&format!("release /{KEY}")), "released");
    eventually("no lock is left", SOON, async || {
        (server.locks_count().await == (0, 0)).then_some(())
    })
    .await;
}

/// The holder would otherwise notice it at its next renewal.
#[tokio::test]
async fn a_holder_learns_at_once_that_its_znode_is_gone() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let (holder, operator) = (labelled(&server, "shop").await, labelled(&server, "ops").await);
    for (is_break, waits_before) in [(true, true), (true, false), (false, true), (false, false)] {
        let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        let lost = waits_before.then(|| guard.lost());
        guard.extend(LONG).await.unwrap();
        if is_break {
            let status = operator.status(KEY).await.unwrap();
            operator.break_lock(KEY, &status.holders()[0]).await.unwrap();
        } else {
            let path = format!("{}/{}", server.path(KEY), server.queue(KEY).await[0]);
            server.admin().await.delete(&path).await.unwrap();
        }
        let begun = monotonic_nanos();
        guard.lost().await;
        // The lease is much longer. A busy machine may need some seconds.
        let waited = Duration::from_nanos(monotonic_nanos() - begun);
        assert!(waited < LONG / 4, "break: {is_break}: {waited:?}");
        assert!(!guard.is_valid());
        drop(lost);
    }
}
