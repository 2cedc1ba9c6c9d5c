//! Storms of breaks: an operator breaks the fenced locks of processes that live, again and again.
//!
//! The former holder works until its next renewal or the end of its lease. So holds overlap only if the former one was broken,
//! and only until then. A resource that compares fencing numbers accepts each number from one holder alone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::test_util::node_tests::StoreFault;
use redlock_core::{BreakError, LockManager, OwnerLabel};
use redlock_tests::{Nodes, eventually, seeds};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::QUIET;

const LEASE: Duration = Duration::from_millis(600);
const SOON: Duration = Duration::from_secs(120);
const WORKERS: usize = 6;
const KEYS: usize = 2;
/// How many locks of one storm are broken.
const BREAKS: usize = 40;

/// A time in which a worker believed that it had a lock.
#[derive(Debug, Clone)]
struct Hold {
    key: String,
    owner: String,
    number: i64,
    from: Instant,
    until: Instant,
}

/// A break, and when the work of the former holder is over.
#[derive(Debug)]
struct Break {
    key: String,
    owner: String,
    from: Instant,
    until: Instant,
}

/// The resource: for each key, the greatest number, and the hold that has it.
#[derive(Debug, Default)]
struct Resource {
    greatest: HashMap<String, (i64, usize)>,
    refused: usize,
}

