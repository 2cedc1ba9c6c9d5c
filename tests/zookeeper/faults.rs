//! Servers that are killed or frozen, and connections that break.

use redlock_core::LockError;
use redlock_tests::{Direction, Logs, Proxy, Traffic, ZookeeperServer, eventually};

use crate::{
    KEY, LONG, SESSION, SOON, are_queued, connect, no_lock_is_left, patient, serves, start,
};

/// A restarted server has every lock that it has granted, and their sessions go on.
#[tokio::test]
async fn locks_and_waiters_outlast_a_server_that_is_killed() {
    let Some(mut server) = start(ZookeeperServer::options().independent()).await else { return };
    let (holder, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock(KEY).fenced(true).expire(LONG).try_acquire().await.unwrap();
    let waiter = tokio::spawn(other.lock(KEY).fenced(true).wait_time(LONG).acquire());
    are_queued(&server, KEY, 2).await;
    server.kill();
    server.restart().await;
    are_queued(&server, KEY, 2).await;
    eventually("the holder is connected", SOON, async || holder.is_available().then_some(())).await;
    assert!(guard.is_valid());
    let number = guard.fencing_token().unwrap();
    guard.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(next.fencing_token().unwrap() > number);
    next.release().await.unwrap();
    no_lock_is_left(&server).await;
}

#[tokio::test]
async fn a_frozen_server_is_unavailable_and_serves_again_afterwards() {
    let Some(mut server) = start(ZookeeperServer::options().independent()).await else { return };
    let (manager, holder) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = holder.lock("held").expire(LONG).try_acquire().await.unwrap();
    server.freeze();
    let attempt = manager.lock(KEY).expire(LONG).try_acquire().await;
    assert!(matches!(attempt, Err(LockError::Unavailable { .. })), "{attempt:?}");
    eventually("the node is down", SOON, async || (!manager.is_available()).then_some(())).await;
    server.thaw();
    serves(&manager, KEY).await;
    assert!(held.is_valid());
    eventually("the holder is connected", SOON, async || holder.is_available().then_some(())).await;
    held.release().await.unwrap();
    // Neither the attempt that nobody waited for nor another one has left a lock.
    no_lock_is_left(&server).await;
}

/// The connection ends before, within and after each request and its reply.
#[tokio::test]
async fn a_connection_that_breaks_at_any_byte_leaves_no_lock_behind() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let proxy = Proxy::to_port(server.port()).await;
    let manager = connect(&server.url_at(proxy.port())).await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        for bytes in (0..400).step_by(29) {
            serves(&manager, KEY).await;
            for connection in proxy.connections() {
                connection.set(direction, Traffic::ResetAfter(bytes));
            }
            if let Ok(guard) = manager.lock(KEY).expire(LONG).try_acquire().await {
                drop(guard);
            }
            no_lock_is_left(&server).await;
            // The next connections pass everything.
            proxy.reset();
        }
    }
}

/// The server has created the child, but the node does not know its name.
#[tokio::test]
async fn an_acquisition_whose_reply_is_lost_leaves_no_lock_behind() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let proxy = Proxy::to_port(server.port()).await;
    let manager = connect(&server.url_at(proxy.port())).await;
    serves(&manager, KEY).await;
    let connections = proxy.connections();
    let hold = || connections.iter().for_each(|one| one.set(Direction::ToClient, Traffic::Hold));
    // The node lists the children first. The reply to that has to pass.
    let begun = |before: usize| {
        let received = |one: &redlock_tests::Connection| one.received(Direction::ToClient);
        connections.iter().map(received).sum::<usize>() > before
    };
    let before = connections.iter().map(|one| one.received(Direction::ToClient)).sum();
    let attempt = tokio::spawn(manager.lock(KEY).expire(LONG).try_acquire());
    eventually("the node has listed the children", SOON, async || begun(before).then_some(()))
        .await;
    hold();
    eventually("the attempt ends", SOON, async || attempt.is_finished().then_some(())).await;
    if let Ok(guard) = attempt.await.unwrap() {
        drop(guard);
    }
    connections.iter().for_each(redlock_tests::Connection::reset);
    no_lock_is_left(&server).await;
    serves(&manager, KEY).await;
}

/// The network is silent until the server ends the session.
#[tokio::test]
async fn a_session_that_expires_ends_a_hold_a_release_and_no_wait() {
    let options = ZookeeperServer::options().session_timeout(SESSION);
    let Some(server) = start(options).await else { return };
    let logs = Logs::collect();
    let other = connect(&server.url()).await;
    let proxy = Proxy::to_port(server.port()).await;
    let manager = patient(&server.url_at(proxy.port())).connect().await.unwrap();

    let held = manager.lock("held").expire(SESSION / 2).renew(true).try_acquire().await.unwrap();
    let busy = other.lock(KEY).expire(SESSION / 2).renew(true).try_acquire().await.unwrap();
    let waiter = tokio::spawn(manager.lock(KEY).expire(SESSION / 2).wait_time(LONG).acquire());
    are_queued(&server, KEY, 2).await;
    proxy.set_both(Traffic::Hold);
    // The server has deleted the lock and the place of the waiter.
    eventually("the session has ended", SOON, async || {
        let queues = (server.queue("held").await.len(), server.queue(KEY).await.len());
        (queues == (0, 1)).then_some(())
    })
    .await;
    tokio::time::timeout(SOON, held.lost()).await.unwrap();
    assert!(!held.is_valid());
    let next = other.lock("held").expire(SESSION / 2).try_acquire().await.unwrap();
    proxy.set_both(Traffic::Pass);
    proxy.reset();
    eventually("the manager is connected", SOON, async || manager.is_available().then_some(()))
        .await;
    held.release().await.unwrap_err();
    let lines = logs.lines().into_iter();
    let lost: Vec<_> = lines.filter(|line| line.contains("lock=held found=\"expiry\"")).collect();
    assert!(lost.len() == 1 && lost[0].contains(" votes=127.0.0.1:"), "{lost:?}");
    assert!(lost[0].contains(" failed: no"), "{lost:?}");
    assert!(next.is_valid() && server.queue("held").await.len() == 1);
    // The waiter has a place in the new session.
    are_queued(&server, KEY, 2).await;
    busy.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    next.release().await.unwrap();
    no_lock_is_left(&server).await;
}

/// The children go at once, and not after the session timeout.
#[tokio::test]
async fn a_dropped_manager_ends_its_session() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let manager = connect(&server.url()).await;
    let guard = manager.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    guard.keep_until_expiry();
    drop(manager);
    no_lock_is_left(&server).await;
}

/// One child stands for all callers of a process, and a caller that tries once has none.
#[tokio::test]
async fn a_hundred_waiters_of_a_process_have_one_child() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let (holder, waiting) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let before = server.queue(KEY).await;
    assert!(waiting.lock(KEY).try_acquire().await.unwrap_err().is_contended());
    assert_eq!(server.queue(KEY).await, before);
    let waiters: Vec<_> = (0..100)
        .map(|_| tokio::spawn(waiting.lock(KEY).expire(LONG).wait_time(LONG).acquire()))
        .collect();
    are_queued(&server, KEY, 2).await;
    guard.release().await.unwrap();
    for waiter in waiters {
        let guard = waiter.await.unwrap().unwrap();
        assert!(server.queue(KEY).await.len() <= 2);
        guard.release().await.unwrap();
    }
    no_lock_is_left(&server).await;
}
