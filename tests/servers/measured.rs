//! The commands of many callers reach the server in few writes, over TCP, TLS and unix sockets; a message of Redisson wakes
//! a waiter.

use std::time::Instant;

use redlock_core::Dialect;
use redlock_tests::{RedisServer, Servers, best_of_five};

use super::operations::Files;
use super::{LONG, SOON, connect, start, until_it_sleeps};

const ROUNDS: usize = 50;

/// A number of callers, and the lowest average number of commands that the server reads at once. Usually it reads twelve
/// commands of 64 callers at once, because the replies are read in five slices. Without batches it reads at most
/// three.
const MANY: (usize, usize) = (64, 7);

/// The commands of a fifth of the callers do not fit into the 8 KiB after which the redis crate writes by default: it
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
    let locks = connect(urls).await;
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

/// The runtime has one worker thread. So no other thread runs the callers while the driver of the connection writes, and
/// without the pause before a write each write would have one or two commands.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_commands_of_many_callers_are_written_together() {
    let files = Files::new();
    let with_tls = files.options();
    let has_tls = with_tls.is_some();
    let server = with_tls.unwrap_or_default().start().await;
    let socket = format!("unix://{}", server.socket().display());
    let mut kinds = vec![(server.url(), MANY), (server.url(), MORE_THAN_8_KIB), (socket, MANY)];
    if has_tls {
        let url = format!("{}?tls_ca={}", server.tls_url(), files.text("ca.pem"));
        kinds.push((url, MANY));
    }
    for (url, (callers, fewest)) in kinds {
        let what = format!("commands at once of {callers} callers over {url}, at least {fewest}");
        let urls = [url];
        let measure = async || commands_at_once(&server, &urls, callers).await;
        best_of_five(&what, measure, |at_once| *at_once >= fewest).await;
    }
}

/// Several servers work at the same time. So a process does not need slices to have work meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn only_a_manager_with_one_server_reads_in_slices() {
    let servers = Servers::start(3).await;
    let measure = async || {
        let of_one = commands_at_once(&servers[0], &servers.urls()[..1], MANY.0).await;
        let of_three = commands_at_once(&servers[0], &servers.urls(), MANY.0).await;
        100 * of_three / of_one
    };
    let what = "commands at once of three servers in percent of those of one, at least 200";
    best_of_five(what, measure, |percent| *percent >= 200).await;
}

/// The test unlocks as Redisson does, by `DEL` and `PUBLISH`, while a caller of this library waits.
#[tokio::test]
async fn an_unlock_message_of_redisson_wakes_the_waiter() {
    const CHANNEL: &str = "redisson_lock__channel:{order:42}";
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    let measure = async || {
        let owner = "381e52be-fd77-4a79-9de6-cc885910755d:77";
        probe.command::<()>(["HSET", "order:42", owner, "1"]).await;
        probe.command::<()>(["PEXPIRE", "order:42", "300000"]).await;
        probe.reset_calls().await;
        let request = locks.lock("order:42").dialect(Dialect::Redisson).wait_time(LONG);
        let waiting = tokio::spawn(request.acquire());
        until_it_sleeps(&mut probe, CHANNEL).await;
        let unlocked = Instant::now();
        probe.command::<()>(["DEL", "order:42"]).await;
        probe.command::<()>(["PUBLISH", CHANNEL, "0"]).await;
        let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
        let waited = unlocked.elapsed();
        guard.release().await.unwrap();
        waited.as_millis()
    };
    let what =
        "milliseconds until the waiter has the lock, below 125: it polls after 250 at the earliest";
    best_of_five(what, measure, |waited| *waited < 125).await;
}
