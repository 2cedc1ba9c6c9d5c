//! Changes of the servers while locks outlast their processes: kept locks, and those of holders that are killed. The guide says
//! to wait for the longest lease after each deployment, because the next list may not meet such a lock.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redlock_core::{LockGuard, LockManager};
use redlock_tests::{Servers, connect, eventually};
use tokio::time::{Instant, sleep_until, timeout};

use super::SOON;

/// The longest lease of the deployments that follow the guide.
const LEASE: Duration = Duration::from_secs(2);
/// A lease that is much longer than the rest of its test. The timeout of the nodes in the program of the holders is as long.
const LONG: Duration = Duration::from_secs(25);
/// The lock that only the generation after the next one asks for.
const RARE: &str = "report:monthly";
/// The lock that the next generation waits for.
const FREQUENT: &str = "report:daily";

/// How the former generation leaves its locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The process keeps its lock after the work, and stops.
    Kept,
    /// The process is killed.
    Killed,
}

/// A process that is killed when dropped.
struct Holder(Child);

impl Holder {
    /// Starts a process that holds a lock and renews it, and waits until it has the lock.
    fn start(urls: &[String], key: &str, lease: Duration) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holder"));
        command
            .env("LOCKS_URLS", urls.join(","))
            .env("KEY", key)
            .env("EXPIRE_MS", lease.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut holder = Self(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(holder.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A lock that outlasts its process.
struct Left {
    key: &'static str,
    list: Vec<usize>,
    token: Vec<u8>,
}

impl Left {
    /// Finds the lock on the servers that have it.
    async fn on(servers: &Servers, list: &[usize], key: &'static str) -> Self {
        let mut tokens = Vec::new();
        for server in list {
            tokens.extend(servers[*server].probe().await.get(key).await);
        }
        tokens.dedup();
        assert_eq!(tokens.len(), 1, "one holder has {key}");
        Self { key, list: list.to_vec(), token: tokens.remove(0) }
    }

    /// Returns whether a quorum of its servers still has the lock.
    async fn is_held(&self, servers: &Servers) -> bool {
        let mut count = 0;
        for server in &self.list {
            let token = servers[*server].probe().await.get(self.key).await;
            count += usize::from(token.as_ref() == Some(&self.token));
        }
        count > self.list.len() / 2
    }
}

fn urls(servers: &Servers, list: &[usize]) -> Vec<String> {
    list.iter().map(|server| servers[*server].url()).collect()
}

async fn deploy(servers: &Servers, list: &[usize]) -> LockManager {
    connect(urls(servers, list)).await
}

/// Returns a generation that holds two locks, the second one for twice as long as the first. Of three or more servers, one is
/// down meanwhile.
async fn hold(servers: &mut Servers, list: &[usize], end: End, lease: Duration) -> Generation {
    let down = (list.len() > 2).then(|| list[1]);
    if let Some(down) = down {
        servers[down].kill();
    }
    let mut generation = Generation { left: Vec::new(), manager: None, holders: Vec::new() };
    match end {
        End::Kept => {
            let locks = deploy(servers, list).await;
            for (key, lease) in [(FREQUENT, lease / 2), (RARE, lease)] {
                let request = locks.lock(key).expire(lease).keep(true);
                let guard = request.wait_time(SOON).acquire().await.unwrap();
                guard.release().await.unwrap();
            }
            generation.manager = Some(locks);
        }
        End::Killed => {
            let urls = urls(servers, list);
            for (key, lease) in [(FREQUENT, lease / 2), (RARE, lease)] {
                generation.holders.push(Holder::start(&urls, key, lease));
            }
        }
    }
    generation
}

struct Generation {
    left: Vec<Left>,
    manager: Option<LockManager>,
    holders: Vec<Holder>,
}

impl Generation {
    /// Ends the processes, and starts the server that was down.
    async fn end(&mut self, servers: &mut Servers, list: &[usize]) {
        let up: Vec<_> = list.iter().copied().filter(|server| servers[*server].is_up()).collect();
        self.holders.clear();
        if let Some(locks) = self.manager.take() {
            locks.shutdown().await;
        }
        // A short lease may have ended on a busy machine. Then the lock is nowhere, and nothing can go wrong.
        for key in [RARE, FREQUENT] {
            if servers[up[0]].probe().await.get(key).await.is_some() {
                let mut left = Left::on(servers, &up, key).await;
                left.list = list.to_vec();
                self.left.push(left);
            }
        }
        for server in list {
            if !servers[*server].is_up() {
                servers[*server].restart().await;
            }
        }
    }

    /// Returns whether the former generation still holds this lock.
    async fn holds(&self, servers: &Servers, key: &str) -> bool {
        for left in self.left.iter().filter(|left| left.key == key) {
            if left.is_held(servers).await {
                return true;
            }
        }
        false
    }
}

/// Runs the steps of the guide. Returns how often two generations held one lock.
async fn follow(servers: &mut Servers, lists: [&[usize]; 3], end: End) -> usize {
    let [first, second, third] = lists;
    let mut overlaps = 0;
    let mut former = hold(servers, first, end, LEASE).await;
    let next = deploy(servers, second).await;
    let waiter = tokio::spawn(next.lock(FREQUENT).expire(LEASE).wait_forever().acquire());
    former.end(servers, first).await;
    let ended = Instant::now();
    let guard: LockGuard = timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
    overlaps += usize::from(former.holds(servers, FREQUENT).await);
    drop(guard);
    // The second wait of the guide: no process with the former list runs, and then for the longest lease.
    sleep_until(ended + LEASE).await;
    let last = deploy(servers, third).await;
    let guard = last.lock(RARE).expire(LEASE).try_acquire().await.unwrap();
    overlaps += usize::from(former.holds(servers, RARE).await);
    guard.release().await.unwrap();
    for locks in [next, last] {
        locks.shutdown().await;
    }
    eventually("no key is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
    overlaps
}

#[tokio::test]
async fn locks_that_outlast_their_processes_have_one_holder_if_each_deployment_waits_for_a_lease() {
    let mut servers = Servers::start(5).await;
    let recipes: [[&[usize]; 3]; 4] = [
        [&[0], &[0, 1], &[0, 1, 2]],
        [&[0, 1, 2], &[0, 1, 2, 3], &[0, 1, 2, 3, 4]],
        [&[0, 1, 2, 3, 4], &[0, 1, 2, 3], &[0, 1, 2]],
        [&[0, 1, 2], &[0, 1, 2, 3], &[0, 1, 3]],
    ];
    for recipe in recipes {
        for end in [End::Kept, End::Killed] {
            assert_eq!(follow(&mut servers, recipe, end).await, 0, "{recipe:?} {end:?}");
        }
    }
}

/// The next list meets each lock of the former one, but the list after that does not.
#[tokio::test]
async fn without_the_wait_for_a_lease_the_second_deployment_does_not_meet_a_lock_that_is_left() {
    for end in [End::Kept, End::Killed] {
        let mut servers = Servers::start(4).await;
        let mut former = hold(&mut servers, &[0, 1, 2], end, LONG).await;
        former.end(&mut servers, &[0, 1, 2]).await;
        let next = deploy(&servers, &[0, 1, 2, 3]).await;
        let refused = next.lock(RARE).try_acquire().await.unwrap_err();
        // The former holder has half of the four servers, so the votes may be split.
        assert!(refused.is_contended() || refused.is_split(), "{end:?}: {refused:?}");
        next.shutdown().await;
        let last = deploy(&servers, &[0, 1, 3]).await;
        let guard = last.lock(RARE).try_acquire().await.unwrap();
        assert!(guard.is_valid() && former.holds(&servers, RARE).await, "{end:?}");
        guard.release().await.unwrap();
        last.shutdown().await;
    }
}
