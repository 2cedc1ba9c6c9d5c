//! Clusters whose servers do not agree, redirect to servers that are new, or are slow: the test plays `CLUSTER SLOTS` and
//! the redirects in front of real servers.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use redlock_core::{LockManager, LockManagerBuilder, ReleaseError};
use redlock_tests::{Command, Play, PlayedServer, Servers, eventually};
use tokio::net::TcpListener;

use super::SOON;

const LONG: Duration = Duration::from_secs(300);
/// The shortest time between two readings of the slots.
const REFRESH: Duration = Duration::from_millis(100);
/// A key in most slots.
const KEY: &str = "order:42";
/// A key in the last slot.
const LAST: &str = "key:13358";

/// What a server says about the cluster.
#[derive(Debug, Clone, Copy)]
struct View {
    epoch: u64,
    is_ok: bool,
    /// The owner of all slots but the last one.
    most: usize,
    /// The owner of the last slot.
    last: usize,
}

impl View {
    const fn new(epoch: u64, most: usize, last: usize) -> Self {
        Self { epoch, is_ok: true, most, last }
    }
}

/// The state of a played cluster.
#[derive(Default)]
struct State {
    ports: Vec<u16>,
    /// The view of each server.
    views: Vec<View>,
    /// The view of each server at its last `CLUSTER INFO`. The manager asks for the slots after that, and a change in between
    /// would mix two views.
    told: Vec<View>,
    /// The first server answers this to each operation on a lock, if it is not empty.
    redirect: String,
}

impl State {
    fn play(&mut self, server: usize, command: &Command) -> Play {
        if command.is(&["CLUSTER", "INFO"]) {
            self.told[server] = self.views[server];
        }
        let View { epoch, is_ok, most, last } = self.told[server];
        if command.is(&["CLUSTER", "SLOTS"]) {
            let range = |first: u16, end: u16, owner: usize| {
                let port = self.ports[owner];
                format!("*3\r\n:{first}\r\n:{end}\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
            };
            return Play::Reply(format!(
                "*2\r\n{}{}",
                range(0, 16_382, most),
                range(16_383, 16_383, last)
            ));
        }
        if command.is(&["CLUSTER", "INFO"]) {
            let state = if is_ok { "ok" } else { "fail" };
            let text = format!("cluster_state:{state}\r\ncluster_current_epoch:{epoch}\r\n");
            return Play::Reply(format!("${}\r\n{text}\r\n", text.len()));
        }
        let is_operation = command.is(&["SET"]) || command.is(&["EVALSHA"]);
        if server == 0 && is_operation && !self.redirect.is_empty() {
            return Play::Reply(self.redirect.clone());
        }
        Play::Pass
    }
}

/// Servers that a test plays as the members of a cluster.
struct PlayedCluster {
    reals: Servers,
    servers: Vec<PlayedServer>,
    state: Arc<Mutex<State>>,
}

impl PlayedCluster {
    /// Starts so many servers, each with this view.
    async fn start(count: usize, view: View) -> Self {
        let reals = Servers::start(count).await;
        let state = Arc::new(Mutex::new(State {
            views: vec![view; count],
            told: vec![view; count],
            ..State::default()
        }));
        let mut servers = Vec::new();
        for (number, real) in reals.iter().enumerate() {
            let server = PlayedServer::before(real).await;
            let shared = Arc::clone(&state);
            server.play(move |command| shared.lock().unwrap().play(number, command));
            state.lock().unwrap().ports.push(server.port());
            servers.push(server);
        }
        Self { reals, servers, state }
    }

    fn set_view(&self, server: usize, view: View) {
        self.state.lock().unwrap().views[server] = view;
    }

    fn set_views(&self, view: View) {
        self.state.lock().unwrap().views.fill(view);
    }

    /// Makes the first server redirect each operation on a lock to another server.
    fn redirect(&self, kind: &str, to: usize) {
        let port = self.servers[to].port();
        self.state.lock().unwrap().redirect = format!("-{kind} 1 127.0.0.1:{port}\r\n");
    }

    /// Returns a builder whose URL names the first `seeds` servers.
    fn builder(&self, seeds: usize) -> LockManagerBuilder {
        let ports = self.servers[..seeds].iter();
        let hosts: Vec<_> = ports.map(|server| format!("127.0.0.1:{}", server.port())).collect();
        let url = format!("redis-cluster://{}", hosts.join(","));
        redlock_tests::builder([url]).cluster_refresh(REFRESH)
    }

