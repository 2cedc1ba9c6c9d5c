//! Scopes: the locks that one request holds, so that it does not wait for itself.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use pin_project_lite::pin_project;
use smallvec::SmallVec;

use crate::caller_id::CallerId;
use crate::lease::{HoldState, Holding};
use crate::lock::LockSpec;
use crate::waiting::Queues;

tokio::task_local! {
    static SCOPE: Arc<Scope>;
}

/// Runs a future as one holder, which never waits for its own locks. A second acquisition of a key
/// inside the future fails at once with [`LockError::AlreadyHeld`](crate::LockError::AlreadyHeld), or
/// joins the lock if it is [reentrant](crate::LockRequest::reentrant), or if both are
/// [shared](crate::LockRequest::shared).
///
/// The handlers and layers of `redlock-axum` run in one scope per web request, and a function with the attribute
/// `redis_lock` in a scope of its own. A scope inside a scope has no effect.
///
/// A scope belongs to its task. A task that is spawned inside (`tokio::spawn`) is outside of the scope,
/// and waits for the lock like any other caller. Futures that are joined or selected in one task
/// (`tokio::join!`) are in the same scope and count as one holder: if two of them lock the same key at the
/// same time, one of them gets `AlreadyHeld`.
///
/// # Examples
///
/// ```
/// use redlock_core::{LockError, LockManager, scope};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::in_memory();
/// scope(async {
///     let guard = locks.lock("order:42").try_acquire().await?;
///     let again = locks.lock("order:42").try_acquire().await;
///     assert!(matches!(again, Err(LockError::AlreadyHeld { .. })));
///     let joined = locks.lock("order:42").reentrant(true).try_acquire().await?;
///     drop(guard);
///     assert!(joined.is_valid());
///     Ok(())
/// })
/// .await
/// # }
/// ```
///
/// # Cancel safety
///
/// Cancel safe if `future` is cancel safe. A future that is not polled to its end is dropped outside of the scope.
#[inline]
pub fn scope<F: Future>(future: F) -> Scoped<F> {
    Scoped { future, scope: None }
}

/// Keeps a future in the present scope, also in another task. No public API.
#[doc(hidden)]
pub fn stay<F: Future>(future: F) -> Scoped<F> {
    Scoped { future, scope: Some(SCOPE.try_with(Arc::clone).ok()) }
}

pin_project! {
    /// The future of a scope. Returned by [`scope()`].
    #[must_use = "futures do nothing unless they are polled"]
    pub struct Scoped<F> {
        #[pin]
        future: F,
        // Its own scope; `Some(None)` inside of another scope, which belongs to the task and not to this future. Only the
        // first poll knows.
        scope: Option<Option<Arc<Scope>>>,
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        match this.scope.get_or_insert_with(|| (!is_in_scope()).then(Arc::default)) {
            // Set at each poll, so that the future stays in its place: a handler may be large.
            Some(scope) => SCOPE.sync_scope(Arc::clone(scope), || this.future.poll(cx)),
            None => this.future.poll(cx),
        }
    }
}

impl<F> fmt::Debug for Scoped<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scoped").finish_non_exhaustive()
    }
}

/// The state of a scope.
struct Scope {
    /// No other scope of this process has it. A guard may outlive its scope, so an address would not do.
    id: u64,
    /// The locks that the scope holds, each with its manager. They are few enough for a linear search.
    held: Mutex<HeldLocks>,
}

type HeldLocks = SmallVec<[(usize, Weak<Holding>); 1]>;

impl Default for Scope {
    fn default() -> Self {
        static SCOPES: AtomicU64 = AtomicU64::new(0);
        Self { id: SCOPES.fetch_add(1, Ordering::Relaxed), held: Mutex::default() }
    }
}

/// Returns the id of the current scope; `None` outside of any scope.
pub(crate) fn current() -> Option<u64> {
    SCOPE.try_with(|scope| scope.id).ok()
}

/// Returns the caller that runs now.
pub(crate) fn caller() -> CallerId {
    CallerId::in_scope(current())
}

/// Returns whether the caller is in a scope. No public API.
#[doc(hidden)]
pub fn is_in_scope() -> bool {
    current().is_some()
}

/// Returns the id of a manager: the address of its queues.
fn id(queues: &Arc<Queues>) -> usize {
    Arc::as_ptr(queues).addr()
}

