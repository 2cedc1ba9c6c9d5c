//! The log and the errors name the cause of a loss. In paused time.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use redlock_logs::Logs;
use tokio::time::{advance, sleep};

use super::tests::{SECOND, UP, manager, set, settle};
use crate::clock::fake::FakeClock;
use crate::node::Node;
use crate::node::fake::{FakeMode, FakeNode};
use crate::{
    HoldError, LockError, LockManager, LockManagerBuilder, LockRequest, LossCause, OnLost,
    ReleaseError, RunError,
};

fn renewed(locks: &LockManager) -> LockRequest {
    locks.lock("a").expire(3 * SECOND).renew(true)
}

/// Returns the only warning about a lost lock.
fn warning(logs: &Logs) -> String {
    let lines = logs.lines().into_iter();
    let lines = lines.filter(|line| line.contains("WARN") && line.contains("a lock was lost"));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 1, "{:?}", logs.lines());
    lines[0].clone()
}

#[tokio::test(start_paused = true)]
async fn a_loss_names_the_votes_of_the_last_renewal() {
    for (mode, words) in [
        (FakeMode::Forbidden, "node-1 failed: not permitted: "),
        (FakeMode::WrongPassword, "node-1 failed: "),
        (FakeMode::Down, "node-1 failed: not connected: "),
        (FakeMode::Frozen, "node-1 failed: no reply within 50ms"),
        (FakeMode::AnswerLost, "node-1 failed: the connection broke: reset"),
    ] {
        let logs = Logs::collect();
        let (locks, nodes) = manager(3);
        let guard = renewed(&locks).try_acquire().await.unwrap();
        set(&nodes, &[mode, mode, UP]);
        let mut future = guard.lost();
        // A future that has resolved may be polled again.
        for lost in [(&mut future).await, future.await, guard.lost().await] {
            assert_eq!((lost.cause(), lost.votes.len()), (LossCause::LeaseEnded, 3));
        }
        settle().await;
        let warning = warning(&logs);
        for words in ["found=\"expiry\"", words, "could not be renewed in time"] {
            assert!(warning.contains(words), "{mode:?}: {words} is not in {warning}");
        }
        assert!(!warning.contains("was due"), "{warning}");
        let error = guard.extend(SECOND).await.unwrap_err();
        let HoldError::Lost(lost) = &error else { panic!("{error}") };
        assert_eq!((lost.cause(), lost.votes.len()), (LossCause::LeaseEnded, 3));
        assert!(error.diagnostics().to_string().contains(words), "{}", error.diagnostics());
    }
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_the_nodes_report_names_the_nodes_that_deny_the_lock() {
    for is_found_by_release in [false, true] {
        let logs = Logs::collect();
        let (locks, nodes) = manager(3);
        let guard = renewed(&locks).try_acquire().await.unwrap();
        nodes[..2].iter().for_each(|node| node.forget());
        if is_found_by_release {
            drop(guard);
            settle().await;
        } else {
            let lost = guard.lost().await;
            assert_eq!(lost.cause(), LossCause::NotOnNodes);
            assert!(
                lost.votes.to_string().contains("node-1 not held, node-2 not held"),
                "{lost:?}"
            );
        }
        let warning = warning(&logs);
        assert!(warning.contains("node-1 not held, node-2 not held"), "{warning}");
        assert!(warning.contains(if is_found_by_release { "release" } else { "extension" }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_a_reply_is_named() {
    let logs = Logs::collect();
    let node = FakeNode::start("node");
    let nodes = vec![Arc::clone(&node) as Arc<dyn Node>];
    let clock = Arc::new(crate::clock::fake::RuntimeClock::new());
    let locks = LockManager::builder().node_timeout(60 * SECOND).build(nodes, clock);
    let guard = renewed(&locks).try_acquire().await.unwrap();
    node.set(FakeMode::Frozen);
    guard.lost().await;
    sleep(SECOND).await;
    assert!(warning(&logs).contains("no reply to the last extension for "), "{}", warning(&logs));
}

/// The handler returns before the task of the keeper runs, or after it.
#[tokio::test(start_paused = true)]
async fn a_process_that_was_late_is_named() {
    for (is_found_by_release, blocked) in [(true, 8), (false, 8), (false, 2)] {
        let logs = Logs::collect();
        let (locks, nodes) = manager(1);
        let guard = renewed(&locks).try_acquire().await.unwrap();
        settle().await;
        {
            // Nothing else runs while the time passes, as if the code blocked the only thread.
            let blocking = pin!(advance(blocked * SECOND));
            assert!(blocking.now_or_never().is_none());
        }
        // A renewal that begins late, but before the end of the lease, may be refused.
        set(&nodes, &[if blocked == 2 { FakeMode::Frozen } else { UP }]);
        if is_found_by_release {
            guard.release().await.unwrap_err();
        } else {
            guard.lost().await;
            settle().await;
        }
        let (warning, late) = (warning(&logs), blocked - 1);
        assert!(warning.contains(if is_found_by_release { "release" } else { "expiry" }));
        let named = format!("the renewal was due {late}.");
        assert!(warning.contains(&named) && warning.contains("the process was late"), "{warning}");
    }
}

/// The timers of the runtime stand still meanwhile.
#[tokio::test(start_paused = true)]
async fn a_suspended_machine_is_named() {
    let logs = Logs::collect();
    let clock = FakeClock::default();
    let nodes = vec![FakeNode::start("node") as Arc<dyn Node>];
    let locks = LockManagerBuilder::with_nodes(nodes, Arc::new(clock.clone()));
    let guard = renewed(&locks).try_acquire().await.unwrap();
    clock.advance(8 * SECOND);
    guard.lost().await;
    sleep(2 * SECOND).await;
    let warning = warning(&logs);
    assert!(warning.contains("the machine was suspended"), "{warning}");
    assert!(!warning.contains("votes="), "{warning}");
}

/// A lease that was not to be renewed has no cause but its length.
#[tokio::test(start_paused = true)]
async fn an_earlier_failure_is_no_cause_after_a_confirmed_extension() {
    let logs = Logs::collect();
    let (locks, nodes) = manager(1);
    let guard = locks.lock("a").expire(3 * SECOND).try_acquire().await.unwrap();
    set(&nodes, &[FakeMode::Forbidden]);
    guard.extend(3 * SECOND).await.unwrap_err();
    set(&nodes, &[UP]);
    guard.extend(3 * SECOND).await.unwrap();
    guard.lost().await;
    settle().await;
    let warning = warning(&logs);
    assert!(!warning.contains("votes=") && !warning.contains("was due"), "{warning}");
    assert!(warning.contains("the lease ran out before the lock was released"), "{warning}");
}

#[tokio::test(start_paused = true)]
async fn work_that_is_stopped_by_a_loss_gets_the_votes() {
    let (locks, nodes) = manager(1);
    let run = renewed(&locks).on_lost(OnLost::Abort).run(async |_| {
        set(&nodes, &[FakeMode::Forbidden]);
        std::future::pending::<()>().await;
    });
    let error = run.await.unwrap_err();
    assert!(matches!(error, RunError::Lost(_)), "{error}");
    let diagnostics = error.diagnostics().to_string();
    assert!(diagnostics.contains("; node-1 failed: not permitted"), "{diagnostics}");
    assert!(!error.to_string().contains("node-1"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_names_the_renewals_that_have_failed_before() {
    let logs = Logs::collect();
    let (locks, nodes) = manager(1);
    let _guard = renewed(&locks).try_acquire().await.unwrap();
    set(&nodes, &[FakeMode::Forbidden]);
    sleep(Duration::from_millis(1500)).await;
    locks.shutdown().await;
    let warning = warning(&logs);
    assert!(warning.contains("node-1 failed: not permitted"), "{warning}");
}

#[tokio::test(start_paused = true)]
async fn each_error_about_a_loss_has_its_key_and_its_cause() {
    let (locks, nodes) = manager(1);
    for cause in
        [LossCause::LeaseEnded, LossCause::NotOnNodes, LossCause::Released, LossCause::ManagerEnded]
    {
        let guard = renewed(&locks).renew(cause == LossCause::NotOnNodes).try_acquire().await;
        let guard = guard.unwrap();
        let lock = guard.handle();
        let mut guard = Some(guard);
        match cause {
            LossCause::NotOnNodes => nodes[0].forget(),
            LossCause::Released => guard.take().unwrap().release().await.unwrap(),
            LossCause::ManagerEnded => locks.shutdown().await,
            _ => sleep(4 * SECOND).await,
        }
        if cause != LossCause::Released {
            lock.lost().await;
        }
        let extension = lock.extend(SECOND).await;
        let Err(HoldError::Lost(lost)) = extension else { panic!("{cause:?}: {extension:?}") };
        assert_eq!((lost.cause(), lost.key().as_str()), (cause, "a"));
        let Some(guard) = guard else { continue };
        let begin = guard.check_before_work();
        let Err(LockError::Lost(lost)) = begin else { panic!("{cause:?}: {begin:?}") };
        assert_eq!((lost.cause(), lost.key().as_str()), (cause, "a"));
        if cause != LossCause::ManagerEnded {
            let release = guard.release().await;
            let Err(ReleaseError::Lost(lost)) = release else { panic!("{cause:?}: {release:?}") };
            assert_eq!((lost.cause(), lost.votes.len()), (cause, 1));
        }
    }
}

/// Only the release finds the loss: this process has not noticed anything before.
#[tokio::test(start_paused = true)]
async fn a_release_that_the_nodes_deny_has_their_cause() {
    let (locks, nodes) = manager(1);
    let guard = renewed(&locks).renew(false).try_acquire().await.unwrap();
    nodes[0].forget();
    let release = guard.release().await;
    let Err(ReleaseError::Lost(lost)) = release else { panic!("{release:?}") };
    assert_eq!((lost.cause(), lost.votes.len()), (LossCause::NotOnNodes, 1));
}
