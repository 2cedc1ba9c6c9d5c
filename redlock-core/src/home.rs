//! The Tokio runtime of a manager, and its background tasks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::counters::Counters;
use crate::drain::Drain;
use crate::error::LockError;

/// How often the runtime is checked within the time after which it counts as idle. A process that was stopped for long
/// misses one check only.
const IDLE_CHECKS: u32 = 4;
/// The pause before the first check of a home that was idle.
const SHORTEST_CHECK: Duration = Duration::from_millis(1);

/// The runtime that runs the background work of a manager: the first that uses the manager. Connections, renewals and
/// releases run there.
#[derive(Debug, Default)]
pub(crate) struct Home {
    runtime: OnceLock<Handle>,
    has_ended: AtomicBool,
    pulse: Mutex<Option<Pulse>>,
    /// The result of the latest [`is_idle`](Self::is_idle).
    was_idle: AtomicBool,
    /// Cancelled when the manager and its last guard have been dropped.
    pub(crate) gone: CancellationToken,
    pub(crate) drain: Drain,
    pub(crate) counters: Arc<Counters>,
    /// Detached work. A shutdown waits for it before it ends the locks.
    detached: TaskTracker,
    /// The terms of leaders. A shutdown after a drain waits for them before it ends the locks.
    terms: TaskTracker,
    /// The tasks that a shutdown waits for. Closed when the shutdown begins.
    tasks: TaskTracker,
    /// Ends these tasks when the shutdown has waited long enough.
    abandon_all: CancellationToken,
}

/// A task that the home finishes at once, as long as a thread drives the home.
#[derive(Debug)]
struct Pulse {
    task: JoinHandle<()>,
    /// How often the task was checked and had not run.
    missed: u32,
    checked: Instant,
}

/// Reports the end of the runtime when the runtime drops the task that holds this value.
struct EndGuard<F: Fn()> {
    home: Arc<Home>,
    report: F,
}

impl<F: Fn()> Drop for EndGuard<F> {
    fn drop(&mut self) {
        if !self.home.gone.is_cancelled() {
            self.home.has_ended.store(true, Ordering::SeqCst);
            (self.report)();
        }
    }
}

impl Home {
    /// Makes the runtime of this thread the home, if there is none yet. Then calls `start`, which starts the background
    /// work, and returns what to do when the runtime has ended.
    pub(crate) fn enter<F>(self: &Arc<Self>, start: impl FnOnce(&Handle) -> F)
    where
        F: Fn() + Send + 'static,
    {
        if self.runtime.get().is_some() {
            return;
        }
        let Ok(current) = Handle::try_current() else { return };
        self.runtime.get_or_init(|| {
            // Created outside of the task: a runtime that ends drops a new task without polling it.
            let end = EndGuard { home: Arc::clone(self), report: start(&current) };
            current.spawn(async move { end.home.gone.cancelled().await });
            current
        });
    }

    /// Returns the home, or the runtime of this thread as long as there is no home. `None` if there is neither: then all
    /// nodes are in memory, and reply at once.
    pub(crate) fn runtime(&self) -> Option<Handle> {
        self.runtime.get().cloned().or_else(|| Handle::try_current().ok())
    }

    /// Returns whether no thread has driven the home for about `limit`; false in the home itself. Notices an idle home only if
    /// this method is called several times within `limit`, by any callers: once one of them has noticed it, new callers
    /// do not wait for `limit` again.
    pub(crate) fn is_idle(&self, limit: Duration) -> bool {
        let Some(home) = self.elsewhere() else {
            self.was_idle.store(false, Ordering::Relaxed);
            return false;
        };
        let (mut pulse, now) = (self.pulse.lock(), Instant::now());
        let is_idle = match &mut *pulse {
            Some(pulse) if !pulse.task.is_finished() => {
                if now.duration_since(pulse.checked) >= limit / IDLE_CHECKS {
                    pulse.missed += 1;
                    pulse.checked = now;
                }
                pulse.missed >= IDLE_CHECKS
            }
            _ => {
                let task = home.spawn(std::future::ready(()));
                *pulse = Some(Pulse { task, missed: 0, checked: now });
                false
            }
        };
        self.was_idle.store(is_idle, Ordering::Relaxed);
        is_idle
    }

    /// Returns the home, unless this thread runs it.
    fn elsewhere(&self) -> Option<&Handle> {
        let home = self.runtime.get()?;
        let is_here = Handle::try_current().is_ok_and(|current| current.id() == home.id());
        (!is_here).then_some(home)
    }

