//! Services that ask at the same moment, each of which is nearest to another server. So each gets a server of its own first,
//! and none gets a quorum at its first attempt.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_axum::redis_lock;
use redlock_core::{LockError, LockManager, LockRequest};
use redlock_tests::{Direction, Proxy, Servers, Traffic, builder, connect, eventually};

/// Longer than any test.
const LEASE: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(120);
/// How much later a command reaches the other servers than the nearest one.
const FARTHER: Duration = Duration::from_millis(15);
const TICKS: usize = 8;

/// Services, and the network between each of them and each server.
struct Services {
    managers: Vec<LockManager>,
    _network: Vec<Proxy>,
}

impl Services {
    /// Starts `count` services. The service with the number n is nearest to the server with the number n.
    async fn start(count: usize, servers: &Servers, node_timeout: Duration) -> Self {
        let (mut managers, mut network) = (Vec::new(), Vec::new());
        for service in 0..count {
            let proxies = join_all(servers.iter().map(Proxy::to)).await;
            let urls = proxies.iter().map(Proxy::url);
            managers.push(builder(urls).node_timeout(node_timeout).connect().await.unwrap());
            for (server, proxy) in proxies.iter().enumerate() {
                if server != service {
                    proxy.set(Direction::ToServer, Traffic::Delay(FARTHER));
                }
            }
            network.extend(proxies);
        }
        Self { managers, _network: network }
    }

    /// All services ask at the same moment. Returns how many got their lock. The others are refused because of another
    /// holder.
    async fn ask(&self, request: impl Fn(usize, &LockManager) -> LockRequest) -> usize {
        let requests = self.managers.iter().enumerate();
        let asked = join_all(requests.map(|(service, locks)| {
            let request = request(service, locks).expire(LEASE).keep(true);
            async { request.try_acquire().await.map(drop) }
        }));
        let outcomes = asked.await;
        let refused = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        for error in refused {
            assert!(error.is_contended(), "{error:?}");
        }
        outcomes.iter().filter(|outcome| outcome.is_ok()).count()
    }
}

/// Behind a reader, a webhook is refused at once, and not repeated as split. Without the reader, one of them runs.
#[tokio::test]
async fn webhooks_are_refused_beside_a_reader_and_one_of_them_runs_without_it() {
    let servers = Servers::start(3).await;
    let services = Services::start(3, &servers, SOON).await;
    let reading = connect(servers.urls()).await;
    for delivery in 0..TICKS {
        let key = format!("webhook:{delivery}");
        let reader = reading.lock(&key).shared(true).expire(LEASE).try_acquire().await.unwrap();
        let ran = services.ask(|_, locks| locks.lock(&key)).await;
        assert_eq!(ran, 0, "a reader has the lock of {key}");
        assert!(reader.is_valid());
        reader.release().await.unwrap();
        let ran = services.ask(|_, locks| locks.lock(&key)).await;
        assert_eq!(ran, 1, "{key}");
        let late = reading.lock(&key).shared(true).try_acquire().await.unwrap_err();
        assert!(late.is_contended(), "{late:?}");
    }
}

/// Each of the three locks contains the same article.
#[tokio::test]
async fn one_runs_of_two_sets_of_keys_and_a_single_key_that_are_asked_at_once() {
    let servers = Servers::start(3).await;
    let services = Services::start(3, &servers, SOON).await;
    for cart in 0..TICKS {
        let [a, b, c] = ["a", "b", "c"].map(|article| format!("{article}:{cart}"));
        let ran = services.ask(|service, locks| match service {
            0 => locks.lock_all([&a, &b]),
            1 => locks.lock(&b),
            _ => locks.lock_all([&c, &b]),
        });
        assert_eq!(ran.await, 1, "cart {cart}");
        // The sets that were refused hold none of their other keys: at most one set of two keys is left on each server.
        eventually("only the keys of one lock are left", SOON, async || {
            let keys = servers.keys().await;
            let of = |key: &String| keys.iter().filter(|left| left.ends_with(key.as_str())).count();
            (of(&b) >= 2 && (of(&a) == 0 || of(&c) == 0)).then_some(())
        })
        .await;
    }
}

/// A job at each tick, as `redis_lock.md` shows it.
#[redis_lock(key = "nightly:{tick}", expire = "10m", keep, manager = locks, skip)]
async fn nightly(locks: &LockManager, tick: usize) -> Result<Option<()>, LockError> {
    Ok(Some(()))
}

/// Each of three services has one of the four servers that answer, and the fourth is far from all of them.
#[tokio::test]
async fn each_tick_is_run_once_while_one_of_five_servers_is_frozen() {
    let mut servers = Servers::start(5).await;
    let services = Services::start(3, &servers, Duration::from_millis(400)).await;
    servers[4].freeze();
    let mut longest = Duration::ZERO;
    for tick in 0..TICKS {
        let begun = Instant::now();
        let runs = services.managers.iter().map(|locks| nightly(locks, tick));
        let runs: Result<Vec<_>, _> = join_all(runs).await.into_iter().collect();
        let ran = runs.unwrap().into_iter().flatten().count();
        assert_eq!(ran, 1, "tick {tick}");
        longest = longest.max(begun.elapsed());
    }
    println!("the longest tick took {longest:?}");
}
