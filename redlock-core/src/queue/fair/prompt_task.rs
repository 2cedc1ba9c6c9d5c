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

impl PromptTask {
    /// Starts a task. A shutdown waits for it.
    pub(super) fn spawn(home: &Home, future: TaskFuture) -> Self {
        let state = SharedTask { future: Some(future), waker: Waker::noop().clone() };
        let state = Arc::new(Mutex::new(state));
        let task = Self(Arc::downgrade(&state));
        home.spawn(poll_fn(move |context| {
            let mut state = state.lock();
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