/// Returns the lock of the current scope that has a key of this spec, whatever its mode is.
pub(crate) fn find(queues: &Arc<Queues>, spec: &LockSpec) -> Option<Arc<Holding>> {
    let find = |scope: &Arc<Scope>| {
        let all = scope.held.lock();
        let of_manager = all.iter().filter(|(manager, _)| *manager == id(queues));
        of_manager.filter_map(|(_, held)| held.upgrade()).find(|held| {
            spec.common_key(held.attempt().spec()).is_some()
                && held.state() == HoldState::Held
                && held.is_valid()
        })
    };
    SCOPE.try_with(find).ok().flatten()
}

/// Calls `f` with each lock of a manager that the current scope holds.
pub(super) fn for_each(queues: &Arc<Queues>, mut f: impl FnMut(&Holding)) {
    let _ = SCOPE.try_with(|scope| {
        let of_manager: SmallVec<[Arc<Holding>; 1]> = {
            let all = scope.held.lock();
            if all.is_empty() {
                return;
            }
            let own = all.iter().filter(|(manager, _)| *manager == id(queues));
            own.filter_map(|(_, held)| held.upgrade()).collect()
        };
        of_manager.iter().filter(|held| held.state() == HoldState::Held).for_each(|held| f(held));
    });
}

/// Returns whether the current scope has acquired a lock that has not ended. No public API.
#[doc(hidden)]
pub fn has_lock() -> bool {
    let has_lock = |scope: &Arc<Scope>| {
        let all = scope.held.lock();
        all.iter().any(|(_, held)| held.strong_count() > 0)
    };
    SCOPE.try_with(has_lock).unwrap_or_default()
}

