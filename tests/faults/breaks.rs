//! Storms of breaks: an operator breaks the fenced locks of processes that live, again and again.
//!
//! The former holder works until its next renewal or the end of its lease, or until a hint tells it that its lock is gone. So
//! holds overlap only if the former one was broken, and only until then. A resource that compares fencing numbers accepts each
//! number from one holder alone.
//!
//! With hints, nothing but a hint ends a hold: each holder works until its lock is lost, and its next renewal comes after the
//! end of the test.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::test_util::node_tests::StoreFault;
use redlock_core::{BreakError, LockManager, OwnerLabel};
use redlock_tests::{Nodes, eventually, redlock, seeds};
use serde_json::Value;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use crate::QUIET;

const LEASE: Duration = Duration::from_millis(600);
/// A lease whose renewal comes after the end of the test.
const LONG: Duration = Duration::from_secs(600);
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
    /// Whether the worker has found its lock lost.
    is_lost: bool,
}

/// A break, and when the work of the former holder is over.
#[derive(Debug)]
struct Break {
    key: String,
    owner: String,
    from: Instant,
    until: Instant,
    /// Whether the break has succeeded.
    is_done: bool,
}

/// The resource: for each key, the greatest number, and the hold that has it.
#[derive(Debug, Default)]
struct Resource {
    greatest: HashMap<String, (i64, usize)>,
    refused: usize,
}

