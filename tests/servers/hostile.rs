//! Servers that send what no client has asked for: replies without an end, pushes, redirects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use redlock_core::{LockError, LockManager, LockManagerBuilder, NodeError, Vote};
use redlock_tests::{Play, PlayedServer, RedisServer, eventually, reaches};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::{LONG, SOON};

/// Long enough for a busy machine, short enough for a test to wait for it.
const NODE_TIMEOUT: Duration = Duration::from_millis(250);

/// The longest one that a manager accepts.
const LONGEST_NODE_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a builder whose manager notices a silent server soon.
fn builder(url: String) -> LockManagerBuilder {
    redlock_tests::builder([url]).expire(LONG).node_timeout(NODE_TIMEOUT)
}

/// Returns why the vote of the only node failed.
fn failed(error: &LockError) -> &NodeError {
    let LockError::Unavailable { votes, .. } = error else { panic!("{error}") };
    let Some((_, Some(Vote::Failed(reason)))) = votes.iter().next() else { panic!("{error}") };
    reason
}

/// Makes the server answer the next `SET` in this way.
fn play_once(server: &PlayedServer, word: &'static str, play: Play) {
    let count = AtomicUsize::new(0);
    server.play(move |command| {
        let is_first = command.is(&[word]) && count.fetch_add(1, Ordering::SeqCst) == 0;
        if is_first { play.clone() } else { Play::Pass }
    });
}

async fn granted(locks: &LockManager, key: &str) {
    eventually("the node votes", SOON, async || {
        let guard = locks.lock(key).expire(LONG).try_acquire().await.ok()?;
        guard.release().await.ok()
    })
    .await;
}

/// Answers an acquisition with a frame that does not end. Its caller does not wait for the lease, and the node is used
/// again, over another connection. Returns why the vote failed.
async fn costs_one_vote(frame: Play, node_timeout: Duration) -> NodeError {
    let real = RedisServer::start().await;
    let server = PlayedServer::before(&real).await;
    let locks = builder(server.url()).node_timeout(node_timeout).connect().await.unwrap();
    granted(&locks, "before").await;
    play_once(&server, "SET", frame.clone());
    let attempt = locks.lock("order:42").expire(LONG).try_acquire();
    let error = tokio::time::timeout(6 * SOON, attempt).await.unwrap().unwrap_err();
    granted(&locks, "after").await;
    assert!(server.accepted() > 1, "{frame:?}");
    eventually("the connection is closed, and no lock is left", SOON, async || {
        let is_empty = real.probe().await.keys().await.is_empty();
        (server.open() == 1 && is_empty).then_some(())
    })
    .await;
    failed(&error).clone()
}

/// As [`costs_one_vote`]. The server counts as silent, or the frame ends the connection.
async fn costs_a_node_timeout(frame: Play) {
    let reason = costs_one_vote(frame.clone(), NODE_TIMEOUT).await;
    let is_right = matches!(reason, NodeError::NoReply(_) | NodeError::ConnectionBroke(_));
    assert!(is_right, "{frame:?}: {reason}");
}

/// All later replies disappear in the frame. They must not count as signs of life.
#[tokio::test]
async fn a_frame_with_a_wrong_length_costs_one_vote_and_the_connection() {
    let lengths = [
        "*2147483647\r\n",
        "$9223372036854775806\r\n",
        "%9223372036854775807\r\n",
        "~4294967296\r\n",
        ">1000000000\r\n",
        "|1000000\r\n",
        "*1\r\n*1\r\n*1\r\n$-2\r\n",
        "*-7\r\n",
        "$1000000\r\n",
    ];
    join_all(lengths.map(|length| costs_a_node_timeout(Play::Precede(length.to_owned())))).await;
}

/// Ten bytes a second are signs of life of the connection, but not of a server that works.
#[tokio::test]
async fn a_server_that_drips_its_reply_costs_one_vote_and_the_connection() {
    let drip = |first: &str, again: &str| {
        Play::Repeat(first.to_owned(), again.to_owned(), Duration::from_millis(100))
    };
    let replies = [drip("$1000000\r\n", "x"), drip("+", "O"), drip("*1000000\r\n", ":1\r\n")];
    join_all(replies.map(costs_a_node_timeout)).await;
}

