//! Fair callers on real servers: their order between processes, what faults cost, and what the order costs.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use redlock_tests::{Probe, RedisServer, Servers, connect, eventually};
use rustix::process::{Pid, Signal, kill_process};

const LEASE: Duration = Duration::from_secs(120);
const SOON: Duration = Duration::from_secs(120);
const KEY: &str = "door";
/// Much longer than a command is on its way to a server. If a process enters a ticket again, that time is added to the
/// time of arrival.
const BLUR: Duration = Duration::from_secs(1);

/// A process of fair callers. It is killed when dropped.
struct Waiters {
    child: Child,
    output: Option<BufReader<ChildStdout>>,
}

/// A caller of a process that had the lock from `begun` to `ended`.
#[derive(Debug, Clone, Copy)]
struct Held {
    number: usize,
    begun: u64,
    ended: u64,
}

impl Waiters {
    fn start(servers: &Servers, hold: Duration) -> Self {
        Self::start_at(&servers.urls(), hold)
    }

    fn start_at(urls: &[String], hold: Duration) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fair-waiters"))
            .env("LOCKS_URLS", urls.join(","))
            .env("KEY", KEY)
            .env("HOLD_MS", hold.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, output: Some(output) }
    }

    fn add(&mut self, number: usize) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{number}").unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until all callers are done.
    fn finish(mut self) -> Vec<Held> {
        drop(self.child.stdin.take());
        let lines = self.output.take().unwrap().lines();
        let held = lines.map(|line| {
            let line = line.unwrap();
            let mut parts = line.split(' ').map(|part| part.parse::<u64>().unwrap());
            let [number, begun, ended] = [(); 3].map(|()| parts.next().unwrap());
            Held { number: usize::try_from(number).unwrap(), begun, ended }
        });
        let held = held.collect();
        assert!(self.child.wait().unwrap().success());
        held
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for all processes. Returns the callers in the order in which they had the lock, after checking that no two of
/// them had it at the same time.
async fn finish(processes: Vec<Waiters>) -> Vec<Held> {
    let finished =
        processes.into_iter().map(|process| tokio::task::spawn_blocking(move || process.finish()));
    let mut held = Vec::new();
    for process in finished.collect::<Vec<_>>() {
        held.extend(process.await.unwrap());
    }
    held.sort_by_key(|held| held.begun);
    for pair in held.windows(2) {
        assert!(pair[0].ended <= pair[1].begun, "two holders at once: {pair:?}");
    }
    held
}

/// Waits until so many tickets are in the queue of a server.
pub(super) async fn tickets(server: &RedisServer, count: usize) {
    tickets_at(&mut server.probe().await, count).await;
}

/// Waits until so many tickets are in the queue of a server with one fair lock.
pub(super) async fn tickets_at(probe: &mut Probe, count: usize) {
    eventually("the callers have arrived", SOON, async || {
        let keys = probe.keys().await;
        let queue = keys.iter().find(|key| key.contains(":fair:"))?;
        let tickets: Vec<String> = probe.command(["ZRANGEBYSCORE", queue, "0", "+inf"]).await;
        (tickets.len() >= count).then_some(())
    })
    .await;
}

/// Adds a caller to a process, and waits until the queue of the server has so many tickets. Later callers have later
/// tickets.
async fn arrive(process: &mut Waiters, number: usize, server: &RedisServer, count: usize) {
    process.add(number);
    tickets(server, count).await;
}

fn numbers(held: &[Held]) -> Vec<usize> {
    held.iter().map(|held| held.number).collect()
}

async fn assert_nothing_is_left(servers: &Servers) {
    eventually("no key and no subscription is left", SOON, async || {
        for server in servers.iter() {
            let mut probe = server.probe().await;
            let channels: Vec<String> = probe.command(["PUBSUB", "CHANNELS"]).await;
            if !probe.keys().await.is_empty() || !channels.is_empty() {
                return None;
            }
        }
        Some(())
    })
    .await;
}

async fn callers_get_the_lock_in_the_order_of_their_arrival(nodes: usize) {
    const PROCESSES: usize = 4;
    const CALLERS: usize = 40;
    let servers = Servers::start(nodes).await;
    let locks = connect(servers.urls()).await;
    let guard = locks.lock(KEY).expire(LEASE).try_acquire().await.unwrap();
    let mut processes: Vec<_> =
        (0..PROCESSES).map(|_| Waiters::start(&servers, Duration::from_millis(1))).collect();
    for number in 0..CALLERS {
        // Each process has ten callers, in changing turns.
        let process = &mut processes[(number + number / PROCESSES) % PROCESSES];
        arrive(process, number, &servers[0], number + 1).await;
    }
    guard.release().await.unwrap();
    let held = finish(processes).await;
    assert_eq!(numbers(&held), (0..CALLERS).collect::<Vec<_>>());
    drop(locks);
    assert_nothing_is_left(&servers).await;
}

#[tokio::test]
async fn on_one_node_callers_get_the_lock_in_the_order_of_their_arrival() {
    callers_get_the_lock_in_the_order_of_their_arrival(1).await;
}

#[tokio::test]
async fn on_five_nodes_callers_get_the_lock_in_the_order_of_their_arrival() {
    callers_get_the_lock_in_the_order_of_their_arrival(5).await;
}

/// The killed process has every other place, from the first on.
#[tokio::test]
async fn a_killed_process_delays_the_others_once_however_many_callers_it_had() {
    const CALLERS: usize = 30;
    let servers = Servers::start(1).await;
    let locks = connect(servers.urls()).await;
    let guard = locks.lock(KEY).expire(LEASE).try_acquire().await.unwrap();
    let mut killed = Waiters::start(&servers, Duration::from_millis(1));
    let mut processes: Vec<_> =
        (0..2).map(|_| Waiters::start(&servers, Duration::from_millis(1))).collect();
    for number in 0..CALLERS {
        let process = if number % 2 == 0 { &mut killed } else { &mut processes[number / 2 % 2] };
        arrive(process, number, &servers[0], number + 1).await;
    }
    killed.kill();
    let begun = Instant::now();
    guard.release().await.unwrap();
    let held = finish(processes).await;
    let took = begun.elapsed();
    assert_eq!(numbers(&held), (1..CALLERS).step_by(2).collect::<Vec<_>>());
    // The presence of the killed process ends after 3 s. A delay for each of its callers would be 45 s.
    assert!(took < Duration::from_secs(20), "{took:?}");
    drop(locks);
    assert_nothing_is_left(&servers).await;
}

/// The callers move to the next node with the time that they have waited, so they stand before callers that have arrived
/// there later, but before them.
#[tokio::test]
async fn when_the_conductor_is_killed_no_caller_loses_its_place() {
    let mut servers = Servers::start(5).await;
    let locks = connect(servers.urls()).await;
    let guard = locks.lock(KEY).expire(LEASE).try_acquire().await.unwrap();
    let mut first = Waiters::start(&servers, Duration::from_millis(1));
    for number in 0..5 {
        arrive(&mut first, number, &servers[0], number + 1).await;
    }
    tokio::time::sleep(BLUR).await;
    // The second process cannot reach the first node, so its callers have their places on the next one.
    let mut urls = servers.urls();
    urls[0] = "redis://127.0.0.1:1".to_owned();
    let mut second = Waiters::start_at(&urls, Duration::from_millis(1));
    for number in 5..10 {
        arrive(&mut second, number, &servers[1], number - 4).await;
    }
    servers[0].kill();
    for number in 10..15 {
        first.add(number);
    }
    tickets(&servers[1], 15).await;
    for number in 15..25 {
        arrive([&mut first, &mut second][number % 2], number, &servers[1], number + 1).await;
    }
    guard.release().await.unwrap();
    let mut order = numbers(&finish(vec![first, second]).await);
    // These callers have arrived at the same time.
    order[10..15].sort_unstable();
    assert_eq!(order, (0..25).collect::<Vec<_>>());
    drop(locks);
    servers[0].restart().await;
    assert_nothing_is_left(&servers).await;
}

/// Its presence ends, and it gets its places back.
#[tokio::test]
async fn a_stopped_process_gets_its_places_back() {
    let servers = Servers::start(1).await;
    let locks = connect(servers.urls()).await;
    let guard = locks.lock(KEY).expire(LEASE).try_acquire().await.unwrap();
    let [mut stopped, mut other] =
        [(); 2].map(|()| Waiters::start(&servers, Duration::from_millis(1)));
    for number in 0..4 {
        arrive([&mut stopped, &mut other][number % 2], number, &servers[0], number + 1).await;
        tokio::time::sleep(BLUR).await;
    }
    stopped.signal(Signal::STOP);
    let mut probe = servers[0].probe().await;
    let queue = probe.keys().await.into_iter().find(|key| key.contains(":fair:")).unwrap();
    eventually("the presence is over", SOON, async || {
        let tickets: u64 = probe.command(["ZCARD", &queue]).await;
        // The other process, with two tickets.
        (tickets == 3).then_some(())
    })
    .await;
    stopped.signal(Signal::CONT);
    eventually("the process is back", SOON, async || {
        let tickets: u64 = probe.command(["ZCARD", &queue]).await;
        (tickets == 6).then_some(())
    })
    .await;
    // Each process refreshes its presence, and so learns that it is not the first any more. When both have done so twice,
    // the other one has evaluated the reply to its first refresh.
    for _ in 0..2 {
        let presences = async |probe: &mut Probe| -> Vec<(String, String)> {
            probe.command(["ZRANGEBYSCORE", &queue, "-inf", "(0", "WITHSCORES"]).await
        };
        let before = presences(&mut probe).await;
        eventually("the presences are refreshed", SOON, async || {
            let after = presences(&mut probe).await;
            after.iter().all(|presence| !before.contains(presence)).then_some(())
        })
        .await;
    }
    guard.release().await.unwrap();
    assert_eq!(numbers(&finish(vec![stopped, other]).await), [0, 1, 2, 3]);
    drop(locks);
    assert_nothing_is_left(&servers).await;
}

/// Returns the number of commands that clients have sent since the last call.
async fn commands(servers: &Servers) -> u64 {
    let mut sum = 0;
    for server in servers.iter() {
        let mut probe = server.probe().await;
        let calls = probe.calls().await;
        let sent = ["set", "delifeq", "delex", "evalsha", "subscribe", "unsubscribe"];
        sum += sent.iter().filter_map(|name| calls.get(*name)).sum::<u64>();
        probe.reset_calls().await;
    }
    sum
}

/// The figures of the guide.
#[tokio::test]
async fn a_fair_acquisition_costs_two_more_commands_on_the_first_node() {
    const ROUNDS: u64 = 50;
    for (nodes, plain) in [(1, 2), (3, 6)] {
        let servers = Servers::start(nodes).await;
        let locks = connect(servers.urls()).await;
        let request = || locks.lock(KEY).expire(LEASE).wait_forever();
        let mut per_acquisition = Vec::new();
        for is_fair in [false, true] {
            commands(&servers).await;
            for _ in 0..ROUNDS {
                let request = if is_fair { request().fair(true) } else { request() };
                request.acquire().await.unwrap().release().await.unwrap();
            }
            // The last place is left in the background.
            locks.lock("other").try_acquire().await.unwrap().release().await.unwrap();
            assert_nothing_is_left(&servers).await;
            per_acquisition.push((commands(&servers).await - plain) / ROUNDS);
        }
        assert_eq!(per_acquisition, [plain, plain + 2], "{nodes} nodes");
    }
}
