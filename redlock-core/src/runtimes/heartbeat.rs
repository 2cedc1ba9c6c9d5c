//! The task of a member that emits heartbeats and watches the heartbeats of the home.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::Runtimes;
use super::member::Member;

/// The interval between two heartbeats of a member.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(50);
/// The work leaves a home that has emitted no heartbeat for this time.
pub(super) const HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(250);
/// How many heartbeats a member has to emit itself while the home emits none. In a process that was held up
/// as a whole, no member emits this many before the home emits one.
pub(super) const MIN_OWN_HEARTBEATS: u32 = 5;

/// A member's view of the home.
#[derive(Default)]
pub(super) struct HomeMonitor {
    /// The number of the home's heartbeats at the last check.
    count: u64,
    /// The number of checks since the home's last heartbeat.
    checks: u32,
}

impl HomeMonitor {
    /// Checks the home. Returns whether the home has stalled.
    pub(super) fn has_stalled(&mut self, home: &Member) -> bool {
        let heartbeats = home.heartbeats.lock();
        if heartbeats.count != self.count {
            *self = Self { count: heartbeats.count, checks: 0 };
        }
        self.checks = self.checks.saturating_add(1);
        self.checks > MIN_OWN_HEARTBEATS && heartbeats.last.elapsed() > HEARTBEAT_TIMEOUT
    }
}

/// Records the end of the runtime when the runtime drops the heartbeat task.
struct EndGuard {
    member: Arc<Member>,
    changed: Arc<Notify>,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.member.set_ended();
        self.changed.notify_waiters();
    }
}

/// Returns the heartbeat task of a member: it emits heartbeats, and moves the work when the home has ended or
/// stalled.
pub(super) fn heartbeat_task(
    runtimes: Weak<Runtimes>,
    member: Arc<Member>,
) -> impl Future<Output = ()> + Send {
    let changed =
        runtimes.upgrade().map(|runtimes| Arc::clone(&runtimes.changed)).unwrap_or_default();
    // Created outside of the task: a runtime that has already ended drops the task without polling it.
    let end_guard = EndGuard { member: Arc::clone(&member), changed: Arc::clone(&changed) };
    async move {
        let _end_guard = end_guard;
        let mut monitor = HomeMonitor::default();
        loop {
            let notified = changed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            member.beat();
            let Some(members) = runtimes.upgrade().map(|runtimes| {
                runtimes
                    .move_home_if(|home| home.has_ended() || monitor.has_stalled(home), &member);
                runtimes.members()
            }) else {
                return;
            };
            if members > 1 {
                let _ = tokio::time::timeout(HEARTBEAT_INTERVAL, notified).await;
            } else {
                notified.await;
            }
        }
    }
}