    /// Returns when to check the home for the first time.
    pub(crate) fn first_check(&self, limit: Duration) -> Duration {
        if self.was_idle.load(Ordering::Relaxed) { SHORTEST_CHECK } else { limit / IDLE_CHECKS }
    }

    /// Resolves when no thread has driven the home for about `limit`, and at once if there is no home: a caller that has come
    /// outside of every runtime has no timers. Never resolves if the first poll is in the home itself. Later polls do not decide
    /// anew: a caller stays in the runtime of its first poll, to which its timers belong.
    pub(crate) async fn idle(&self, limit: Duration) {
        if self.runtime.get().is_none() {
            return;
        }
        if self.elsewhere().is_none() {
            std::future::pending::<()>().await;
        }
        sleep(self.first_check(limit)).await;
        while !self.is_idle(limit) {
            sleep(limit / IDLE_CHECKS).await;
        }
    }

    /// Resolves when a thread drives the home, or when the home has ended. At once in the home itself.
    pub(crate) async fn driven(&self) {
        if let Some(home) = self.elsewhere() {
            let _ = home.spawn(std::future::ready(())).await;
        }
    }

    /// Runs a task that a shutdown waits for. Drops the task if there is no runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(runtime) = self.runtime() else { return };
        let task = self.abandon_all.clone().run_until_cancelled_owned(task).map(drop);
        self.tasks.spawn_on(task, &runtime);
    }

    /// Returns a token that makes a shutdown wait until the token is dropped.
    pub(crate) fn delay_shutdown(&self) -> TaskTrackerToken {
        self.tasks.token()
    }

    /// Returns a token that makes a shutdown wait, before it ends the locks, until the token is dropped.
    pub(crate) fn delay_shutdown_of_locks(&self) -> TaskTrackerToken {
        self.detached.token()
    }

    /// Waits for detached work. Call [`close`](Self::close) before.
    pub(crate) async fn finish_detached(&self) {
        self.detached.wait().await;
    }

    /// Returns a token of a leader's term, which lasts until its lock is released.
    pub(crate) fn term(&self) -> TaskTrackerToken {
        self.terms.token()
    }

    /// Waits up to `time_limit` for leaders that resign because of a drain. Call [`close`](Self::close) before.
    pub(crate) async fn finish_terms(&self, time_limit: Duration) {
        if self.drain.has_begun() {
            // A term whose future nobody polls does not end.
            let _ = tokio::time::timeout(time_limit, self.terms.wait()).await;
        }
    }

    /// Begins the shutdown: refuses all requests from now on.
    pub(crate) fn close(&self) {
        self.detached.close();
        self.terms.close();
        self.tasks.close();
    }

    /// Returns an error after the begin of a shutdown, and after the end of the runtime.
    pub(crate) fn check_open(&self) -> Result<(), LockError> {
        if self.tasks.is_closed() {
            Err(LockError::ShutDown)
        } else if self.has_ended() {
            Err(LockError::RuntimeEnded)
        } else {
            Ok(())
        }
    }

    /// Waits up to `time_limit` for the tasks, then abandons them. Locks and tickets of fair queues that they did not remove
    /// run out on the servers. Returns the number of abandoned tasks.
    pub(crate) async fn finish_tasks(&self, time_limit: Duration) -> usize {
        self.close();
        if tokio::time::timeout(time_limit, self.tasks.wait()).await.is_ok() {
            return 0;
        }
        let abandoned = self.tasks.len();
        self.abandon_all.cancel();
        abandoned
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(40);

    #[test]
    fn a_home_that_was_idle_is_checked_early_until_it_runs_again() {
        let [driver, other] = [(); 2].map(|()| Builder::new_current_thread().enable_all().build());
        let (driver, other, home) = (driver.unwrap(), other.unwrap(), Arc::<Home>::default());
        driver.block_on(async { home.enter(|_| || {}) });
        assert!(!home.is_idle(LIMIT), "no runtime is idle at once");
        let checks = other.block_on(async {
            let mut checks = 0;
            while !home.is_idle(LIMIT) {
                sleep(LIMIT / IDLE_CHECKS).await;
                checks += 1;
            }
            checks
        });
        assert!(checks >= IDLE_CHECKS, "idle after {checks} checks");
        assert_eq!(home.first_check(LIMIT), SHORTEST_CHECK);
        assert!(other.block_on(async { home.is_idle(LIMIT) }));
        let runs = driver.block_on(async {
            sleep(SHORTEST_CHECK).await;
            !home.is_idle(LIMIT)
        });
        assert!(runs, "the home is idle while it runs");
        assert_eq!(home.first_check(LIMIT), LIMIT / IDLE_CHECKS);
        assert!(!other.block_on(async { home.is_idle(LIMIT) }));
    }
}
