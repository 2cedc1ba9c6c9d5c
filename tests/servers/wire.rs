//! Tests of the commands that the servers receive.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;
use std::time::Duration;

use redlock_core::{ExtendError, ForeignKind, LockError, LockManager, ReleaseError, Vote};
use redlock_tests::{Logs, Monitor, Nodes, RedisServer, Servers, eventually};

const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(10);
const KEY: &str = "order:42";

/// Returns a manager for the servers, with the same timeouts as [`Nodes::builder`].
async fn manager(servers: &Servers) -> LockManager {
    LockManager::builder()
        .urls(servers.urls())
        .node_timeout(Duration::from_secs(2))
        .connect_timeout(SOON)
        .connect()
        .await
        .unwrap()
}

async fn one(server: RedisServer) -> (Servers, LockManager) {
    let servers = Servers::from(vec![server]);
    let locks = manager(&servers).await;
    (servers, locks)
}

/// A `SET` costs Redis half as much as a script. A second round trip would cost the client time.
#[tokio::test]
async fn an_uncontended_lock_is_one_set_and_one_script() {
    let (servers, locks) = one(RedisServer::start().await).await;
    let mut probe = servers[0].probe().await;
    probe.reset_calls().await;
    for _ in 0..10 {
        locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
    }
    let calls = probe.calls().await;
    let count = |name| calls.get(name).copied().unwrap_or_default();
    assert_eq!((count("set"), count("evalsha")), (10, 10), "{calls:?}");
    assert_eq!((count("eval"), count("ping"), count("script|load")), (0, 0, 0), "{calls:?}");
    // Commands that the scripts call: GET, DEL, and PUBLISH for the waiters.
    assert_eq!((count("get"), count("del"), count("publish")), (10, 10, 10), "{calls:?}");
}

