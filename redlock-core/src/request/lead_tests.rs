//! Leaders, with nodes in memory and in paused time.

use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use redlock_logs::Logs;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::run_tests::{DELAY, LEASE, PATIENCE, is_held, over, until_free};
use crate::clock::fake::RuntimeClock;
use crate::node::Node;
use crate::node::fake::{FakeMode, FakeNode};
use crate::{FencingToken, LockError, LockManager, LockManagerBuilder};

/// The terms of all leaders: the process, its token, and when the term ended.
type Terms = Arc<Mutex<Vec<(usize, FencingToken, Option<Instant>)>>>;

/// Records the end of a term when it is dropped.
struct InTerm(Terms, usize);

impl InTerm {
    fn begin(terms: &Terms, process: usize, token: FencingToken) -> Self {
        let mut all = terms.lock();
        all.push((process, token, None));
        Self(Arc::clone(terms), all.len() - 1)
    }
}

impl Drop for InTerm {
    fn drop(&mut self) {
        self.0.lock()[self.1].2 = Some(Instant::now());
    }
}

/// Returns a process that leads whenever it can, and works for ever.
fn standby(
    locks: &LockManager,
    process: usize,
    terms: &Terms,
) -> JoinHandle<Result<(), LockError>> {
    let (lead, terms) = (locks.lead("reports").expire(LEASE), Arc::clone(terms));
    tokio::spawn(lead.run(async move |leader| {
        assert!(leader.is_valid());
        let _in_term = InTerm::begin(&terms, process, leader.fencing_token());
        pending::<()>().await;
    }))
}

/// Returns managers on the same nodes, like copies of a service.
fn copies(count: usize) -> (Vec<LockManager>, Vec<Arc<FakeNode>>) {
    let (_, nodes) = over(3);
    let manager = || {
        let nodes = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>).collect();
        LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new()))
    };
    ((0..count).map(|_| manager()).collect(), nodes)
}