/// Records that the current scope, if there is one, holds a lock.
pub(crate) fn record(queues: &Arc<Queues>, held: &Arc<Holding>) {
    let _ = SCOPE.try_with(|scope| {
        let mut all = scope.held.lock();
        all.retain(|(_, held)| held.strong_count() > 0);
        all.push((id(queues), Arc::downgrade(held)));
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::time::{Instant, sleep};

    use super::{SCOPE, scope};
    use crate::clock::fake::{FakeClock, RuntimeClock};
    use crate::node::Node;
    use crate::node::fake::{FakeMode, FakeNode};
    use crate::{LockError, LockManager, LockManagerBuilder, MemoryNode};

    const WAIT: Duration = Duration::from_secs(60);

    async fn manager() -> (LockManager, MemoryNode) {
        let node = MemoryNode::new();
        (LockManager::builder().memory_node(&node).connect().await.unwrap(), node)
    }

    /// The second acquisition fails at once, and not after its wait time.
    #[tokio::test]
    async fn a_scope_does_not_wait_for_itself() {
        let (locks, _) = manager().await;
        scope(async {
            let _guard = locks.lock("a").try_acquire().await.unwrap();
            let again = locks.lock("a").wait_time(WAIT).acquire();
            let again = again.now_or_never().expect("at once").unwrap_err();
            assert!(matches!(again, LockError::AlreadyHeld { .. }), "{again:?}");
            scope(async {
                let again = locks.lock("a").try_acquire().await.unwrap_err();
                assert!(matches!(again, LockError::AlreadyHeld { .. }), "{again:?}");
            })
            .await;
            locks.lock("b").try_acquire().await.unwrap().release().await.unwrap();
        })
        .await;
    }

    /// A worker may run its whole loop in one scope.
    #[tokio::test]
    async fn a_scope_forgets_locks_that_have_ended() {
        let (locks, _) = manager().await;
        scope(async {
            for number in 0..1000 {
                let guard = locks.lock(format!("order:{number}")).try_acquire().await.unwrap();
                guard.release().await.unwrap();
            }
            let remembered = SCOPE.with(|scope| scope.held.lock().len());
            assert!(remembered <= 10, "{remembered}");
        })
        .await;
    }

    #[tokio::test]
    async fn a_reentrant_lock_is_released_with_the_last_guard() {
        let (locks, node) = manager().await;
        scope(async {
            let one = locks.lock("a").try_acquire().await.unwrap();
            let short = Duration::from_secs(1);
            let two = locks.lock("a").expire(short).reentrant(true).try_acquire().await.unwrap();
            assert!(node.time_to_live("a").unwrap() > short, "the lease was shortened");
            one.release().await.unwrap();
            assert!(two.is_valid() && node.len() == 1);
            two.release().await.unwrap();
            assert!(node.is_empty());
            // The lock is not held any more, so the next request acquires it anew, reentrant or
            // not.
            locks.lock("a").reentrant(true).try_acquire().await.unwrap().release().await.unwrap();
            drop(locks.lock("a").try_acquire().await.unwrap());
        })
        .await;
        assert!(node.is_empty());
    }

    /// The node replies after a delay, so that both requests are pending at the same time.
    #[tokio::test(start_paused = true)]
    async fn joined_requests_of_one_scope_do_not_wait_for_each_other() {
        let node = FakeNode::start("node");
        node.set(FakeMode::Up(Duration::from_millis(10)));
        let nodes = vec![Arc::clone(&node) as Arc<dyn Node>];
        let locks = LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new()));
        let (request, begun) = (|| locks.lock("a"), Instant::now());
        scope(async {
            let wait = || request().wait_time(WAIT);
            let (one, two) = tokio::join!(wait().acquire(), wait().acquire());
            let _one = one.unwrap();
            assert!(matches!(two, Err(LockError::AlreadyHeld { .. })), "{two:?}");
        })
        .await;
        // A waiter from outside of the scope queues between the two requests.
        let stranger = tokio::spawn(request().wait_time(WAIT).acquire());
        scope(async {
            let wait = || request().wait_forever().reentrant(true);
            let (one, two) = tokio::join!(wait().acquire(), async {
                sleep(Duration::from_millis(1)).await;
                wait().acquire().await
            });
            one.unwrap().release().await.unwrap();
            two.unwrap().release().await.unwrap();
        })
        .await;
        stranger.await.unwrap().unwrap().release().await.unwrap();
        scope(async {
            let (one, two) = tokio::join!(request().try_acquire(), request().try_acquire());
            let _one = one.unwrap();
            assert!(matches!(two, Err(LockError::AlreadyHeld { .. })), "{two:?}");
        })
        .await;
        assert!(begun.elapsed() < WAIT, "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn other_tasks_scopes_and_managers_do_not_join_the_lock_of_a_scope() {
        let (locks, _) = manager().await;
        let (others, _) = manager().await;
        scope(async {
            let _guard = locks.lock("a").try_acquire().await.unwrap();
            let stranger = locks.clone();
            let stranger = async move { stranger.lock("a").reentrant(true).try_acquire().await };
            let refused = tokio::spawn(stranger).await.unwrap().unwrap_err();
            assert!(refused.is_contended(), "{refused:?}");
            others.lock("a").try_acquire().await.unwrap().release().await.unwrap();
        })
        .await;
        let outside = locks.lock("b").try_acquire().await.unwrap();
        let refused = locks.lock("b").reentrant(true).try_acquire().await.unwrap_err();
        assert!(refused.is_contended(), "outside of a scope: {refused:?}");
        drop(outside);
    }

    /// The machine was suspended past the lease, and no timer has noticed.
    #[tokio::test(start_paused = true)]
    async fn a_lock_whose_lease_is_over_is_not_joined() {
        let clock = FakeClock::default();
        let nodes = vec![Arc::new(MemoryNode::new()) as Arc<dyn Node>];
        let locks = LockManagerBuilder::with_nodes(nodes, Arc::new(clock.clone()));
        let body = async {
            let lease = Duration::from_secs(5);
            let _over = locks.lock("a").expire(lease).try_acquire().await.unwrap();
            clock.advance(lease);
            let again = locks.lock("a").reentrant(true).try_acquire().await;
            assert!(matches!(again, Err(LockError::Contended { .. })), "{again:?}");
        };
        scope(body).await;
    }

    /// The scope of the task that has polled it first stays in that task.
    #[tokio::test]
    async fn a_scope_that_moves_to_another_task_does_not_take_the_scope_around_it_along() {
        let (locks, _nodes) = crate::lease::tests::manager(1);
        scope(async {
            let _guard = locks.lock("a").try_acquire().await.unwrap();
            let inner_locks = locks.clone();
            let mut inner = Box::pin(scope(async move {
                tokio::task::yield_now().await;
                inner_locks.lock("a").reentrant(true).try_acquire().await
            }));
            assert!(futures_util::poll!(inner.as_mut()).is_pending());
            let joined = tokio::spawn(inner).await.unwrap();
            assert!(matches!(joined, Err(LockError::Contended { .. })), "{joined:?}");
        })
        .await;
    }
}
