//! A background task that its callers may poll, too.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

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
        home.spawn(poll_fn(move |context| {
            context.waker().clone_into(&mut end.0.waker.lock());
            end.0.poll(context)
        }));
        task
    }

    /// Polls the task, unless another thread does so at the moment.
    pub(super) fn poll_here(&self, home: &Home) {
        // The timers of the task are those of the home.
        let runtime = home.runtime();
        let _entered = runtime.as_ref().map(|runtime| runtime.enter());
        let waker = self.waker.lock().clone();
        let Some(mut future) = self.future.try_lock() else { return };
        if poll(&mut future, &mut Context::from_waker(&waker)).is_ready() {
            waker.wake();
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        poll(&mut self.future.lock(), context)
    }
}

fn poll(future: &mut Option<TaskFuture>, context: &mut Context<'_>) -> Poll<()> {
    let Some(present) = future else { return Poll::Ready(()) };
    let end = present.as_mut().poll(context);
    if end.is_ready() {
        *future = None;
    }
    end
}

impl fmt::Debug for PromptTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PromptTask")
    }
}
