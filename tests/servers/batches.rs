//! The commands of many callers reach the server in few writes, over TCP, TLS and unix sockets.
//!
//! The runtime has one worker thread. So no other thread runs the callers while the driver of the connection
//! writes, and without the pause before a write each write would have one or two commands.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

use redlock_core::LockManager;
use redlock_tests::{RedisServer, Servers, skip};

const ROUNDS: usize = 50;

/// A number of callers, and the lowest average number of commands that the server reads at once, on a busy machine.
/// Usually it reads eleven commands of 64 callers at once, a sixth, because the replies are read in six slices. Without
/// batches it reads at most three.
const MANY: (usize, usize) = (64, 7);

/// The commands of a sixth of the callers do not fit into the 8 KiB after which the redis crate writes by default: it
/// would write at most 80 of them at once. The server reads at most 16 KiB.
const MORE_THAN_8_KIB: (usize, usize) = (1000, 90);

/// The number of times that the server has read from a client.
async fn reads(server: &RedisServer) -> usize {
    let stats: String = server.probe().await.command(["INFO", "stats"]).await;
    let count = stats.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
    count.unwrap().trim().parse().unwrap()
}

/// Many callers acquire and release locks of their own. Returns how many commands the server reads at once, on average.
async fn commands_at_once(server: &RedisServer, urls: &[String], count: usize) -> usize {
    let locks = LockManager::connect(urls).await.unwrap();
    let call = |caller: usize| {
        let locks = locks.clone();
        async move {
            for _ in 0..ROUNDS {
                let guard = locks.lock(format!("order:{caller}")).try_acquire().await.unwrap();
                guard.release().await.unwrap();
            }
        }
    };
    let before = reads(server).await;
    let callers: Vec<_> = (0..count).map(|caller| tokio::spawn(call(caller))).collect();
    for caller in callers {
        caller.await.unwrap();
    }
    2 * count * ROUNDS / (reads(server).await - before)
}

/// Checks how many commands of many callers the server reads at once from one connection.
async fn assert_written_together(server: &RedisServer, url: &str, (count, fewest): (usize, usize)) {
    let at_once = commands_at_once(server, &[url.to_owned()], count).await;
    assert!(at_once >= fewest, "{url}: {at_once} commands at once");
}

/// Several servers work at the same time. So a process does not need slices to have work meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn only_a_manager_with_one_server_reads_in_slices() {
    let servers = Servers::start(3).await;
    let of_one = commands_at_once(&servers[0], &servers.urls()[..1], MANY.0).await;
    let of_three = commands_at_once(&servers[0], &servers.urls(), MANY.0).await;
    assert!(of_three >= 2 * of_one, "{of_three} of three, {of_one} of one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_commands_of_many_callers_are_written_together_over_tcp() {
    let server = RedisServer::start().await;
    assert_written_together(&server, &server.url(), MANY).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_write_is_longer_than_the_8_kib_of_the_redis_crate() {
    let server = RedisServer::start().await;
    assert_written_together(&server, &server.url(), MORE_THAN_8_KIB).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_commands_of_many_callers_are_written_together_over_a_unix_socket() {
    let server = RedisServer::start().await;
    let url = format!("unix://{}", server.socket().display());
    assert_written_together(&server, &url, MANY).await;
}

/// Runs in a process of its own, which trusts the certificate of the server alone: the variable that replaces
/// the system's root certificates must be set before the process starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_commands_of_many_callers_are_written_together_over_tls() {
    const TRUSTED: &str = "SSL_CERT_FILE";
    const KEY: &str = "REDLOCK_TEST_TLS_KEY";

    if let Err(why) = RedisServer::check_tls() {
        skip(&why);
        return;
    }
    if let (Some(certificate), Some(key)) = (std::env::var_os(TRUSTED), std::env::var_os(KEY)) {
        let server = RedisServer::options().tls(certificate.as_ref(), key.as_ref()).start().await;
        assert_written_together(&server, &server.tls_url(), MANY).await;
        return;
    }
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("certificate.pem"), dir.path().join("key.pem"));
    std::fs::write(&certificate, signed.cert.pem()).unwrap();
    std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap());
    let name = "batches::the_commands_of_many_callers_are_written_together_over_tls";
    process.args(["--exact", name, "--nocapture"]).env(TRUSTED, certificate).env(KEY, key);
    let output = process.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
}
