//! The timers of rounds, which serve one round after another.
//!
//! Most rounds end long before their timer. To add a timer to the runtime and to remove it takes the lock of the
//! runtime's timers twice. So each thread keeps the timers of ended rounds for its next rounds: a timer that the runtime
//! still has is only moved to a later time.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, Sleep, sleep_until};

/// The highest number of timers that a thread keeps.
const MAX_SPARE: usize = 256;

thread_local! {
    static SPARE: RefCell<Vec<Timer>> = const { RefCell::new(Vec::new()) };
}

/// A timer, and the runtime that it belongs to.
struct Timer {
    sleep: Pin<Box<Sleep>>,
    runtime: Id,
}

/// The timer of one round.
pub(super) struct RoundTimer(Option<Timer>);

impl RoundTimer {
    /// Returns a timer of the current runtime. Panics outside of a runtime, as every timer of Tokio does.
    pub(super) fn until(deadline: Instant) -> Self {
        let runtime = Handle::current().id();
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        if let Some(mut timer) = spare.filter(|timer| timer.runtime == runtime) {
            timer.sleep.as_mut().reset(deadline);
            return Self(Some(timer));
        }
        Self(Some(Timer { sleep: Box::pin(sleep_until(deadline)), runtime }))
    }

    /// Moves the timer.
    pub(super) fn reset(&mut self, deadline: Instant) {
        if let Some(timer) = &mut self.0 {
            timer.sleep.as_mut().reset(deadline);
        }
    }

    /// Completes when the time is over.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Some(timer) => timer.sleep.as_mut().poll(cx),
            None => Poll::Ready(()),
        }
    }
}

impl Drop for RoundTimer {
    fn drop(&mut self) {
        let Some(timer) = self.0.take() else { return };
        // At the end of a thread there are no spare timers any more.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < MAX_SPARE {
                spare.push(timer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn spare() -> usize {
        SPARE.with_borrow(Vec::len)
    }

    async fn wait(timer: &mut RoundTimer) {
        poll_fn(|cx| timer.poll(cx)).await;
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_is_used_again_completes_at_its_new_time() {
        for (first, next) in [(SECOND, 3 * SECOND), (3 * SECOND, SECOND), (SECOND, SECOND)] {
            let begun = Instant::now();
            let mut timer = RoundTimer::until(begun + first);
            assert!(futures_util::poll!(Box::pin(wait(&mut timer))).is_pending());
            drop(timer);
            assert_eq!(spare(), 1);
            let mut timer = RoundTimer::until(begun + next);
            assert_eq!(spare(), 0);
            wait(&mut timer).await;
            assert_eq!(begun.elapsed(), next);
            timer.reset(begun + next + SECOND);
            wait(&mut timer).await;
            assert_eq!(begun.elapsed(), next + SECOND);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_ran_out_without_a_round_is_used_again() {
        let mut timer = RoundTimer::until(Instant::now() + SECOND);
        assert!(futures_util::poll!(Box::pin(wait(&mut timer))).is_pending());
        drop(timer);
        tokio::time::sleep(2 * SECOND).await;
        let begun = Instant::now();
        let mut timer = RoundTimer::until(begun + SECOND);
        wait(&mut timer).await;
        assert_eq!(begun.elapsed(), SECOND);
    }

    /// A timer panics in a runtime that has ended.
    #[test]
    fn a_timer_of_another_runtime_is_not_used() {
        for _ in 0..2 {
            let runtime = runtime();
            runtime.block_on(async {
                let mut timer = RoundTimer::until(Instant::now() + Duration::from_millis(1));
                wait(&mut timer).await;
            });
        }
        assert_eq!(spare(), 1);
    }

    /// The thread drops its spare timers after the runtime.
    #[test]
    fn a_spare_timer_outlives_its_runtime() {
        let thread = std::thread::spawn(|| {
            let runtime = runtime();
            runtime.block_on(async {
                let mut timer = RoundTimer::until(Instant::now() + SECOND);
                assert!(futures_util::poll!(Box::pin(wait(&mut timer))).is_pending());
            });
            drop(runtime);
            assert_eq!(spare(), 1);
        });
        thread.join().unwrap();
    }
}