    async fn connect(&self, seeds: usize) -> LockManager {
        self.builder(seeds).connect().await.unwrap()
    }

    fn count(&self, server: usize, words: &[&str]) -> usize {
        self.servers[server].commands(words).len()
    }

    /// Locks a key again and again until a server was asked for its view so many times more.
    async fn lock_until_read(&self, locks: &LockManager, server: usize, times: usize) {
        let before = self.count(server, &["CLUSTER", "SLOTS"]);
        eventually("the slots are read", SOON, async || {
            granted(locks, KEY).await;
            (self.count(server, &["CLUSTER", "SLOTS"]) >= before + times).then_some(())
        })
        .await;
    }

    /// Locks a key until a server gets the command. If the owner of the slot changes between an acquisition and its
    /// release, the release fails, because the played cluster does not move the lock.
    async fn lock_until_asked(&self, locks: &LockManager, server: usize) {
        let before = self.count(server, &["SET"]);
        eventually("the server is asked for the lock", SOON, async || {
            let _ = locks.lock(KEY).try_acquire().await.ok()?.release().await;
            (self.count(server, &["SET"]) > before).then_some(())
        })
        .await;
    }
}

async fn granted(locks: &LockManager, key: &str) {
    locks.lock(key).try_acquire().await.unwrap().release().await.unwrap();
}

/// A master without slots may be a replica now. If it is promoted later, only a new connection shows that.
#[tokio::test]
async fn the_connection_to_a_master_that_has_lost_its_slots_is_closed_at_once() {
    let cluster = PlayedCluster::start(2, View::new(1, 0, 1)).await;
    let locks = cluster.connect(1).await;
    granted(&locks, LAST).await;
    assert_eq!(cluster.servers[1].open(), 1);
    cluster.set_views(View::new(2, 0, 0));
    // Much sooner than the connection to a server that never had slots.
    eventually("the connection is closed", SOON, async || {
        (cluster.servers[1].open() == 0).then_some(())
    })
    .await;
    granted(&locks, LAST).await;
    cluster.set_views(View::new(3, 0, 1));
    eventually("the master is connected again", SOON, async || {
        locks.lock(LAST).try_acquire().await.ok()?.release().await.ok()?;
        (cluster.count(1, &["SET"]) > 1).then_some(())
    })
    .await;
    // A late reading of the slots may have made a connection of its own.
    assert!(cluster.servers[1].accepted() >= 2);
}

/// Every operation on a moving slot would otherwise wait for a connection.
#[tokio::test]
async fn the_target_of_a_moving_slot_stays_connected_without_slots() {
    let cluster = PlayedCluster::start(2, View::new(1, 0, 0)).await;
    let locks = cluster.connect(1).await;
    cluster.redirect("ASK", 1);
    for _ in 0..3 {
        cluster.lock_until_read(&locks, 0, 3).await;
    }
    assert!(cluster.count(1, &["ASKING"]) >= 3);
    assert_eq!(cluster.servers[1].accepted(), 1);
}

/// Without the pause, the caller would get the error of a server that is not connected yet.
#[tokio::test]
async fn a_redirect_waits_for_the_first_connection_to_a_new_server() {
    for kind in ["MOVED", "ASK"] {
        let cluster = PlayedCluster::start(2, View::new(1, 0, 0)).await;
        let locks = cluster.connect(1).await;
        cluster.servers[1].hold_replies(true);
        cluster.redirect(kind, 1);
        let attempt = tokio::spawn(locks.lock(KEY).try_acquire());
        eventually("the new server is asked to shake hands", SOON, async || {
            (cluster.count(1, &["HELLO"]) > 0).then_some(())
        })
        .await;
        cluster.servers[1].hold_replies(false);
        let guard = tokio::time::timeout(SOON, attempt).await.unwrap().unwrap();
        assert!(guard.is_ok(), "{kind}: {guard:?}");
        assert_eq!(cluster.count(1, &["SET"]), 1, "{kind}");
    }
}

/// Gives the slot of a held lock to the second server while the reply of the first one to an extension is open. The first
/// server executes the extension, and keeps the lock.
async fn moves_during_an_extension(
    cluster: &PlayedCluster,
    is_away: bool,
) -> (LockManager, redlock_core::LockGuard) {
    let locks = cluster.builder(2).expire(LONG).node_timeout(SOON / 30).connect().await.unwrap();
    let guard = locks.lock(KEY).try_acquire().await.unwrap();
    let before = cluster.count(0, &["EVALSHA"]);
    cluster.servers[0].hold_replies(true);
    let extension = async {
        guard.extend(2 * LONG).await.unwrap_err();
    };
    let strike = async {
        eventually("the extension is sent", SOON, async || {
            (cluster.count(0, &["EVALSHA"]) > before).then_some(())
        })
        .await;
        cluster.servers[0].set_away(is_away);
    };
    tokio::join!(extension, strike);
    cluster.set_views(View::new(2, 1, 1));
    eventually("the second server owns the slot", SOON, async || {
        locks.lock("other").try_acquire().await.ok()?.release().await.ok()?;
        (cluster.count(1, &["SET"]) > 0).then_some(())
    })
    .await;
    cluster.servers[0].hold_replies(false);
    (locks, guard)
}

/// The new owner says that it does not have the lock. That is no reason to give up, because the former one may have it.
#[tokio::test]
async fn a_release_goes_to_a_master_whose_reply_is_open_and_to_the_new_owner() {
    let cluster = PlayedCluster::start(2, View::new(1, 0, 0)).await;
    let (_locks, guard) = moves_during_an_extension(&cluster, false).await;
    guard.release().await.unwrap();
    assert_eq!(cluster.reals[0].probe().await.get(KEY).await, None);
}

/// The caller would otherwise learn that it has lost the lock, which nobody else can have.
#[tokio::test]
async fn a_release_fails_while_a_master_whose_reply_is_open_cannot_be_reached() {
    let cluster = PlayedCluster::start(2, View::new(1, 0, 0)).await;
    let (_locks, guard) = moves_during_an_extension(&cluster, true).await;
    assert!(cluster.reals[0].probe().await.get(KEY).await.is_some());
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Unavailable { .. }), "{error}");
}

