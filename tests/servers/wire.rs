//! The commands that the servers receive.

use std::collections::HashSet;
use std::time::Duration;

use redlock_tests::{Monitor, RedisServer};

use super::kind::Kind;
use super::{LONG, connect, start};

const KEY: &str = "order:42";
/// The counted commands.
const NAMES: [&str; 8] = ["set", "evalsha", "eval", "script|load", "ping", "get", "del", "publish"];

/// A `SET` costs Redis half as much as a script. A second round trip would cost the client time.
#[tokio::test]
async fn every_operation_is_one_command() {
    let (servers, locks) = start(1).await;
    let stranger = connect(servers.urls()).await;
    let mut probe = servers[0].probe().await;
    let deletes = probe.has_command("DELIFEQ").await || probe.has_command("DELEX").await;
    let sets = probe.has_command("MSETEX").await;
    for (kind, alone, with_others) in [
        // In the scripts: GET, DEL, and PUBLISH for the waiters. A refusal looks for the remaining time by a script.
        (Kind::Plain, [10, 10, 0, 0, 0, 10, 10, 10], [20, 30]),
        (Kind::Redisson, [0, 20, 0, 0, 0, 0, 10, 10], [0, 40]),
        // In the scripts: three keys each, which the acquisition reads, too.
        (Kind::Set, [30, 20, 0, 0, 0, 60, 30, 30], [30, 40]),
    ] {
        let (alone, with_others) = match kind {
            // PUBLISH follows the command of the release.
            Kind::Plain if deletes => ([10, 0, 0, 0, 0, 0, 0, 10], [20, 20]),
            // The script of the release remains.
            Kind::Set if sets => ([0, 10, 0, 0, 0, 30, 30, 30], [0, 30]),
            _ => (alone, with_others),
        };
        for is_alone in [true, false] {
            probe.reset_calls().await;
            for _ in 0..10 {
                let guard = kind.acquire(&locks).await.unwrap();
                if !is_alone {
                    assert!(kind.acquire(&stranger).await.unwrap_err().is_contended());
                    guard.extend(LONG * 2).await.unwrap();
                }
                guard.release().await.unwrap();
            }
            let calls = probe.calls().await;
            let counts = NAMES.map(|name| calls.get(name).copied().unwrap_or_default());
            let expected = if is_alone { &alone[..] } else { &with_others };
            assert_eq!(&counts[..expected.len()], expected, "{kind:?}: {calls:?}");
        }
    }
}

/// SETNX and EXPIRE as two commands leave a lock without a deadline if the second one does not
/// arrive (every lock has a deadline).
#[tokio::test]
async fn a_lock_is_set_with_its_time_to_live_in_one_command() {
    let (servers, locks) = start(1).await;
    let mut monitor = Monitor::connect(&servers[0].url()).await.unwrap();
    let guard = locks.lock(KEY).expire(Duration::from_millis(12_345)).try_acquire().await.unwrap();
    let token = servers[0].probe().await.get(KEY).await.unwrap();
    let token = String::from_utf8(token).unwrap();
    guard.release().await.unwrap();
    let is_release = |line: &str| ["EVALSHA", "DELIFEQ"].iter().any(|name| line.contains(name));
    let lines = monitor.until(is_release).await;
    let set = format!(r#""SET" "{KEY}" "{token}" "NX" "PX" "12345""#);
    assert!(lines.iter().any(|line| line.ends_with(&set)), "{set}: {lines:#?}");
    let release = lines.last().unwrap();
    assert!(release.ends_with(&format!(r#" "{KEY}" "{token}""#)), "{release}");
}

/// Refused attempts and the repeated attempts of one acquisition have different tokens, too (a fresh token
/// for every attempt).
#[tokio::test]
async fn every_attempt_has_a_fresh_token() {
    let (servers, locks) = start(1).await;
    let mut monitor = Monitor::connect(&servers[0].url()).await.unwrap();
    let held = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    // A second manager acts as another process. The first one knows without asking the server that the
    // lock is held.
    let other = connect(servers.urls()).await;
    for _ in 0..5 {
        other.lock(KEY).try_acquire().await.unwrap_err();
    }
    let wait_time = Duration::from_millis(200);
    other.lock(KEY).wait_time(wait_time).acquire().await.unwrap_err();
    held.release().await.unwrap();
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
    servers[0].probe().await.command::<()>(["SET", "the end", ""]).await;

    let lines = monitor.until(|line| line.contains("\"the end\"")).await;
    let tokens: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.split_once(&format!(r#""SET" "{KEY}" ""#)))
        .map(|(_, rest)| rest.split('"').next().unwrap())
        .collect();
    assert!(tokens.len() >= 8, "{lines:#?}");
    assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), tokens.len(), "{tokens:#?}");
    assert!(tokens.iter().all(|token| token.len() >= 20), "{tokens:#?}");
}

#[tokio::test]
async fn urls_may_name_sockets_databases_and_passwords() {
    let server = RedisServer::options().password("s3cret/with:all@kinds").start().await;
    let password = "s3cret%2Fwith%3Aall%40kinds";
    let tcp = format!("redis://:{password}@127.0.0.1:{}/3", server.port());
    let socket = format!("unix://{}?db=3&pass={password}", server.socket().display());
    let (by_tcp, by_socket) = (connect([tcp]).await, connect([socket]).await);
    let guard = by_tcp.lock(KEY).try_acquire().await.unwrap();
    assert!(by_socket.lock(KEY).try_acquire().await.unwrap_err().is_contended());
    guard.release().await.unwrap();
    by_socket.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
}