#[derive(Debug, Default)]
struct Storm {
    resource: Mutex<Resource>,
    holds: Mutex<Vec<Hold>>,
    breaks: Mutex<Vec<Break>>,
    violations: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Storm {
    /// Writes to the resource. It refuses a number less than the greatest number so far.
    fn write(&self, key: &str, number: i64, hold: usize) {
        let mut resource = self.resource.lock().unwrap();
        let (greatest, holder) = *resource.greatest.get(key).unwrap_or(&(0, usize::MAX));
        if number < greatest {
            resource.refused += 1;
        } else if number == greatest && hold != holder {
            let violation = format!("{key}: {number} was accepted from {holder} and from {hold}");
            self.violations.lock().unwrap().push(violation);
        } else {
            resource.greatest.insert(key.to_owned(), (number, hold));
        }
    }

    /// Locks a key and works, again and again.
    async fn work(self: Arc<Self>, locks: LockManager, mut random: StdRng) {
        let owner = locks.owner_label().unwrap().to_string();
        while !self.is_over.load(Ordering::SeqCst) {
            let key = format!("key:{}", random.random_range(0..KEYS));
            let request = locks.lock(&key).fenced(true).expire(LEASE).renew(true);
            let guard = match request.wait_time(LEASE * 4).acquire().await {
                Ok(guard) => guard,
                Err(error) if error.is_contended() => continue,
                // A frozen server.
                Err(error) => {
                    assert!(error.votes().is_some(), "{error}");
                    continue;
                }
            };
            let (from, number) = (Instant::now(), guard.fencing_token().unwrap().number());
            let hold = {
                let mut holds = self.holds.lock().unwrap();
                let (key, owner) = (key.clone(), owner.clone());
                holds.push(Hold { key, owner, number, from, until: from });
                holds.len() - 1
            };
            let end = from + LEASE.mul_f64(random.random_range(0.1..2.0));
            loop {
                let now = Instant::now();
                if !guard.is_valid() || now >= end {
                    break;
                }
                self.holds.lock().unwrap()[hold].until = now;
                self.write(&key, number, hold);
                sleep(Duration::from_millis(2)).await;
            }
            // A write that was on its way when the lock was lost.
            self.write(&key, number, hold);
            // A lock that was broken is lost.
            drop(guard.release().await);
        }
    }

    /// Breaks the lock of a key, if it has a holder.
    async fn break_once(&self, ops: &LockManager, key: &str) -> bool {
        let Ok(status) = ops.status(key).await else { return false };
        let Some(holder) = status.holders().first() else { return false };
        let from = Instant::now();
        let broken = ops.break_lock(key, holder).await;
        let rest = match &broken {
            Ok(broken) => broken.may_work_for().unwrap_or(LEASE),
            // The holder may have lost its quorum between two of its renewals.
            Err(BreakError::Unavailable { .. }) => LEASE,
            Err(BreakError::NotHeld { .. }) => return false,
            Err(error) => panic!("{error}"),
        };
        let owner = holder.label().map(OwnerLabel::to_string).unwrap();
        let until = Instant::now() + rest;
        self.breaks.lock().unwrap().push(Break { key: key.to_owned(), owner, from, until });
        broken.is_ok()
    }

    /// Checks that each overlap of two holds follows a break, and that each hold has a greater number than those before it.
    fn check(&self) -> usize {
        let mut holds = self.holds.lock().unwrap().clone();
        holds.sort_by_key(|hold| hold.from);
        let (breaks, mut overlaps) = (self.breaks.lock().unwrap(), 0);
        let mut violations = self.violations.lock().unwrap();
        for (index, former) in holds.iter().enumerate() {
            for next in holds[index + 1..].iter().filter(|next| next.key == former.key) {
                if next.number <= former.number && next.from > former.until {
                    violations.push(format!("numbers: {former:?} before {next:?}"));
                }
                if next.from > former.until {
                    continue;
                }
                overlaps += 1;
                let older = if former.number < next.number { former } else { next };
                let is_excused = breaks.iter().any(|broken| {
                    broken.key == older.key
                        && broken.owner == older.owner
                        && broken.from <= older.until
                        && broken.until >= older.until
                });
                if !is_excused || former.number == next.number {
                    violations.push(format!("held twice: {former:?} and {next:?}"));
                }
            }
        }
        println!(
            "{} holds, {} breaks, {overlaps} overlaps, {} late writes refused",
            holds.len(),
            breaks.len(),
            self.resource.lock().unwrap().refused
        );
        assert!(violations.is_empty(), "{violations:#?}");
        overlaps
    }
}

/// The nodes of the storm, one of which freezes from time to time if the others are a quorum.
async fn rage(mut nodes: Nodes, seed: u64) {
    let _quiet = QUIET.write().await;
    println!("REDLOCK_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (storm, mut workers) = (Arc::new(Storm::default()), JoinSet::new());
    let connect =
        |label: String| nodes.builder().node_timeout(LEASE / 3).owner_label(label).connect();
    for number in 0..WORKERS {
        let locks = connect(format!("worker-{number}")).await.unwrap();
        workers.spawn(Arc::clone(&storm).work(locks, StdRng::seed_from_u64(random.random())));
    }
    let ops = connect("ops".to_owned()).await.unwrap();
    let (mut broken, begun) = (0, Instant::now());
    while broken < BREAKS {
        assert!(begun.elapsed() < SOON, "{broken} breaks in {SOON:?}");
        let freezes = nodes.len() > 1 && random.random_ratio(1, 4);
        let frozen = random.random_range(0..nodes.len());
        if freezes {
            let fault = StoreFault::Freeze;
            assert!(nodes[frozen].fault(fault).await);
        }
        let key = format!("key:{}", random.random_range(0..KEYS));
        if storm.break_once(&ops, &key).await {
            broken += 1;
        }
        if freezes {
            let fault = StoreFault::Thaw;
            assert!(nodes[frozen].fault(fault).await);
        }
        sleep(Duration::from_millis(random.random_range(5..120))).await;
    }
    storm.is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = workers.join_next().await {
        ended.unwrap();
    }
    assert!(storm.check() > 0, "no break has let holds overlap");
    eventually("no key is left", SOON, async || (nodes.locks().await == 0).then_some(())).await;
}

mod storm {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn breaks_on_one_node_accept_no_number_twice_and_leave_no_key() {
        for seed in seeds("storm::breaks") {
            rage(Nodes::redis(1).await, seed).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn breaks_on_five_nodes_accept_no_number_twice_and_leave_no_key() {
        for seed in seeds("storm::breaks") {
            rage(Nodes::redis(5).await, seed).await;
        }
    }
}