#[derive(Debug, Default)]
struct Storm {
    has_hints: bool,
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
            let lease = if self.has_hints { LONG } else { LEASE };
            let request = locks.lock(&key).fenced(true).expire(lease).renew(true);
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
                holds.push(Hold { key, owner, number, from, until: from, is_lost: false });
                holds.len() - 1
            };
            let end = from + LEASE.mul_f64(random.random_range(0.1..2.0));
            // Only a holder that waits for its loss is hinted.
            let mut lost = self.has_hints.then(|| guard.lost());
            loop {
                let now = Instant::now();
                let is_done = match lost {
                    Some(_) => self.is_over.load(Ordering::SeqCst),
                    None => now >= end,
                };
                if !guard.is_valid() || is_done {
                    break;
                }
                self.holds.lock().unwrap()[hold].until = now;
                self.write(&key, number, hold);
                tokio::select! {
                    () = OptionFuture::from(lost.as_mut()).map(drop), if lost.is_some() => {}
                    () = sleep(Duration::from_millis(2)) => {}
                }
            }
            drop(lost);
            self.holds.lock().unwrap()[hold].is_lost = !guard.is_valid();
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
            Ok(broken) => broken.may_be_valid_for().unwrap_or(LEASE),
            // The holder may have lost its quorum between two of its renewals.
            Err(BreakError::Unavailable { .. }) => LEASE,
            Err(BreakError::NotHeld { .. }) => return false,
            Err(error) => panic!("{error}"),
        };
        let owner = holder.label().map(OwnerLabel::to_string).unwrap();
        self.broken(key, owner, from, rest, broken.is_ok());
        broken.is_ok()
    }

    fn broken(&self, key: &str, owner: String, from: Instant, rest: Duration, is_done: bool) {
        let until = Instant::now() + rest;
        let key = key.to_owned();
        self.breaks.lock().unwrap().push(Break { key, owner, from, until, is_done });
    }

    /// Breaks the lock of a key by the command, if it has a holder.
    async fn break_by_command(&self, urls: &[String], key: &str) -> bool {
        let run = async |arguments: &[&str]| {
            let mut command = redlock(urls);
            command.args(arguments).arg("--json");
            let output = spawn_blocking(move || command.output()).await.unwrap().unwrap();
            let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            (output.status.code(), json, String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (_, status, _) = run(&["status", key]).await;
        let text = |name: &str| status["holders"][0][name].as_str().map(str::to_owned);
        let (Some(id), Some(owner)) = (text("id"), text("owner")) else { return false };
        let from = Instant::now();
        let reason = "a storm";
        let (code, broken, error) =
            run(&["break", key, "--holder", &id, "--yes", "--reason", reason]).await;
        // 1: it has another holder, or none. 2: no quorum has answered, and the removal may have begun.
        if code == Some(1) {
            return false;
        }
        assert!(code == Some(0) || error.contains("quorum"), "{code:?}: {error}");
        let rest = broken["may_be_valid_for_ms"].as_u64().map(Duration::from_millis);
        self.broken(key, owner, from, rest.unwrap_or(LONG), code == Some(0));
        code == Some(0)
    }

    /// Waits until each former holder knows of its break. Prints how soon they did.
    async fn all_know(&self) {
        let end_of = |broken: &Break| {
            let holds = self.holds.lock().unwrap();
            let is_meant = |hold: &&Hold| {
                (&hold.key, &hold.owner) == (&broken.key, &broken.owner) && hold.from <= broken.from
            };
            let hold = holds.iter().filter(is_meant).max_by_key(|hold| hold.from)?;
            hold.is_lost.then(|| hold.until.saturating_duration_since(broken.from))
        };
        let mut ends = eventually("each former holder knows of its break", SOON, async || {
            let breaks = self.breaks.lock().unwrap();
            let done = breaks.iter().filter(|broken| broken.is_done);
            done.map(end_of).collect::<Option<Vec<_>>>()
        })
        .await;
        ends.sort();
        println!(
            "last write after the begin of a break: median {:?}, longest {:?}",
            ends[ends.len() / 2],
            ends.last()
        );
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
async fn rage(mut nodes: Nodes, seed: u64, has_hints: bool) {
    let _quiet = QUIET.write().await;
    println!("REDLOCK_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let storm = Arc::new(Storm { has_hints, ..Storm::default() });
    let mut workers = JoinSet::new();
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
        // A command connects anew, and waits for seconds for a server that is silent then.
        let by_command = has_hints && broken % 3 == 0;
        let freezes = !by_command && nodes.len() > 1 && random.random_ratio(1, 4);
        let frozen = random.random_range(0..nodes.len());
        if freezes {
            let fault = StoreFault::Freeze;
            assert!(nodes[frozen].fault(fault).await);
        }
        let key = format!("key:{}", random.random_range(0..KEYS));
        let is_broken = if by_command {
            storm.break_by_command(&nodes.urls(), &key).await
        } else {
            storm.break_once(&ops, &key).await
        };
        broken += usize::from(is_broken);
        if freezes {
            let fault = StoreFault::Thaw;
            assert!(nodes[frozen].fault(fault).await);
        }
        sleep(Duration::from_millis(random.random_range(5..120))).await;
    }
    if has_hints {
        storm.all_know().await;
    }
    storm.is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = workers.join_next().await {
        ended.unwrap();
    }
    let overlaps = storm.check();
    // A hint may come before the next holder has its lock.
    assert!(overlaps > 0 || has_hints, "no break has let holds overlap");
    eventually("no key is left", SOON, async || (nodes.locks().await == 0).then_some(())).await;
}

mod storm {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn breaks_on_one_node_accept_no_number_twice_and_leave_no_key() {
        for seed in seeds("storm::breaks") {
            rage(Nodes::redis(1).await, seed, false).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn breaks_on_five_nodes_accept_no_number_twice_and_leave_no_key() {
        for seed in seeds("storm::breaks") {
            rage(Nodes::redis(5).await, seed, false).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_hint_ends_each_holder_that_is_broken() {
        for seed in seeds("storm::breaks") {
            for nodes in [1, 5] {
                rage(Nodes::redis(nodes).await, seed, true).await;
            }
        }
    }

    mod thorough {
        use super::*;

        #[tokio::test(flavor = "multi_thread")]
        async fn a_hint_of_postgresql_ends_each_holder_that_is_broken() {
            for nodes in [1, 3] {
                let nodes = Nodes::postgres(nodes, 0).await;
                if !nodes.is_empty() {
                    rage(nodes, 1, true).await;
                }
            }
        }
    }
}