/// SETNX and EXPIRE as two commands leave a lock without a deadline if the second one does not
/// arrive (every lock has a deadline).
#[tokio::test]
async fn a_lock_is_set_with_its_time_to_live_in_one_command() {
    let (servers, locks) = one(RedisServer::start().await).await;
    let mut monitor = Monitor::connect(&servers[0].url()).await.unwrap();
    let guard = locks.lock(KEY).expire(Duration::from_millis(12_345)).try_acquire().await.unwrap();
    let token = servers[0].probe().await.get(KEY).await.unwrap();
    let token = String::from_utf8(token).unwrap();
    guard.release().await.unwrap();
    let lines = monitor.until(|line| line.contains("EVALSHA")).await;
    let set = format!(r#""SET" "{KEY}" "{token}" "NX" "PX" "12345""#);
    assert!(lines.iter().any(|line| line.ends_with(&set)), "{set}: {lines:#?}");
    let release = lines.last().unwrap();
    assert!(release.ends_with(&format!(r#""1" "{KEY}" "{token}""#)), "{release}");
}

/// Refused attempts and the repeated attempts of one acquisition have different tokens, too (a fresh token
/// for every attempt).
#[tokio::test]
async fn every_attempt_has_a_fresh_token() {
    let (servers, locks) = one(RedisServer::start().await).await;
    let mut monitor = Monitor::connect(&servers[0].url()).await.unwrap();
    let held = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    // A second manager acts as another process. The first one knows without asking the server that the
    // lock is held.
    let other = manager(&servers).await;
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

/// A former holder leaves the lock to its new holder (only the owner releases).
#[tokio::test]
async fn a_former_holder_neither_extends_nor_removes_the_next_holders_lock() {
    let nodes = Nodes::redis(3).await;
    let locks = nodes.manager().await;
    let released = locks.lock("released").expire(LONG).try_acquire().await.unwrap();
    let extended = locks.lock("extended").expire(LONG).try_acquire().await.unwrap();
    let dropped = locks.lock("dropped").expire(LONG).try_acquire().await.unwrap();
    for key in ["released", "extended", "dropped"] {
        nodes.all_hold(key).await;
    }
    let Nodes::Redis(servers) = &nodes else { unreachable!() };
    for server in servers.iter() {
        for key in ["released", "extended", "dropped"] {
            let set = ["SET", key, "somebody else's", "PX", "60000"];
            server.probe().await.command::<()>(set).await;
        }
    }

    let error = extended.extend(LONG).await.unwrap_err();
    assert!(matches!(error, ExtendError::Lost { .. }), "{error}");
    assert!(!extended.is_valid());
    tokio::time::timeout(SOON, extended.lost()).await.unwrap();
    let error = released.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Expired { .. }), "{error}");
    drop((extended, dropped));
    locks.shutdown().await;

    for server in servers.iter() {
        for key in ["released", "extended", "dropped"] {
            let mut probe = server.probe().await;
            assert_eq!(probe.get(key).await.as_deref(), Some(&b"somebody else's"[..]), "{key}");
            assert!(probe.time_to_live(key).await.unwrap() <= Duration::from_secs(60));
        }
    }
}

/// `SET NX` returns nil for a foreign key, as for a lock that is held for ever.
#[tokio::test]
async fn a_foreign_key_is_distinguished_from_a_held_lock() {
    let servers = Servers::start(3).await;
    let locks = manager(&servers).await;
    let nine_days = (9 * 24 * 60 * 60 * 1000).to_string();
    let cases: [(&[&str], ForeignKind); 3] = [
        (&["SET", KEY, "1"], ForeignKind::NoTimeToLive),
        (&["RPUSH", KEY, "1"], ForeignKind::WrongType),
        (&["SET", KEY, "1", "PX", &nine_days], ForeignKind::TimeToLiveTooLong),
    ];
    for (command, expected) in cases {
        for server in servers.iter() {
            let mut probe = server.probe().await;
            probe.command::<()>(["DEL", KEY]).await;
            probe.command::<redis::Value>(command).await;
        }
        let waiting = locks.lock(KEY).wait_time(LONG).acquire();
        let error = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap_err();
        let LockError::ForeignKey { votes, .. } = &error else { panic!("{expected}: {error}") };
        let found = votes.iter().find_map(|(_, vote)| match vote {
            Some(Vote::Foreign { found, .. }) => Some(*found),
            _ => None,
        });
        assert_eq!(found, Some(expected), "{error}");
        let still_there = servers.keys().await.len();
        assert_eq!(still_there, servers.len(), "the foreign key was removed");
    }
}

/// One of three nodes has a foreign key; the majority grants the lock.
#[tokio::test]
async fn a_foreign_key_on_a_minority_of_nodes_has_no_effect() {
    let servers = Servers::start(3).await;
    let locks = manager(&servers).await;
    servers[1].probe().await.command::<()>(["SET", KEY, "1"]).await;
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    guard.release().await.unwrap();
    let foreign = format!("{}/{KEY}", servers[1].port());
    eventually("only the foreign key is left", SOON, async || {
        (servers.keys().await == [foreign.clone()]).then_some(())
    })
    .await;
}

/// A server forgets its scripts after a restart or SCRIPT FLUSH. Sending them again must not loop.
#[tokio::test]
async fn scripts_that_the_server_has_forgotten_are_sent_again() {
    let (servers, locks) = one(RedisServer::start().await).await;
    let mut probe = servers[0].probe().await;
    for _ in 0..2 {
        let guard = locks.lock(KEY).expire(SOON).try_acquire().await.unwrap();
        probe.command::<()>(["SCRIPT", "FLUSH"]).await;
        guard.extend(LONG).await.unwrap();
        probe.command::<()>(["SCRIPT", "FLUSH"]).await;
        let error = locks.lock(KEY).try_acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Contended { remaining: Some(_), .. }), "{error}");
        probe.command::<()>(["SCRIPT", "FLUSH"]).await;
        guard.release().await.unwrap();
        assert!(probe.keys().await.is_empty());
    }
}

/// FLUSHALL removes the lock while it is renewed (loss is never silent).
#[tokio::test]
async fn a_renewed_lock_whose_key_was_deleted_is_lost() {
    let nodes = Nodes::redis(3).await;
    let locks = nodes.manager().await;
    let lease = Duration::from_secs(3);
    let guard = locks.lock(KEY).expire(lease).renew(true).try_acquire().await.unwrap();
    nodes.all_hold(KEY).await;
    let Nodes::Redis(servers) = &nodes else { unreachable!() };
    for server in servers.iter() {
        server.probe().await.command::<()>(["FLUSHALL"]).await;
    }
    tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert!(!guard.is_valid());
    nodes.become_empty().await;
}

#[tokio::test]
async fn urls_may_name_sockets_databases_and_passwords() {
    let server = RedisServer::options().password("s3cret/with:all@kinds").start().await;
    let password = "s3cret%2Fwith%3Aall%40kinds";
    let tcp = format!("redis://:{password}@127.0.0.1:{}/3", server.port());
    let socket = format!("unix://{}?db=3&pass={password}", server.socket().display());
    let by_tcp = LockManager::builder().url(&tcp).node_timeout(SOON).connect().await.unwrap();
    let by_socket = LockManager::builder().url(&socket).node_timeout(SOON).connect().await.unwrap();
    let guard = by_tcp.lock(KEY).try_acquire().await.unwrap();
    assert!(by_socket.lock(KEY).try_acquire().await.unwrap_err().is_contended());
    guard.release().await.unwrap();
    by_socket.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
}

/// No Debug output, error or log line contains the password or a token (secrets stay in).
#[tokio::test]
async fn neither_password_nor_token_is_shown_anywhere() {
    let logs = Logs::collect();
    let password = "s3cret-of-the-server";
    let mut servers = Servers::from(vec![RedisServer::options().password(password).start().await]);
    let builder = LockManager::builder().urls(servers.urls());
    let mut shown = vec![format!("{builder:?}")];
    let locks = builder.connect().await.unwrap();
    let request = locks.lock(KEY).expire(LONG);
    shown.push(format!("{locks:?} {request:?}"));
    let guard = request.try_acquire().await.unwrap();
    shown.push(format!("{guard:?} {:?}", guard.handle()));
    let token = servers[0].probe().await.get(KEY).await.unwrap();
    let token = String::from_utf8(token).unwrap();
    let contended = locks.lock(KEY).try_acquire().await.unwrap_err();
    shown.push(format!("{contended} {} {contended:?}", contended.diagnostics()));
    servers[0].kill();
    let unavailable = eventually("the node is down", SOON, async || {
        let error = locks.lock("other").try_acquire().await.unwrap_err();
        matches!(error, LockError::Unavailable { .. }).then_some(error)
    });
    let unavailable = unavailable.await;
    let diagnostics = unavailable.diagnostics().to_string();
    shown.push(format!("{unavailable} {diagnostics} {unavailable:?}"));
    let release = guard.release().await.unwrap_err();
    shown.push(format!("{release} {} {release:?}", release.diagnostics()));
    let connect = LockManager::connect(servers.urls()).await.unwrap_err();
    shown.push(format!("{connect} {connect:?}"));
    for url in
        ["redis://:s3cret-of-the-server@", "s3cret-of-the-server", "redis//:s3cret-of-the-server@h"]
    {
        let error = LockManager::connect([url]).await.unwrap_err();
        shown.push(format!("{error} {error:?}"));
    }
    locks.shutdown().await;
    shown.extend(logs.lines().into_iter().filter(|line| line.contains("redlock")));

    assert!(diagnostics.contains(&format!("127.0.0.1:{}", servers[0].port())), "{diagnostics}");
    for text in &shown {
        assert!(!text.contains(password), "{text}");
        assert!(!text.contains(&token), "{text}");
    }
}
