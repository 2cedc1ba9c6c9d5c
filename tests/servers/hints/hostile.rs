//! Servers that send invalidations without end, for other keys, at a bad moment, or that lie about the value.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redlock_tests::{Play, PlayedServer, RedisServer, builder, eventually};

use super::{KEY, LONG, SOON};

/// Returns a message of a server that says that this key has changed, or any key.
fn invalidation(key: Option<&str>) -> String {
    let names = key.map(|key| format!("*1\r\n${}\r\n{key}\r\n", key.len()));
    format!(">2\r\n$10\r\ninvalidate\r\n{}", names.unwrap_or_else(|| "_\r\n".to_owned()))
}

/// The server says without end that the key of the lock, another key, or any key has changed. Neither costs a lock, and the
/// process does not answer each message by a read.
#[tokio::test]
async fn invalidations_without_end_cost_no_lock() {
    const MESSAGES: usize = 10_000;
    for key in [Some(KEY), Some("another"), None, Some("not\u{fffd}watched")] {
        let real = RedisServer::start().await;
        let server = PlayedServer::before(&real).await;
        let locks = builder([server.url()]).expire(LONG).connect().await.unwrap();
        let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        let _lost = guard.lost();
        eventually("the key is read", SOON, async || {
            (server.commands(&["GET", KEY]).len() == 1).then_some(())
        })
        .await;
        let (flood, is_sent) =
            (invalidation(key).repeat(MESSAGES), Arc::new(AtomicBool::new(false)));
        let is_first = Arc::clone(&is_sent);
        server.play(move |command| {
            if command.is(&["SET"]) && !is_first.swap(true, Ordering::SeqCst) {
                Play::Precede(flood.clone())
            } else {
                Play::Pass
            }
        });
        // The reply follows all messages.
        let other = locks.lock("other").expire(LONG).try_acquire().await.unwrap();
        assert!(is_sent.load(Ordering::SeqCst));
        guard.extend(2 * LONG).await.unwrap();
        assert!(guard.is_valid() && other.is_valid(), "{key:?}");
        let reads = server.commands(&["GET", KEY]).len();
        assert!(reads <= 2 + 16, "{key:?}: {reads} reads");
        guard.release().await.unwrap();
        other.release().await.unwrap();
        assert_eq!(server.accepted(), 1, "{key:?}");
    }
}

/// A server that lies about the value makes the manager ask all nodes, whose votes decide, and not without end.
#[tokio::test]
async fn a_server_that_lies_about_the_value_costs_no_lock() {
    let real = RedisServer::start().await;
    let server = PlayedServer::before(&real).await;
    let locks = builder([server.url()]).expire(LONG).connect().await.unwrap();
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let is_gone = AtomicBool::new(false);
    server.play(move |command| {
        let lies = command.is(&["GET", KEY]) && is_gone.fetch_xor(true, Ordering::SeqCst);
        if lies { Play::Reply("_\r\n".to_owned()) } else { Play::Pass }
    });
    let before = server.commands(&["EVALSHA"]).len();
    let _lost = guard.lost();
    for _ in 0..100 {
        guard.extend(2 * LONG).await.unwrap();
    }
    assert!(guard.is_valid());
    let asked = server.commands(&["EVALSHA"]).len() - before;
    assert!(asked <= 100 + 16, "{asked} extensions");
}

/// The message comes between an extension and its reply, and belongs to a change before it.
#[tokio::test]
async fn an_invalidation_between_a_command_and_its_reply_costs_no_lock() {
    for word in ["EVALSHA", "GET", "CLIENT"] {
        let real = RedisServer::start().await;
        let server = PlayedServer::before(&real).await;
        let locks = builder([server.url()]).expire(LONG).connect().await.unwrap();
        let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        let is_sent = AtomicBool::new(false);
        server.play(move |command| {
            if command.is(&[word]) && !is_sent.swap(true, Ordering::SeqCst) {
                Play::Precede(invalidation(Some(KEY)))
            } else {
                Play::Pass
            }
        });
        let _lost = guard.lost();
        guard.extend(2 * LONG).await.unwrap();
        guard.extend(3 * LONG).await.unwrap();
        assert!(guard.is_valid(), "{word}");
        guard.release().await.unwrap();
    }
}
