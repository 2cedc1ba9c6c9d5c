//! Many callers, and a slow disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_tests::{PostgresServer, eventually, skip};

use crate::{KEY, LONG, SOON, acquire, connect_patient, impatient, no_lock_is_left, start};

/// Waiters of another process take turns with them.
#[tokio::test]
async fn a_thousand_waiters_of_one_key_get_their_turns() {
    let Some(server) = start().await else { return };
    let (many, other) =
        (connect_patient(&server.url()).await, connect_patient(&server.url()).await);
    let holders = Arc::new(AtomicUsize::new(0));
    let guard = acquire(&many, KEY).await;
    let waiters = (0..1000).map(|_| &many).chain([&other; 10]).map(|manager| {
        let (request, holders) = (manager.lock(KEY).wait_time(LONG), Arc::clone(&holders));
        tokio::spawn(async move {
            let guard = request.acquire().await.unwrap();
            assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
            tokio::task::yield_now().await;
            holders.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.unwrap();
        })
    });
    let waiters: Vec<_> = waiters.collect();
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    no_lock_is_left(&server).await;
}

/// The disk needs 100 ms for each acquisition, so that the last ones wait for longer than the node timeout. The server is not
/// silent meanwhile: the connection lasts.
#[tokio::test]
async fn a_backlog_behind_a_slow_disk_delays_locks_and_breaks_no_connection() {
    let options =
        PostgresServer::options().setting("commit_delay", "100000").setting("commit_siblings", "0");
    let Ok(server) = options.start().await.inspect_err(|why| skip(why)) else { return };
    let node_timeout = Duration::from_secs(4);
    let url = format!("{}&connections=1", server.url());
    let manager = impatient(&url).node_timeout(node_timeout).connect().await.unwrap();
    // One is for notifications.
    let sessions = eventually("the node has two connections", SOON, async || {
        Some(server.sessions().await).filter(|sessions| sessions.len() == 2)
    })
    .await;
    let begun = Instant::now();
    let keys = (0..60).map(|key| format!("key:{key}"));
    let attempts = keys.map(|key| manager.lock(key).expire(LONG).try_acquire());
    let guards = join_all(attempts).await;
    assert!(begun.elapsed() > node_timeout, "there is no backlog");
    for guard in guards {
        drop(guard.unwrap());
    }
    no_lock_is_left(&server).await;
    assert_eq!(server.sessions().await, sessions);
}
