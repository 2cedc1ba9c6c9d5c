//! The part of a worker's turn from the grant to the release.

use std::time::Duration;

use rand::RngExt;
use redlock_core::{HoldError, LockGuard};
use tokio::time::{Instant, sleep_until, timeout};

use super::belief::Belief;
use super::history::Hold;
use super::worker::Worker;

impl Worker {
    pub(super) async fn hold(
        &mut self,
        guard: LockGuard,
        hold: Hold,
        number: Option<i64>,
        lease: Duration,
        renewed: bool,
    ) {
        let mut belief = Belief::new(self, guard.handle().keys(), hold, number);
        let longest_hold = self.world.plan.longest_hold;
        let longest = if renewed { longest_hold } else { (lease * 3 / 2).min(longest_hold) };
        self.watch(&guard, &mut belief, longest).await;
        let Some(guard) = self.change_modes(guard, &mut belief, longest / 4).await else { return };
        let extends = self.random.random_ratio(1, 5);
        if extends {
            let at_once = self.random.random_ratio(1, 3);
            let pause = if at_once { 0.0 } else { self.random.random_range(0.0..1.2) };
            let pause = lease.min(longest_hold).mul_f64(pause);
            tokio::select! {
                biased;
                _ = guard.lost() => belief.end(),
                () = async {
                    if guard.extend(lease).await.is_ok() {
                        belief.continue_for(guard.remaining());
                        sleep_until((Instant::now() + pause).min(belief.until)).await;
                    }
                } => {}
            }
        }
        let was_valid = guard.is_valid();
        if was_valid && belief.was_lost {
            self.violation(&format!(
                "has a valid guard of {} again, after its loss",
                guard.keys()[0]
            ));
        }
        if guard.is_shared() != (belief.hold() != Hold::Exclusive) {
            self.violation(&format!("holds {} as {:?}: {guard:?}", guard.keys()[0], belief.hold()));
        }
        drop(belief);
        let end = self.random.random_range(0..10);
        self.record(|| format!("ends its hold of {} ({end}), valid: {was_valid}", guard.keys()[0]));
        match end {
            0..5 => {
                let released = guard.release().await;
                self.record(|| format!("released: {released:?}"));
            }
            5 => {
                let patience = self.millis(0, 20);
                let _ = timeout(patience, guard.release()).await;
            }
            6 if self.world.plan.keeps_locks() => guard.keep_until_expiry(),
            _ => drop(guard),
        }
    }

    /// Holds a lock for a random time, up to `longest`.
    pub(super) async fn watch(
        &mut self,
        guard: &LockGuard,
        belief: &mut Belief,
        longest: Duration,
    ) {
        // Many holds are short, and some outlast their lease.
        let is_longest = self.random.random_ratio(1, 3);
        let part = if is_longest { 1.0 } else { self.random.random_range(0.0..1.0f64).powi(3) };
        let until = Instant::now() + longest.mul_f64(part);
        loop {
            let left = guard.remaining();
            if left.is_zero() {
                belief.end();
                break;
            }
            belief.continue_for(left);
            tokio::select! {
                biased;
                _ = guard.lost() => {}
                () = sleep_until(until.min(belief.until)) => {}
            }
            if Instant::now() >= until {
                break;
            }
        }
    }

    /// Sometimes turns an exclusive lock into a shared one. Returns `None` if the lock was lost, or if the worker has given up.
    async fn change_modes(
        &mut self,
        mut guard: LockGuard,
        belief: &mut Belief,
        longest: Duration,
    ) -> Option<LockGuard> {
        // The mode of a lock of several keys does not change.
        let changes_modes = self.world.plan.sharing.is_some_and(|sharing| sharing.changes_modes);
        if !changes_modes || guard.handle().keys().len() > 1 {
            return Some(guard);
        }
        if belief.hold() != Hold::Exclusive || !self.random.random_ratio(1, 2) {
            return Some(guard);
        }
        let patience = self.random.random_ratio(1, 12);
        let patience = if patience { self.millis(0, 20) } else { Duration::from_secs(60) };
        guard = timeout(patience, self.downgrade(guard, belief)).await.ok()??;
        self.watch(&guard, belief, longest).await;
        Some(guard)
    }

    async fn downgrade(&self, guard: LockGuard, belief: &mut Belief) -> Option<LockGuard> {
        // The holder gives the exclusive lock up at once. The shared lock is part of it.
        belief.change(belief.shared_hold(), belief.since());
        let downgraded = guard.downgrade().await;
        self.record(|| format!("downgraded: {downgraded:?}"));
        match downgraded {
            Ok(()) => {
                self.world.downgraded();
                Some(guard)
            }
            Err(HoldError::Lost(_)) => {
                belief.end();
                None
            }
            Err(HoldError::Unavailable { .. }) => Some(guard),
            Err(error) => {
                self.violation(&format!("got the unexpected error {error:?}"));
                None
            }
        }
    }
}
