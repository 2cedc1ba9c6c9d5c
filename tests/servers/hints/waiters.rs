//! Waiters behind locks of other libraries, which publish no release.

use std::time::{Duration, Instant};

use redlock_tests::{Servers, builder, eventually};

use super::{Cause, KEY, LONG, SOON, reset, start, tracked};

/// Half of the shortest pause between two polls: no poll is as fast. Of several wake-ups, one is, although the machine is busy.
const FASTER_THAN_POLLS: Duration = Duration::from_millis(125);
const TRIES: usize = 10;

/// Tries until one of the times is shorter than that of each poll.
async fn is_faster_than_polls(what: &str, mut take: impl AsyncFnMut() -> Duration) {
    let mut times = Vec::new();
    while times.len() < TRIES {
        let time = take().await;
        if time < FASTER_THAN_POLLS {
            return;
        }
        times.push(time);
    }
    panic!("{what}: only polls wake the waiter: {times:?}");
}

/// Neither a DEL by hand nor redis-py publishes the release.
#[tokio::test]
async fn a_waiter_behind_a_lock_of_another_library_is_woken_by_its_end() {
    for count in [1, 3] {
        let (servers, locks) = start(count).await;
        for is_shared in [false, true] {
            let what = format!("{count} servers, shared: {is_shared}");
            is_faster_than_polls(&what, async || {
                for server in servers.iter() {
                    let mut probe = server.probe().await;
                    probe.command::<()>(["SET", KEY, "another", "NX", "PX", "300000"]).await;
                }
                reset(&servers).await;
                let request = locks.lock(KEY).expire(LONG).shared(is_shared).wait_time(LONG);
                let waiting = tokio::spawn(request.acquire());
                tracked(&servers, 1).await;
                let begun = Instant::now();
                Cause::Deleted.happen(&servers).await;
                let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
                let time = begun.elapsed();
                guard.release().await.unwrap();
                time
            })
            .await;
        }
    }
}

/// The next holder is one of another library, too. The refusal after each change lets the server track the key again.
#[tokio::test]
async fn a_waiter_stays_behind_one_lock_of_another_library_after_another() {
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    probe.command::<()>(["SET", KEY, "first", "NX", "PX", "300000"]).await;
    let waiting = tokio::spawn(locks.lock(KEY).expire(LONG).wait_time(LONG).acquire());
    tracked(&servers, 1).await;
    let mut number = 0;
    let mut change = async || {
        number += 1;
        reset(&servers).await;
        let begun = Instant::now();
        // No other caller gets the lock between the two commands.
        let script = "redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1], 'PX', 300000)";
        probe.command::<()>(["EVAL", script, "1", KEY, &format!("next-{number}")]).await;
        tracked(&servers, 1).await;
        begun.elapsed()
    };
    // The key is tracked for the first holder. Each change after the next one finds a key that is tracked again.
    change().await;
    is_faster_than_polls("another change", change).await;
    Cause::Deleted.happen(&servers).await;
    let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    guard.release().await.unwrap();
}

/// A holder with a label publishes its release, and each of its renewals would wake all waiters.
#[tokio::test]
async fn no_waiter_tracks_the_lock_of_a_labelled_holder() {
    let servers = Servers::start(1).await;
    let labelled = |label: &'static str| builder(servers.urls()).owner_label(label).connect();
    let (shop, ops) = (labelled("shop").await.unwrap(), labelled("ops").await.unwrap());
    let guard = shop.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let mut probe = servers[0].probe().await;
    probe.reset_calls().await;
    let waiting = tokio::spawn(ops.lock(KEY).expire(LONG).wait_time(LONG).acquire());
    eventually("the waiter has asked twice", SOON, async || {
        (probe.calls().await.get("pttl").copied() >= Some(2)).then_some(())
    })
    .await;
    guard.extend(2 * LONG).await.unwrap();
    let calls = probe.calls().await;
    assert!(!calls.keys().any(|name| name.starts_with("client")), "{calls:?}");
    guard.release().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    next.release().await.unwrap();
}
