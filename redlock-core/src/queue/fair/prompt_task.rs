//! A background task that its callers may poll, too.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::home::Home;

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task of the home that its callers may poll, too. So what it can do at once is done when a caller returns: a ticket is
/// removed before the next request of the caller looks at the queue.
pub(super) struct PromptTask {
    /// `None` after its end.
    future: Mutex<Option<TaskFuture>>,
    /// Wakes the task of the home.
    waker: Mutex<Waker>,
}

impl PromptTask {
    /// Starts a task. A shutdown waits for it.
    pub(super) fn spawn(home: &Home, future: TaskFuture) -> Arc<Self> {
        /// Ends a task that its runtime drops.
        struct End(Arc<PromptTask>);

        impl Drop for End {
            fn drop(&mut self) {
                let future = self.0.future.lock().take();
                drop(future);
            }
        }

        let (future, waker) = (Mutex::new(Some(future)), Mutex::new(Waker::noop().clone()));
        let task = Arc::new(Self { future, waker });
        let end = End(Arc::clone(&task));
        home.spawn(poll_fn(move |context| end.0.poll(context)));
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
        let Some(mut future) = self.future.try_lock() else { return false };
        // Read while no other thread polls. Before the first poll by the home there is none, and that poll registers anew.
        let waker = self.waker.lock().clone();
        let end = poll(&mut future, &mut Context::from_waker(&waker));
        if end.is_ready() {
            waker.wake();
        }
        end.is_ready()
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut future = self.future.lock();
        context.waker().clone_into(&mut self.waker.lock());
        poll(&mut future, context)
    }
}

/// Polls a future that has not ended. A future that panics has ended.
fn poll(future: &mut Option<TaskFuture>, context: &mut Context<'_>) -> Poll<()> {
    let Some(mut present) = future.take() else { return Poll::Ready(()) };
    let end = present.as_mut().poll(context);
    if end.is_pending() {
        *future = Some(present);
    }
    end
}

impl fmt::Debug for PromptTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PromptTask")
    }
}
