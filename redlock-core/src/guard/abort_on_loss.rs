//! Stops work when its lock is lost.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::handle::{LockHandle, Lost};
use crate::error::LostError;
use crate::options::OnLost;

pin_project! {
    /// Runs work to its end or, if there is a watcher, until the watcher reports that the lock is lost.
    #[derive(Debug)]
    pub struct AbortOnLoss<F> {
        watch: Option<LossWatcher>,
        #[pin]
        work: F,
    }
}

impl<F> AbortOnLoss<F> {
    /// Returns the future of the work, with the watcher of its lock.
    pub fn new(watch: Option<LossWatcher>, work: F) -> Self {
        Self { watch, work }
    }
}

impl<F: Future> Future for AbortOnLoss<F> {
    type Output = Result<F::Output, LostError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // The lock is checked first: work that has lost its lock must not be polled again.
        if let Some(watch) = this.watch
            && let Poll::Ready(error) = watch.poll(cx)
        {
            return Poll::Ready(Err(error));
        }
        this.work.poll(cx).map(Ok)
    }
}

/// Watches a lock and reports its loss.
#[derive(Debug)]
pub struct LossWatcher {
    handle: LockHandle,
    lost: Lost,
}

impl LossWatcher {
    /// Returns the watcher of a lock, if its loss stops the work.
    pub fn new(handle: &LockHandle, on_lost: OnLost) -> Option<Self> {
        match on_lost {
            OnLost::KeepGoing => None,
            OnLost::Abort => Some(Self { handle: handle.clone(), lost: handle.lost() }),
        }
    }

    /// Returns a [`LostError`] if the lock is lost, and otherwise wakes the task when it is.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<LostError> {
        // Every poll compares the validity with the clock (every lock has a deadline), because the
        // runtime's timers stand still while the machine is suspended.
        if self.handle.is_valid() && Pin::new(&mut self.lost).poll(cx).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(self.handle.loss())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::Waker;
    use std::time::Duration;

    use super::*;
    use crate::clock::fake::FakeClock;
    use crate::{LockManagerBuilder, MemoryNode};

    /// The machine is suspended past the lease while the work waits, and the timers of the runtime stand still. The next
    /// poll comes because the work is ready.
    #[tokio::test(start_paused = true)]
    async fn work_whose_lock_is_lost_is_not_polled_again() {
        let lease = Duration::from_secs(5);
        let clock = FakeClock::default();
        let nodes = vec![Arc::new(MemoryNode::new()) as _];
        let locks = LockManagerBuilder::with_nodes(nodes, Arc::new(clock.clone()));
        let guard = locks.lock("a").expire(lease).try_acquire().await.unwrap();
        let mut polls = 0;
        let work = poll_fn(|_| {
            polls += 1;
            if polls == 1 { Poll::Pending } else { Poll::Ready(()) }
        });
        {
            let watch = LossWatcher::new(&guard.handle(), OnLost::Abort);
            let mut work = pin!(AbortOnLoss::new(watch, work));
            let mut context = Context::from_waker(Waker::noop());
            assert!(work.as_mut().poll(&mut context).is_pending());
            clock.advance(lease);
            let end = work.as_mut().poll(&mut context);
            assert!(matches!(end, Poll::Ready(Err(_))), "{end:?}");
        }
        assert_eq!(polls, 1);
    }
}