/// The outage is longer than the lease and than the grace of other waiters.
#[tokio::test(start_paused = true)]
async fn after_an_outage_one_copy_leads_again_and_its_token_is_greater() {
    let (locks, nodes) = copies(3);
    let terms = Terms::default();
    let tasks: Vec<_> =
        locks.iter().enumerate().map(|(number, locks)| standby(locks, number, &terms)).collect();
    for round in 1..=10 {
        sleep(SECOND).await;
        let begun = terms.lock().clone();
        assert_eq!(begun.len(), round, "{begun:?}");
        for node in &nodes[..2] {
            node.set(FakeMode::Down);
        }
        sleep(LEASE + 2 * SECOND).await;
        let ended = terms.lock()[round - 1].2;
        assert!(ended.is_some(), "the leader without its lock works on");
        for node in &nodes {
            node.set(FakeMode::Up(DELAY));
        }
    }
    let all = terms.lock().clone();
    assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].1), "{all:?}");
    assert!(tasks.iter().all(|task| !task.is_finished()));
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lock_is_lost_waits_and_leads_again() {
    let (locks, nodes) = copies(1);
    let terms = Terms::default();
    let task = standby(&locks[0], 0, &terms);
    for round in 1..=5 {
        sleep(SECOND).await;
        assert_eq!(terms.lock().len(), round);
        // An operator deletes the key, and another holder has the lock for a minute.
        for node in &nodes {
            node.forget();
        }
        for node in &nodes {
            node.occupy(60 * SECOND);
        }
        sleep(LEASE).await;
        assert!(terms.lock()[round - 1].2.is_some());
        for node in &nodes {
            node.forget();
        }
    }
    assert!(!task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_drain_and_a_shutdown_end_leaders_and_standbys_and_the_next_copy_leads_at_once() {
    for drains in [true, false] {
        let (locks, nodes) = copies(2);
        let terms = Terms::default();
        let leader = standby(&locks[0], 0, &terms);
        sleep(SECOND).await;
        let same_process = standby(&locks[0], 0, &terms);
        let standby = standby(&locks[1], 1, &terms);
        sleep(SECOND).await;
        let stopped = Instant::now();
        if drains {
            timeout(SECOND, locks[0].drain()).await.expect("the leader works on");
        } else {
            locks[0].shutdown().await;
        }
        for task in [leader, same_process] {
            let ended = timeout(SECOND, task).await.unwrap().unwrap();
            match ended {
                Err(LockError::Draining) => assert!(drains),
                Err(LockError::ShutDown) => assert!(!drains),
                ended => panic!("{ended:?}"),
            }
        }
        while terms.lock().len() < 2 {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(stopped.elapsed() < SECOND / 2, "{drains}: {:?}", stopped.elapsed());
        let all = terms.lock().clone();
        assert_eq!((all[0].0, all[1].0), (0, 1));
        standby.abort();
        until_free(&nodes).await;
    }
}

/// A shutdown that takes the lock of a leader who resigns would log a lost lock, on which operators are alerted.
#[tokio::test(start_paused = true)]
async fn a_shutdown_after_a_drain_leaves_the_release_to_the_leader() {
    let logs = Logs::collect();
    let (locks, nodes) = over(3);
    let terms = Terms::default();
    let leader = standby(&locks, 0, &terms);
    sleep(SECOND).await;
    assert_eq!(terms.lock().len(), 1);
    for node in &nodes {
        node.set(FakeMode::Up(DELAY));
    }
    // The leader has not been polled since.
    drop(locks.drain());
    timeout(SECOND, locks.shutdown()).await.unwrap();
    assert!(leader.is_finished() && matches!(leader.await.unwrap(), Err(LockError::Draining)));
    assert!(nodes.iter().all(|node| !node.is_held()));
    assert_eq!(logs.count("WARN", ""), 0, "{:?}", logs.lines());
}

#[tokio::test(start_paused = true)]
async fn the_result_of_the_work_ends_the_lead_and_its_lock_is_free_then() {
    let (locks, nodes) = over(3);
    let mut texts = vec![String::from("a")];
    let last = texts.remove(0);
    let result = locks.lead("reports").run(async |leader| {
        sleep(3 * LEASE).await;
        (leader.is_valid(), last.len())
    });
    assert_eq!(result.await.unwrap(), (true, 1));
    assert!(!is_held(&nodes));
    let panics = locks.lead("reports").run(async |leader| {
        assert!(!leader.is_valid(), "the work panics");
    });
    let panicked = AssertUnwindSafe(panics).catch_unwind().await.unwrap_err();
    assert_eq!(panicked.downcast_ref::<&str>(), Some(&"the work panics"));
    assert!(!is_held(&nodes), "released before the panic resumes");
}

#[tokio::test(start_paused = true)]
async fn a_lead_that_is_dropped_ends_the_work_and_releases_the_lock() {
    let (locks, nodes) = over(3);
    let terms = Terms::default();
    let task = standby(&locks, 0, &terms);
    sleep(SECOND).await;
    assert!(is_held(&nodes));
    task.abort();
    until_free(&nodes).await;
    assert!(terms.lock()[0].2.is_some());
}

#[tokio::test(start_paused = true)]
async fn mistakes_end_a_lead_at_once() {
    let (locks, nodes) = over(1);
    for (lead, is_key) in
        [(locks.lead("redlock:a"), true), (locks.lead("a").expire(Duration::ZERO), false)]
    {
        let error = lead.run(async |_| ()).now_or_never().expect("at once").unwrap_err();
        assert_eq!(matches!(error, LockError::InvalidKey(_)), is_key, "{error}");
    }
    nodes[0].set(FakeMode::Forbidden);
    let ended = timeout(PATIENCE, locks.lead("a").run(async |_| ())).await.unwrap();
    assert!(matches!(ended, Err(LockError::Unavailable { .. })), "{ended:?}");
}
