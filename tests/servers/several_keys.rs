//! Locks of several keys on real servers: one script per node, and nothing is half done.

use redlock_core::{LockError, LockManager, NodeError, Vote};
use redlock_tests::{Probe, Servers, eventually, skip};

use super::{LONG, SOON, connect, start};

async fn one() -> (Servers, LockManager, Probe) {
    let (servers, locks) = start(1).await;
    let probe = servers[0].probe().await;
    (servers, locks, probe)
}

fn vote(error: &LockError) -> Vote {
    let (_, vote) = error.votes().unwrap().iter().next().unwrap();
    vote.cloned().unwrap()
}

#[tokio::test]
async fn each_key_of_a_set_is_a_plain_lock_with_the_same_token() {
    let (_server, locks, mut probe) = one().await;
    let guard = locks.lock_all(["b", "a"]).expire(LONG).try_acquire().await.unwrap();
    let [a, b] = [probe.get("a").await.unwrap(), probe.get("b").await.unwrap()];
    // The texts are secrets, so that a failure does not print them.
    assert!(a == b && a.len() > 32);
    let set: Option<String> = probe.command(["SET", "b", "x", "NX", "PX", "1000"]).await;
    assert_eq!(set, None);
    guard.release().await.unwrap();
    assert_eq!(probe.keys().await, [""; 0]);
}

async fn locks_of(probe: &mut Probe) -> Vec<String> {
    let keys = probe.keys().await.into_iter();
    keys.filter(|key| !key.contains("redlock:fencing")).collect()
}

/// The server checks all KEYS before it runs the script. A selector (Redis 7) permits the script for all keys, but SET
/// only for some, so that the script fails in its middle.
#[tokio::test]
async fn a_set_whose_user_lacks_the_right_to_one_key_sets_no_key() {
    let (servers, _, mut probe) = one().await;
    redlock_logs::remember_password("s3cret");
    let selector = if probe.has_command("MSETEX").await {
        &["~*", "-set", "-msetex", "(+set +msetex ~lock:* ~redlock:*)"][..]
    } else {
        &["~*", "-set", "(+set ~lock:* ~redlock:*)"]
    };
    for rules in [&["~lock:*", "~redlock:*"][..], selector] {
        let user = ["ACL", "SETUSER", "app", "reset", "on", ">s3cret", "&*", "+@all"];
        if probe.try_command::<()>([&user, rules].concat()).await.is_err() {
            return skip("the server has no selectors");
        }
        let locks = connect([servers[0].url_at("app:s3cret@127.0.0.1")]).await;
        for keys in [["lock:a", "lock:b", "z"], ["a", "lock:b", "lock:c"]] {
            let set = || locks.lock_all(keys).expire(LONG);
            for error in [
                set().try_acquire().await.map(drop).unwrap_err(),
                set().fenced(true).try_acquire().await.map(drop).unwrap_err(),
            ] {
                let vote = vote(&error);
                assert!(matches!(vote, Vote::Failed(NodeError::NotPermitted(_))), "{error:?}");
                assert_eq!(locks_of(&mut probe).await, [""; 0]);
            }
        }
        let guard = locks.lock_all(["lock:a", "lock:b"]).fenced(true).try_acquire().await.unwrap();
        guard.release().await.unwrap();
    }
}

/// Each slot has a counter of its own.
#[tokio::test]
async fn the_number_of_a_set_is_given_out_by_each_of_its_counters() {
    let (servers, locks) = start(3).await;
    let keys = ["order:42", "order:43", "order:44"];
    locks.lock_all(keys).fenced(true).try_acquire().await.unwrap().release().await.unwrap();
    let mut probes = Vec::new();
    for server in servers.iter() {
        probes.push(server.probe().await);
    }
    let counters = eventually("each server has the counters alone", SOON, async || {
        let counters = probes[0].keys().await;
        (counters.len() == 3 && counters.iter().all(|key| key.contains("fencing")))
            .then_some(counters)
    })
    .await;
    for (number, counter) in (8_000_000_000_000_000_i64..).step_by(1000).zip(&counters) {
        for probe in &mut probes {
            probe.command::<()>(["SET", counter, &number.to_string()]).await;
        }
        let guard = locks.lock_all(keys).fenced(true).try_acquire().await.unwrap();
        assert_eq!(guard.fencing_token().unwrap().number(), number + 1, "{counter}");
        guard.release().await.unwrap();
        // A majority of the counters of each key has the number, and so has the next holder of each key.
        for key in keys {
            let guard = locks.lock(key).fenced(true).try_acquire().await.unwrap();
            assert!(guard.fencing_token().unwrap().number() > number + 1, "{key}");
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_broken_counter_of_one_key_refuses_the_set_before_anything_is_set() {
    let (_server, locks, mut probe) = one().await;
    let set = || locks.lock_all(["order:42", "order:43"]).fenced(true);
    set().try_acquire().await.unwrap().release().await.unwrap();
    for counter in probe.keys().await {
        let before: String = probe.command(["GET", &counter]).await;
        probe.command::<()>(["SET", &counter, "nan"]).await;
        let error = set().try_acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        assert!(error.diagnostics().to_string().contains("fencing counter"), "{error:?}");
        assert_eq!(locks_of(&mut probe).await, [""; 0]);
        probe.command::<()>(["SET", &counter, &before]).await;
    }
    set().try_acquire().await.unwrap().release().await.unwrap();
}

/// A crashed process has left another key of the set on one of five servers. It does not hide the key that the
/// holder has.
#[tokio::test]
async fn the_key_that_most_nodes_name_is_the_key_that_is_waited_for() {
    let (servers, one) = start(5).await;
    let other = connect(servers.urls()).await;
    servers[2].probe().await.command::<()>(["SET", "a", "left", "PX", "300000"]).await;
    let held = one.lock("c").expire(LONG).try_acquire().await.unwrap();
    let error = other.lock_all(["a", "b", "c"]).try_acquire().await.unwrap_err();
    assert_eq!(error.key().unwrap().as_str(), "c");
    let set = other.lock_all(["a", "b", "c"]).expire(LONG).wait_time(LONG);
    let waiting = tokio::spawn(set.acquire());
    let mut probe = servers[0].probe().await;
    eventually("the set waits for the key", SOON, async || {
        let listeners: (String, u64) = probe.command(["PUBSUB", "NUMSUB", "c"]).await;
        (listeners.1 == 1).then_some(())
    })
    .await;
    held.release().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    guard.release().await.unwrap();
}