/// A server could otherwise fill the memory of its clients. The length ends the connection, long before the server counts
/// as silent.
#[tokio::test]
async fn a_reply_without_an_end_costs_one_vote_and_the_connection() {
    let flood = |first: &str, again: &str| {
        Play::Repeat(first.to_owned(), again.repeat(1000), Duration::ZERO)
    };
    let replies = [
        flood("$9223372036854775806\r\n", "xxxxxxxx"),
        flood("+", "xxxxxxxx"),
        flood("-ERR ", "xxxxxxxx"),
        flood("*2147483647\r\n", ":1\r\n"),
        flood("*2147483647\r\n", "*1\r\n$1\r\nx\r\n"),
        flood("", "*1\r\n"),
    ];
    for reason in join_all(replies.map(|reply| costs_one_vote(reply, 3 * SOON))).await {
        assert!(matches!(reason, NodeError::ConnectionBroke(_)), "{reason}");
    }
}

fn push(kind: &str) -> String {
    format!(">3\r\n${}\r\n{kind}\r\n$6\r\nfree-1\r\n:1\r\n", kind.len())
}

/// One push of each kind that a server can send, of a kind that no server has, and one that contains another.
fn unasked_pushes() -> Vec<String> {
    let kinds = ["subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe"];
    let more = ["sunsubscribe", "message", "smessage", "invented"];
    let mut pushes: Vec<String> = kinds.into_iter().chain(more).map(push).collect();
    pushes.push(">2\r\n$10\r\ninvalidate\r\n*1\r\n$6\r\nfree-1\r\n".to_owned());
    pushes.push(format!(">2\r\n$5\r\nouter\r\n{}", push("subscribe")));
    pushes
}

/// A push that counts as a reply shifts all later replies. Half of these callers would then have a lock that another
/// process holds. No time limit ends the test while it makes progress.
#[tokio::test]
async fn no_unasked_push_among_two_thousand_replies_grants_a_lock_that_is_held() {
    const CALLERS: usize = 2000;
    let real = RedisServer::start().await;
    let server = PlayedServer::before(&real).await;
    let connect = async |url: String| {
        let builder = redlock_tests::builder([url]).expire(LONG);
        let builder = builder.node_timeout(LONGEST_NODE_TIMEOUT);
        builder.connect().await.unwrap()
    };
    let other = connect(real.url()).await;
    let held = (0..CALLERS / 2).map(|number| other.lock(format!("held-{number}")).expire(LONG));
    let held = join_all(held.map(redlock_core::LockRequest::try_acquire)).await;
    assert!(held.iter().all(Result::is_ok));
    let locks = connect(server.url()).await;
    let pushes = unasked_pushes();
    let (asked, rest) = (Arc::new(AtomicUsize::new(0)), CALLERS / (pushes.len() + 1));
    let (count, all) = (Arc::clone(&asked), pushes.clone());
    server.play(move |command| {
        if !command.is(&["SET"]) {
            return Play::Pass;
        }
        let number = count.fetch_add(1, Ordering::SeqCst);
        let push = all.get((number / rest).wrapping_sub(1)).filter(|_| number % rest == 0);
        push.map_or(Play::Pass, |push| Play::Precede(push.clone()))
    });
    server.hold_replies(true);
    let answered = Arc::new(AtomicUsize::new(0));
    let attempts = (0..CALLERS).map(|number| {
        let kind = if number % 2 == 0 { "free" } else { "held" };
        let attempt = locks.lock(format!("{kind}-{}", number / 2)).expire(LONG).try_acquire();
        attempt.inspect(|_| _ = answered.fetch_add(1, Ordering::SeqCst))
    });
    let progress = async {
        let count = || asked.load(Ordering::SeqCst);
        reaches("all commands are in flight", CALLERS, 6 * SOON, count).await;
        server.hold_replies(false);
        let count = || answered.load(Ordering::SeqCst);
        reaches("all attempts end", CALLERS, 6 * SOON, count).await;
    };
    let (attempts, ()) = tokio::join!(join_all(attempts), progress);
    for (number, attempt) in attempts.iter().enumerate() {
        let is_right = match attempt {
            Ok(_) => number % 2 == 0,
            Err(error) => number % 2 == 1 && error.is_contended(),
        };
        let push = pushes.get((number / rest).wrapping_sub(1));
        assert!(is_right, "caller {number}, after the push {push:?}: {attempt:?}");
    }
    let releases = attempts.into_iter().flatten().map(redlock_core::LockGuard::release);
    assert!(join_all(releases).await.iter().all(Result::is_ok));
    assert_eq!(server.accepted(), 1, "no push ends the connection");
}