/// Otherwise the former master keeps the lock until its lease ends.
#[tokio::test]
async fn a_release_is_repeated_until_a_master_whose_reply_is_open_has_answered() {
    let cluster = PlayedCluster::start(2, View::new(1, 0, 0)).await;
    let (_locks, guard) = moves_during_an_extension(&cluster, true).await;
    let mut former = cluster.reals[0].probe().await;
    guard.release().await.unwrap_err();
    cluster.servers[0].set_away(false);
    eventually("the former master releases the lock", SOON, async || {
        former.get(KEY).await.is_none().then_some(())
    })
    .await;
}

/// A server that was cut off for a while names the former owners.
#[tokio::test]
async fn an_older_view_of_the_slots_does_not_replace_a_newer_one() {
    let cluster = PlayedCluster::start(2, View::new(1, 0, 1)).await;
    let locks = cluster.connect(2).await;
    granted(&locks, KEY).await;
    cluster.set_view(1, View::new(2, 1, 0));
    cluster.lock_until_asked(&locks, 1).await;
    let before = cluster.count(0, &["SET"]);
    cluster.lock_until_read(&locks, 0, 4).await;
    assert_eq!(cluster.count(0, &["SET"]), before);
}

/// A server that is cut off from the majority may have the higher epoch, after a failover that failed.
#[tokio::test]
async fn a_server_that_is_cut_off_from_the_majority_does_not_name_the_owners() {
    let cluster = PlayedCluster::start(2, View::new(1, 0, 1)).await;
    let locks = cluster.connect(2).await;
    cluster.set_view(1, View { is_ok: false, ..View::new(2, 1, 0) });
    cluster.lock_until_read(&locks, 1, 4).await;
    assert_eq!(cluster.count(1, &["SET"]), 0);
}

/// Otherwise a service could not start while a part of the cluster is down.
#[tokio::test]
async fn a_manager_that_knows_no_owner_believes_a_server_that_is_cut_off() {
    let view = View { is_ok: false, ..View::new(1, 0, 1) };
    let cluster = PlayedCluster::start(2, view).await;
    let locks = cluster.connect(2).await;
    granted(&locks, KEY).await;
    assert_eq!(cluster.count(0, &["SET"]), 1);
}

