//! Planned failovers. Only Valkey 9 has coordinated ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redlock_core::LockManager;
use redlock_tests::{FailoverGroup, eventually};
use tokio::task::JoinSet;

use super::{QUIET, SOON, builder};

/// The number of failovers in this process.
static FAILOVERS: AtomicUsize = AtomicUsize::new(0);

const CALLERS: usize = 8;
/// The load before and after the failover.
const AROUND: Duration = Duration::from_secs(2);

/// The results of callers that acquire locks all the time.
#[derive(Debug)]
struct Seen {
    /// The number of grants that the new master does not know.
    lost: usize,
    granted: usize,
    /// The longest time without a grant.
    pause: Duration,
}

/// Fails over by this command under load.
async fn fail_over(group: &FailoverGroup, locks: &LockManager, command: &[&str]) -> Seen {
    let former = group.master().await;
    // A failover before has left other locks.
    let failover = FAILOVERS.fetch_add(1, Ordering::Relaxed);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (locks, is_over) = (locks.clone(), Arc::clone(&is_over));
        callers.spawn(async move {
            let mut grants = Vec::new();
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("{failover}:{caller}:{number}");
                match locks.lock(&key).expire(SOON * 5).try_acquire().await {
                    Ok(guard) => {
                        grants.push((Instant::now(), key));
                        guard.keep_until_expiry();
                    }
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
            grants
        });
    }
    tokio::time::sleep(AROUND).await;
    let mut sentinel = group.sentinels[0].probe().await;
    sentinel.command::<()>([&["SENTINEL", "FAILOVER", "shop"], command].concat()).await;
    let master = group.promoted_after(former).await;
    let promoted = Instant::now();
    eventually("the new master grants locks", SOON, async || {
        locks.lock("free").try_acquire().await.ok()?.release().await.ok()
    })
    .await;
    println!("{command:?}: the first grant is seen {:?} after the promotion", promoted.elapsed());
    tokio::time::sleep(AROUND).await;
    is_over.store(true, Ordering::Relaxed);
    let mut grants: Vec<_> = callers.join_all().await.into_iter().flatten().collect();
    grants.sort_unstable();
    let pauses = grants.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let pause = pauses.max().unwrap();
    group.settle().await;
    let mut probe = group.servers[master].probe().await;
    let mut lost = 0;
    for (_, key) in &grants {
        lost += usize::from(probe.get(key).await.is_none());
    }
    let seen = Seen { lost, granted: grants.len(), pause };
    println!("{command:?}: {seen:?}");
    seen
}

/// The master stops its clients until a replica has all of its writes. A plain failover promotes a replica first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinated_failover_loses_no_lock() {
    let _quiet = QUIET.lock().await;
    let group = FailoverGroup::start().await;
    let locks = builder(&group.url()).connect().await.unwrap();
    let plain = fail_over(&group, &locks, &[]).await;
    assert!(plain.granted > CALLERS && plain.pause < SOON, "{plain:?}");
    for _ in 0..2 {
        let coordinated = fail_over(&group, &locks, &["COORDINATED"]).await;
        assert!(coordinated.lost == 0 && coordinated.granted > CALLERS, "{coordinated:?}");
    }
}

/// The guard waits after every promotion: it does not know that this one has lost nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_restart_guard_waits_after_a_coordinated_failover_too() {
    // A renewal outlasts the failover also on a busy machine.
    const LEASE: Duration = Duration::from_secs(10);
    let _quiet = QUIET.lock().await;
    let group = FailoverGroup::options().directive("min-replicas-to-write", "1").start().await;
    let margin = Duration::from_secs(1);
    let guarded = builder(&group.url()).expire(LEASE).restart_guard(LEASE).failover_margin(margin);
    let locks = guarded.connect().await.unwrap();
    eventually("the group is not new any more", SOON + LEASE, async || {
        locks.lock("free").expire(LEASE).try_acquire().await.ok()?.release().await.ok()
    })
    .await;
    let guard = locks.lock("held").expire(LEASE).renew(true).try_acquire().await.unwrap();
    let former = group.master().await;
    let begun = Instant::now();
    let mut sentinel = group.sentinels[0].probe().await;
    sentinel.command::<()>(["SENTINEL", "FAILOVER", "shop", "COORDINATED"]).await;
    group.promoted_after(former).await;
    eventually("the new master grants locks", SOON + LEASE, async || {
        locks.lock("free").expire(LEASE).try_acquire().await.ok()?.release().await.ok()
    })
    .await;
    println!("the first grant came {:?} after the command", begun.elapsed());
    assert!(begun.elapsed() >= LEASE + margin, "{:?}", begun.elapsed());
    assert!(guard.is_valid(), "a lock that is renewed outlasts the failover");
    guard.release().await.unwrap();
}
