//! Dropping futures before they are ready.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// The moment at which [`drop_after`] drops a future.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Right after the last poll, while the operations that the future has started are still pending.
    AtOnce,
    /// When the future is woken after the last poll. The event that it waited for has happened, but the
    /// future cannot see it any more.
    WhenWoken,
}

/// Polls a future up to `polls` times and then drops it. Returns its output if the future became ready.
pub async fn drop_after<F: Future>(polls: usize, moment: Moment, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(move |cx| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polled == polls && moment == Moment::AtOnce => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    async fn yields(times: usize, alive: Arc<()>) -> usize {
        for _ in 0..times {
            tokio::task::yield_now().await;
        }
        Arc::strong_count(&alive)
    }

    #[tokio::test]
    async fn the_future_is_polled_the_given_number_of_times_and_dropped() {
        for moment in [Moment::AtOnce, Moment::WhenWoken] {
            let alive = Arc::new(());
            for polls in 0..=3 {
                assert_eq!(drop_after(polls, moment, yields(3, Arc::clone(&alive))).await, None);
                assert_eq!(Arc::strong_count(&alive), 1);
            }
            assert_eq!(drop_after(4, moment, yields(3, Arc::clone(&alive))).await, Some(2));
        }
    }
}