/// The replies with which a server tries to lead a client to this port.
fn redirects(port: u16) -> [String; 4] {
    ["MOVED 0", "MOVED 16383", "ASK 0", "ERR MOVED 0"]
        .map(|kind| format!("-{kind} 127.0.0.1:{port}\r\n"))
}

/// Calls operations of every kind while the server answers each of them with a redirect.
async fn is_redirected(locks: &LockManager, server: &PlayedServer, redirect: &str) {
    let held = locks.lock("held").expire(LONG).try_acquire().await.unwrap();
    let redirect = redirect.to_owned();
    server.play(move |command| {
        let names = ["SET", "EVALSHA", "DELIFEQ", "DELEX"];
        let is_operation = names.iter().any(|word| command.is(&[word]));
        if is_operation { Play::Reply(redirect.clone()) } else { Play::Pass }
    });
    let request = || locks.lock("order:42").expire(LONG);
    for request in [request(), request().shared(true), request().wait_time(NODE_TIMEOUT)] {
        let error = request.acquire().await.unwrap_err();
        assert!(error.diagnostics().to_string().contains("127.0.0.1"), "{}", error.diagnostics());
    }
    request().fenced(true).acquire().await.unwrap_err();
    request().fair(true).wait_time(NODE_TIMEOUT).acquire().await.unwrap_err();
    held.extend(LONG).await.unwrap_err();
    held.release().await.unwrap_err();
    server.play(|_| Play::Pass);
    granted(locks, "held").await;
}

/// Makes a server a sentinel that names this master.
fn name_master(sentinel: &PlayedServer, port: u16) {
    let texts = |texts: &[&str]| {
        let bulks = texts.iter().map(|text| format!("${}\r\n{text}\r\n", text.len()));
        format!("*{}\r\n{}", texts.len(), bulks.collect::<Vec<_>>().concat())
    };
    let port = port.to_string();
    let address = texts(&["127.0.0.1", &port]);
    let role = ["role-reported", "master", "role-reported-time", "900000", "config-epoch", "1"];
    let master = texts(&[&["name", "shop", "ip", "127.0.0.1", "port", &port], &role[..]].concat());
    sentinel.play(move |command| match () {
        () if command.is(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME"]) => Play::Reply(address.clone()),
        () if command.is(&["SENTINEL", "MASTER"]) => Play::Reply(master.clone()),
        () => Play::Pass,
    });
}

/// A server that is no member of a cluster could otherwise lead the password to any port.
#[tokio::test]
async fn only_the_redirect_of_a_cluster_leads_the_password_elsewhere() {
    let real = RedisServer::start().await;
    let server = PlayedServer::before(&real).await;
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = elsewhere.local_addr().unwrap().port();
    redlock_logs::remember_password("Rw62plainpass");
    let url = server.url().replace("redis://", "redis://:Rw62plainpass@");
    let sentinel = PlayedServer::before(&real).await;
    name_master(&sentinel, server.port());
    let by_sentinel = format!("redis+sentinel://:Rw62plainpass@127.0.0.1:{}/shop", sentinel.port());
    for url in [url.clone(), by_sentinel] {
        let locks = builder(url).connect().await.unwrap();
        for redirect in redirects(port) {
            is_redirected(&locks, &server, &redirect).await;
        }
    }
    assert!(elsewhere.accept().now_or_never().is_none(), "the manager follows a redirect");

    // The same redirect of a cluster is followed, so that the test is able to see it.
    let slots =
        format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{}\r\n", server.port());
    let redirect = redirects(port)[0].clone();
    server.play(move |command| match command.words[0].as_str() {
        "CLUSTER" if command.is(&["CLUSTER", "SLOTS"]) => Play::Reply(slots.clone()),
        "SET" => Play::Reply(redirect.clone()),
        _ => Play::Pass,
    });
    let locks = builder(url.replace("redis://", "redis-cluster://")).connect().await.unwrap();
    let _attempt =
        AbortOnDropHandle::new(tokio::spawn(locks.lock("order:42").expire(LONG).try_acquire()));
    let accepted = tokio::time::timeout(SOON, elsewhere.accept()).await;
    accepted.expect("the manager follows the redirect of a cluster").unwrap();
}