/// The epochs of a cluster that was made anew are low again.
#[tokio::test]
async fn a_lower_epoch_counts_if_no_server_has_a_higher_one() {
    let cluster = PlayedCluster::start(2, View::new(9, 0, 1)).await;
    let locks = cluster.connect(2).await;
    granted(&locks, KEY).await;
    cluster.set_views(View::new(1, 1, 0));
    cluster.lock_until_asked(&locks, 1).await;
}

/// A service that is ready must not fail the locks of the masters that are connected last.
#[tokio::test]
async fn a_manager_is_connected_when_each_master_was_reached() {
    let cluster = PlayedCluster::start(2, View::new(1, 0, 1)).await;
    cluster.servers[1].hold_replies(true);
    let connecting = tokio::spawn(cluster.builder(1).connect());
    eventually("the slots are read over the connection to the first master", SOON, async || {
        let reads = cluster.servers[0].commands(&["CLUSTER", "SLOTS"]);
        (reads.len() > 3 && cluster.count(1, &["HELLO"]) > 0).then_some(())
    })
    .await;
    assert!(!connecting.is_finished());
    cluster.servers[1].hold_replies(false);
    let locks = tokio::time::timeout(SOON, connecting).await.unwrap().unwrap().unwrap();
    granted(&locks, LAST).await;
    granted(&locks, KEY).await;
}

/// The time after which a listener counts the addresses that a manager still tries. A manager tries each of them at least
/// once in half a second.
const WATCHED: Duration = Duration::from_secs(3);

/// Accepts connections to any address of this machine, and closes them. Returns its port, and the addresses to which clients
/// have connected.
async fn all_addresses() -> (u16, Arc<Mutex<HashSet<IpAddr>>>) {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::<Mutex<HashSet<IpAddr>>>::default();
    let record = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            if let Ok(address) = client.local_addr() {
                record.lock().unwrap().insert(address.ip());
            }
        }
    });
    (port, seen)
}

/// Redirects each of many operations to an address of its own. Returns how many of these addresses are tried for long.
async fn masters_after_redirects(kind: &'static str) -> usize {
    const REDIRECTS: u16 = 500;
    let (port, addresses) = all_addresses().await;
    let cluster = PlayedCluster::start(1, View::new(1, 0, 0)).await;
    let locks = cluster.connect(1).await;
    let (state, count) = (Arc::clone(&cluster.state), AtomicU16::new(0));
    cluster.servers[0].play(move |command| {
        if command.is(&["SET"]) && count.load(Ordering::SeqCst) < REDIRECTS {
            let [high, low] = count.fetch_add(1, Ordering::SeqCst).to_be_bytes();
            return Play::Reply(format!("-{kind} 1 127.1.{high}.{low}:{port}\r\n"));
        }
        state.lock().unwrap().play(0, command)
    });
    let attempts = (0..REDIRECTS).map(|number| locks.lock(format!("order:{number}")).try_acquire());
    join_all(attempts).await;
    eventually("the real owner serves", SOON, async || {
        locks.lock(KEY).try_acquire().await.ok()?.release().await.ok()
    })
    .await;
    assert!(!addresses.lock().unwrap().is_empty(), "{kind}: no redirect is followed");
    addresses.lock().unwrap().clear();
    tokio::time::sleep(WATCHED).await;
    addresses.lock().unwrap().len()
}

/// Each address has a task that keeps it connected, so a server could otherwise fill the memory of its clients.
#[tokio::test]
async fn redirects_to_ever_new_addresses_lead_to_at_most_64_masters() {
    let masters = tokio::join!(masters_after_redirects("MOVED"), masters_after_redirects("ASK"));
    assert!(masters.0 <= 64 && masters.1 <= 64, "after MOVED and ASK: {masters:?}");
}

mod thorough {
    use super::*;

    /// A server that is never used again would otherwise stay connected for ever.
    #[tokio::test]
    async fn a_server_without_slots_is_left_a_minute_after_its_last_use() {
        let cluster = PlayedCluster::start(2, View::new(1, 0, 0)).await;
        let locks = cluster.connect(1).await;
        cluster.redirect("ASK", 1);
        granted(&locks, KEY).await;
        assert_eq!(cluster.servers[1].open(), 1);
        eventually("the connection is closed", 5 * SOON, async || {
            (cluster.servers[1].open() == 0).then_some(())
        })
        .await;
    }
}
