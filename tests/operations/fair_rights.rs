//! The permissions that fair locks need in addition, and what is missing without each of them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::time::Duration;

use redlock_core::{LockError, LockManager, NodeError, Vote};
use redlock_tests::{Probe, RedisServer};

const SOON: Duration = Duration::from_secs(10);
const PAGE: &str = include_str!("../../redlock-axum/docs/production.md");

/// Returns the rules of the line with this number that begins with `ACL SETUSER app`.
fn rules(number: usize) -> Vec<&'static str> {
    let mut lines = PAGE.lines().filter(|line| line.trim().starts_with("ACL SETUSER app"));
    let words = lines.nth(number).unwrap().split_whitespace();
    words.filter(|word| word.starts_with(['~', '&', '+'])).collect()
}

/// Starts a server whose user has the rights of plain locks and of fair locks, without the rule `missing`.
async fn start(missing: Option<&str>) -> (RedisServer, Probe, LockManager) {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let mut user = vec!["ACL", "SETUSER", "app", "reset", "resetchannels", "on", ">s3cret"];
    redlock_logs::remember_password("s3cret");
    let all: BTreeSet<_> = rules(0).into_iter().chain(rules(2)).collect();
    user.extend(all.iter().filter(|rule| Some(**rule) != missing));
    probe.command::<()>(&user).await;
    let builder = LockManager::builder().url(server.url_at("app:s3cret@127.0.0.1")).prefix("lock:");
    let locks = builder.node_timeout(SOON).connect_timeout(SOON).connect().await.unwrap();
    (server, probe, locks)
}

async fn acquire(locks: &LockManager) -> Result<(), LockError> {
    let guard = locks.lock("order:42").fair().wait_time(SOON).acquire().await?;
    guard.release().await.unwrap();
    let guard = locks.lock("order:42").fair().try_acquire().await?;
    guard.release().await.unwrap();
    Ok(())
}

#[tokio::test]
async fn the_listed_rights_are_enough_for_fair_locks() {
    let (_server, _probe, locks) = start(None).await;
    acquire(&locks).await.unwrap();
}

/// No fair caller gets a lock without its order, and no queue stays for ever.
#[tokio::test]
async fn without_a_right_a_fair_acquisition_fails_and_names_the_command() {
    // A ticket is removed with ZREM, and the tickets of a killed process are found with ZRANGE: later than an acquisition.
    for missing in ["+zadd", "+zrangebyscore", "+zscore", "+pexpireat", "+time"] {
        let (_server, mut probe, locks) = start(Some(missing)).await;
        let error = acquire(&locks).await.unwrap_err();
        let LockError::Unavailable { votes, .. } = &error else { panic!("{missing}: {error}") };
        let (_, vote) = votes.iter().next().unwrap();
        let Some(Vote::Failed(NodeError::NotPermitted(words))) = vote else { panic!("{votes}") };
        assert!(words.to_lowercase().contains(&missing[1..]), "{missing}: {words}");
        for key in probe.keys().await {
            let left: i64 = probe.command(["PTTL", &key]).await;
            assert!(left > 0, "without {missing}, {key} stays for ever");
        }
    }
}

/// Two processes wait, and are not notified.
#[tokio::test]
async fn without_its_channel_a_process_finds_out_within_a_second_or_two_that_it_is_next() {
    for missing in ["&lock:*", "+publish", "+subscribe"] {
        let (server, _probe, here) = start(Some(missing)).await;
        let builder = LockManager::builder().url(server.url_at("app:s3cret@127.0.0.1"));
        let there = builder.prefix("lock:").node_timeout(SOON).connect().await.unwrap();
        let mut waiting = Vec::new();
        let holder = here.lock("a").try_acquire().await.unwrap();
        for locks in [&here, &there, &here, &there] {
            let request = locks.lock("a").expire(SOON).fair().wait_time(SOON);
            waiting.push(tokio::spawn(async move {
                let guard = request.acquire().await?;
                guard.release().await.unwrap();
                Ok::<_, LockError>(())
            }));
        }
        holder.release().await.unwrap();
        for waiting in waiting {
            waiting.await.unwrap().unwrap();
        }
    }
}
