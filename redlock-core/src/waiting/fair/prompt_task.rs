//! A background task that its callers may poll, too.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::home::Home;

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task of the home that its callers may poll, too. So what it can do at once is done when a caller returns: a ticket is
/// removed before the next request of the caller looks at the queue.
///
/// The task of the home owns the state: if the runtime drops the task, the task has ended for its callers, too.
pub(super) struct PromptTask(Weak<Mutex<SharedTask>>);

struct SharedTask {
    /// `None` after its end.
    future: Option<TaskFuture>,
    /// Wakes the task of the home.
    waker: Waker,
}

/// Ends a task that its runtime drops. Waits for a caller that polls it at the moment: the timers of the task panic after
/// the end of the runtime.
struct Owner(Arc<Mutex<SharedTask>>);

impl Drop for Owner {
    fn drop(&mut self) {
        let future = self.0.lock().future.take();
        drop(future);
    }
}

impl PromptTask {
    /// Starts a task. A shutdown waits for it.
    pub(super) fn spawn(home: &Home, future: TaskFuture) -> Self {
        let state = SharedTask { future: Some(future), waker: Waker::noop().clone() };
        let state = Arc::new(Mutex::new(state));
        let task = Self(Arc::downgrade(&state));
        let owner = Owner(state);
        home.spawn(poll_fn(move |context| {
            let mut state = owner.0.lock();
            context.waker().clone_into(&mut state.waker);
            state.poll(context)
        }));
        task
    }

    /// Polls the task, unless another thread does so at the moment. Returns whether the task has ended.
    pub(super) fn poll_here(&self, home: &Home) -> bool {
        if Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed()) {
            // At the end of a thread. The task was notified, and is polled by the home.
            return false;
        }
        // The timers of the task are those of the home.
        let runtime = home.runtime();
        let _entered = runtime.as_ref().map(Handle::enter);
        let Some(state) = self.0.upgrade() else { return true };
        let Some(mut state) = state.try_lock() else { return false };
        // Before the first poll by the home there is no waker, and that poll registers anew.
        let waker = state.waker.clone();
        let end = state.poll(&mut Context::from_waker(&waker));
        if end.is_ready() {
            waker.wake();
        }
        end.is_ready()
    }
}

impl SharedTask {
    /// Polls a future that has not ended. A future that panics has ended.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(mut future) = self.future.take() else { return Poll::Ready(()) };
        let end = future.as_mut().poll(context);
        if end.is_pending() {
            self.future = Some(future);
        }
        end
    }
}

impl fmt::Debug for PromptTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PromptTask")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use tokio::runtime::Builder;
    use tokio::time::sleep;

    use super::*;

    /// The timers of a task panic after the end of their runtime.
    #[test]
    fn a_task_is_not_polled_after_the_end_of_its_runtime() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let home = Arc::<Home>::default();
        runtime.block_on(async { home.enter(|_| || {}) });
        let (polled, polls) = channel();
        let (leave, may_leave) = channel::<()>();
        let by_caller = Arc::new(AtomicBool::new(false));
        let (is_caller, mut timer) = (Arc::clone(&by_caller), None);
        let may_leave = std::sync::Mutex::new(may_leave);
        let future = poll_fn(move |cx| {
            let is_caller = is_caller.load(Ordering::SeqCst);
            polled.send(()).unwrap();
            if is_caller {
                let _ = may_leave.lock().unwrap().recv();
            }
            timer.get_or_insert_with(|| Box::pin(sleep(Duration::MAX))).as_mut().poll(cx)
        });
        let task = PromptTask::spawn(&home, Box::pin(future));
        polls.recv().unwrap();
        by_caller.store(true, Ordering::SeqCst);
        let caller = {
            let home = Arc::clone(&home);
            std::thread::spawn(move || while !task.poll_here(&home) {})
        };
        polls.recv().unwrap();
        let end = std::thread::spawn(move || drop(runtime));
        std::thread::sleep(Duration::from_millis(100));
        drop(leave);
        end.join().unwrap();
        caller.join().expect("a caller panicked");
    }
}
