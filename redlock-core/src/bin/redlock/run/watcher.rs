//! Watches a lock and its command together.
//!
//! The command gets SIGTERM so early that SIGKILL, after the grace, comes before the validity of the lock ends. So it works no more
//! when the next holder begins. If the nodes report the loss earlier, because an operator has broken the lock for instance, the
//! command gets SIGTERM at once. SIGKILL then comes before the end of the validity that the lock had.

use std::time::Duration;

use redlock_core::{LockGuard, LockHandle, LockManager, LockManagerConfig};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, sleep_until};

use super::child::Child;
use super::{GRACE, GRACE_DIVISOR, LONGEST_GRACE_DIVISOR, Signals};
use crate::arguments::RunArguments;
use crate::failure::{Failure, complain};
use crate::output::short;

/// How long SIGKILL comes before the end of the validity, and the part of the lease that this is at most.
const MARGIN: Duration = Duration::from_millis(250);
const MARGIN_DIVISOR: u32 = 20;
/// The longest time between two looks at the validity. A timer stands still while the machine is suspended, and the clock of the
/// validity does not.
const LOOK: Duration = Duration::from_secs(1);
/// An extension begins when less than two of so many parts of the lease are left.
const PARTS: u32 = 3;
/// The lease of a lock that is kept, if the command takes longer.
const LEASE: Duration = Duration::from_secs(30);

/// Watches a lock and its command.
pub(super) struct Watcher {
    grace: Duration,
    margin: Duration,
    /// The lease that the watcher extends, because the lock is kept for a longer time and is not renewed.
    extend: Option<Duration>,
}

/// How a command has ended.
pub(super) struct Ended {
    pub(super) status: Result<u8, Failure>,
    /// Whether the lock was lost before.
    pub(super) is_lost: bool,
}

impl Watcher {
    /// Creates a watcher of a lock that is kept for this time. Returns an error if the grace is too long for the lease.
    pub(super) fn of_kept(
        config: &LockManagerConfig,
        arguments: &RunArguments,
        keep: Duration,
    ) -> Result<Self, Failure> {
        let lease = arguments.expire.or(config.expire).unwrap_or(LEASE).min(keep);
        Self::new(lease, Some(lease), arguments)
    }

    /// Creates a watcher of a lock that is renewed. Returns an error if the grace is too long for the lease.
    pub(super) fn of_renewed(
        locks: &LockManager,
        guard: &LockGuard,
        arguments: &RunArguments,
    ) -> Result<Self, Failure> {
        let held = locks.snapshot().held;
        let lease = held.first().map_or_else(|| guard.remaining(), |held| held.lease);
        Self::new(lease, None, arguments)
    }

    fn new(
        lease: Duration,
        extend: Option<Duration>,
        arguments: &RunArguments,
    ) -> Result<Self, Failure> {
        let longest = lease / LONGEST_GRACE_DIVISOR;
        let grace = match arguments.grace {
            Some(grace) if grace > longest => {
                return Err(Failure::new(format!(
                    "--grace is {grace:?}, but must be at most {longest:?}, half of the lease of {lease:?}; give a longer --expire"
                )));
            }
            Some(grace) => grace,
            None => GRACE.min(lease / GRACE_DIVISOR),
        };
        Ok(Self { grace, margin: MARGIN.min(lease / MARGIN_DIVISOR), extend })
    }

    /// Watches until the command has ended.
    pub(super) async fn watch(
        &self,
        lock: &LockHandle,
        child: &mut Child,
        signals: &mut Signals,
    ) -> Ended {
        let mut lost = lock.lost();
        loop {
            let rest = lock.remaining().saturating_sub(self.grace + self.margin);
            if rest.is_zero() {
                break;
            }
            let extension = async {
                match self.extend {
                    Some(lease) if lock.remaining() < lease / PARTS * 2 => {
                        // The next look tries again.
                        let _ = lock.extend(lease).await;
                        sleep(LOOK.min(lease / PARTS / 2)).await;
                    }
                    _ => sleep(rest.min(LOOK)).await,
                }
            };
            tokio::select! {
                biased;
                status = child.wait() => return Ended { status, is_lost: !lock.is_valid() },
                _ = &mut lost => break,
                signal = signals.next() => child.signal(signal),
                () = extension => {}
                () = sleep(rest) => {}
            }
        }
        let cause = if lock.is_valid() {
            "the lock is not renewed, and ends soon"
        } else {
            "the lock is lost"
        };
        complain(format!(
            "{cause}: the command gets SIGTERM, and SIGKILL after {}",
            short(self.grace)
        ));
        Ended { status: self.end(child, signals).await, is_lost: true }
    }

    /// Ends the command.
    async fn end(&self, child: &mut Child, signals: &mut Signals) -> Result<u8, Failure> {
        child.signal(Signal::TERM);
        // A stopped process takes the signal when it goes on.
        child.signal(Signal::CONT);
        let deadline = Instant::now() + self.grace;
        loop {
            tokio::select! {
                biased;
                status = child.wait() => break status,
                () = sleep_until(deadline) => {
                    child.signal(Signal::KILL);
                    break child.wait().await;
                }
                signal = signals.next() => child.signal(signal),
            }
        }
    }
}
