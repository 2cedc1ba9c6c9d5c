//! A master that is cut off together with a client, while the sentinels promote another server.
//!
//! The former master grants and extends locks until it notices that it has lost its replicas. The promoted server does
//! not know these locks. The tests first show that they find two holders at the same time without a protection.

use std::time::{Duration, Instant};

use redlock_core::{LockGuard, LockManager, LockManagerBuilder};
use redlock_tests::{FailoverGroup, Nodes};

use super::{KEY, QUIET, SOON, builder};

/// The longest lease.
const LEASE: Duration = Duration::from_secs(5);
/// The margin after which the former master refuses writes for certain: `min-replicas-max-lag` and 2 s.
const MARGIN: Duration = Duration::from_secs(7);
/// The longest time for a promotion: a sentinel may need several elections, and may be in TILT mode.
const PROMOTION: Duration = Duration::from_secs(240);
/// The number of failovers in which two holders must be found without a protection. On a busy machine a promotion may take
/// longer than the lease, and then there is one holder.
const TRIES: usize = 5;
/// The time between two looks at the group. Without it, the test would keep the sentinels from the processor.
const PAUSE: Duration = Duration::from_millis(10);
/// For so long the former master accepts writes without its replicas, in seconds.
const LAG: &str = "5";
/// Longer than any promotion: the former master accepts writes all the time.
const NO_LAG: &str = "600";

/// The number of failovers with the guard.
fn rounds() -> usize {
    if Nodes::all_kinds() { 30 } else { 1 }
}

async fn start() -> FailoverGroup {
    FailoverGroup::options().proxied().directive("min-replicas-to-write", "1").start().await
}

async fn set_lag(group: &FailoverGroup, seconds: &str) {
    for server in &group.servers {
        let words = ["CONFIG", "SET", "min-replicas-max-lag", seconds];
        server.probe().await.command::<()>(words).await;
    }
}

/// The client on the side of the sentinels.
#[derive(Debug, Clone, Copy)]
enum Client {
    /// It asks for the lock all the time.
    Asks,
    /// It holds the lock before the partition, and renews it.
    Renews,
}

/// A client with its last lock.
struct Contender(LockManager, Option<LockGuard>);

impl Contender {
    fn holds(&self) -> bool {
        self.1.as_ref().is_some_and(|guard| guard.is_valid())
    }

    /// Asks for the lock, unless it is still held. The lock is not released: it ends with its lease.
    async fn ask(&mut self, renews: bool) {
        if self.holds() {
            return;
        }
        let lock = self.0.lock(KEY).expire(LEASE).renew(renews).keep(true);
        self.1 = lock.try_acquire().await.ok();
    }

    /// Asks for the lock, or extends it by the whole lease.
    async fn ask_or_extend(&mut self) {
        self.ask(false).await;
        if let Some(guard) = &self.1 {
            // The lock stays valid for the rest of its lease if the server refuses.
            let _ = guard.extend(LEASE).await;
        }
    }
}

/// Cuts the master off together with a client, until the other client gets the lock of a promoted server. Returns
/// whether both clients have held the lock at the same time.
async fn overlaps(group: &FailoverGroup, other: LockManagerBuilder, client: Client) -> bool {
    group.settle().await;
    let master = group.master().await;
    let (_sentinel, url) = group.sentinel_beside(master).await;
    let mut cut_off = Contender(builder(&url).expire(LEASE).connect().await.unwrap(), None);
    let mut other = Contender(other.url(group.url()).connect().await.unwrap(), None);
    let renews = matches!(client, Client::Renews);
    let deadline = Instant::now() + 2 * SOON;
    while renews && !other.holds() {
        other.ask(renews).await;
        assert!(Instant::now() < deadline, "the other client does not get the lock");
    }
    group.cut_off(master);
    let (begun, mut promoted, mut was_granted) = (Instant::now(), None, renews);
    // The other client gets the lock from the promoted server, or renews it there, or loses it.
    let overlaps = loop {
        tokio::time::sleep(PAUSE).await;
        // The former master extends the lock until it notices that it has lost its replicas.
        cut_off.ask_or_extend().await;
        if promoted.is_none() && group.named_now().await.is_some_and(|named| named != master) {
            promoted = Some(Instant::now());
            println!("promoted after {:?}", begun.elapsed());
        }
        let Some(promoted) = promoted else {
            assert!(begun.elapsed() < PROMOTION, "no server was promoted");
            continue;
        };
        assert!(promoted.elapsed() < 2 * SOON, "the promoted server grants nothing");
        if !renews {
            other.ask(false).await;
            was_granted |= other.holds();
        }
        if cut_off.holds() && other.holds() {
            break true;
        }
        let is_lost = renews && !other.holds();
        if is_lost || was_granted && promoted.elapsed() > MARGIN + LEASE {
            break false;
        }
    };
    println!("two holders after {:?}: {overlaps}", begun.elapsed());
    group.heal(master);
    drop(other);
    group.promoted_after(master).await;
    overlaps
}

/// The settings of the client on the side of the sentinels.
fn guarded() -> LockManagerBuilder {
    unguarded().restart_guard(LEASE)
}

fn unguarded() -> LockManagerBuilder {
    LockManager::builder()
        .expire(LEASE)
        .node_timeout(Duration::from_secs(1))
        .connect_timeout(SOON / 4)
}

/// Lets the group fail over. The first failovers show that two holders are found without a protection.
async fn no_overlap_with_the_guard(unprotected: impl Fn() -> LockManagerBuilder, client: Client) {
    let _quiet = QUIET.lock().await;
    let group = start().await;
    set_lag(&group, NO_LAG).await;
    let mut tries = 1;
    while !overlaps(&group, unprotected(), client).await {
        assert!(tries < TRIES, "the test cannot find two holders");
        tries += 1;
    }
    set_lag(&group, LAG).await;
    for round in 0..rounds() {
        assert!(!overlaps(&group, guarded(), client).await, "two holders in round {round}");
    }
}

#[tokio::test]
async fn with_the_guard_no_lock_is_granted_beside_the_former_master() {
    no_overlap_with_the_guard(unguarded, Client::Asks).await;
}

/// The lease ends on the former master, which then grants the lock to another caller.
#[tokio::test]
async fn with_the_guard_no_lock_is_extended_beside_the_former_master() {
    let no_margin = || guarded().failover_margin(Duration::ZERO);
    no_overlap_with_the_guard(no_margin, Client::Renews).await;
}
