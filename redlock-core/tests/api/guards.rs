//! A guard, its handle and its loss: stored in a struct, and asked for the state of the lock.

use std::time::Duration;

use redlock_core::{LockGuard, LockHandle, LockManager, LockState, Lost};
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(60);
/// A test fails if it waits for longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A struct that names all types of a held lock, without a box or a type parameter.
struct Worker {
    guard: LockGuard,
    handle: LockHandle,
    lost: Lost,
}

#[tokio::test]
async fn the_loss_of_a_lock_is_awaited_from_a_field() {
    let locks = LockManager::in_memory();
    let guard = locks.lock("a").expire(SHORT).try_acquire().await.unwrap();
    let mut worker = Worker { handle: guard.handle(), lost: guard.lost(), guard };
    // A loop that selects on the field polls it again.
    for _ in 0..2 {
        timeout(PATIENCE, &mut worker.lost).await.unwrap();
    }
    assert!(!worker.guard.is_valid());
    assert_eq!(worker.handle.state(), LockState::Lost);
}

#[test]
fn a_state_is_displayed_in_one_word() {
    for (state, text) in [
        (LockState::Held, "held"),
        (LockState::Suspect, "suspect"),
        (LockState::Lost, "lost"),
        (LockState::Released, "released"),
    ] {
        assert_eq!(state.to_string(), text);
    }
}

#[tokio::test]
async fn a_guard_has_the_methods_of_its_handle() {
    let locks = LockManager::in_memory();
    let guard = locks.lock("order:42").fenced(true).expire(LONG / 12).try_acquire().await.unwrap();
    let handle = guard.handle();
    assert_eq!(guard.keys()[0].as_str(), "order:42");
    assert!(guard.is_valid());
    assert_eq!(guard.state(), LockState::Held);
    assert!(guard.remaining() > Duration::ZERO && guard.remaining() < LONG / 12);
    guard.extend(LONG).await.unwrap();
    assert!(guard.remaining() > LONG / 2, "{:?}", guard.remaining());
    assert!(handle.remaining() > LONG / 2, "it is a view of another lock");
    assert!(guard.fencing_token().is_some());
    assert_eq!(handle.fencing_token(), guard.fencing_token());
    guard.release().await.unwrap();
    assert_eq!(handle.state(), LockState::Released);
}
