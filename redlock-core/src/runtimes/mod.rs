//! Chooses the runtime that runs the background work of a manager.
//!
//! Connections, renewals and releases run in one runtime, the *home* of the manager: the first runtime that
//! used the manager. Their state belongs to the manager and not to their tasks. So another runtime can
//! continue the work when the home ends, or when the home stalls (a `current_thread` runtime outside of
//! `block_on`).
//!
//! Every runtime that uses the manager is a member, and runs a heartbeat task. As soon as there are two
//! members, each member emits a heartbeat every [`HEARTBEAT_INTERVAL`](heartbeat::HEARTBEAT_INTERVAL). The
//! work moves to a member when the home has ended, or when the home has emitted no heartbeat for
//! [`HEARTBEAT_TIMEOUT`](heartbeat::HEARTBEAT_TIMEOUT) while the member itself has emitted
//! [`MIN_OWN_HEARTBEATS`](heartbeat::MIN_OWN_HEARTBEATS) heartbeats. In a process that is stopped or throttled
//! as a whole nothing moves, because the heartbeats of all members stop.

mod heartbeat;
mod member;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use heartbeat::heartbeat_task;
use member::Member;

/// Background work that can continue in another runtime.
pub(crate) trait BackgroundService: Send + Sync {
    /// Starts the work in a runtime. The work runs until `stop` is cancelled, because it moves again. Work
    /// that was in progress in another runtime is started again.
    fn start(&self, runtime: &Handle, stop: &CancellationToken);
}

/// The runtimes that use a manager.
pub(crate) struct Runtimes {
    home: ArcSwapOption<Member>,
    state: Mutex<Membership>,
    /// Held while the work moves, so that two moves cannot overlap.
    moving: Mutex<()>,
    /// How often the work has moved.
    moves: AtomicU64,
    /// Wakes the heartbeat tasks when a member joins or ends, or when the manager is dropped.
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Membership {
    members: Vec<Arc<Member>>,
    services: Vec<Weak<dyn BackgroundService>>,
    /// Stops the services in the home. Replaced whenever the home changes.
    stop: CancellationToken,
}

impl Runtimes {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            home: ArcSwapOption::empty(),
            state: Mutex::default(),
            moving: Mutex::default(),
            moves: AtomicU64::new(0),
            changed: Arc::default(),
        })
    }

    /// Adds a service. It starts in the home as soon as there is one.
    pub(crate) fn add_service<S: BackgroundService + 'static>(&self, service: &Arc<S>) {
        let _moving = self.moving.lock();
        let weak: Weak<S> = Arc::downgrade(service);
        self.state.lock().services.push(weak);
        if let Some((home, stop)) = self.home() {
            service.start(&home, &stop);
        }
    }

    /// Records that the runtime of this thread uses the manager. The runtime becomes the home if there is
    /// none, or if the home has ended.
    pub(crate) fn register_current(self: &Arc<Self>) {
        let Ok(current) = Handle::try_current() else { return };
        let home = self.home.load();
        let is_home = |home: &Arc<Member>| home.id == current.id() && !home.has_ended();
        if !home.as_ref().is_some_and(is_home) {
            self.register_new(current);
        }
    }

    #[cold]
    fn register_new(self: &Arc<Self>, current: Handle) {
        let member = self.member(current);
        // The member may have ended already: a guard may be dropped in a runtime that is shutting down.
        if !member.has_ended() {
            self.move_home_if(Member::has_ended, &member);
        }
    }

    /// Returns the member of a runtime. Adds the runtime as a member if it is new.
    fn member(self: &Arc<Self>, current: Handle) -> Arc<Member> {
        let mut state = self.state.lock();
        state.members.retain(|member| !member.has_ended());
        let known = state.members.iter().find(|member| member.id == current.id());
        if let Some(member) = known {
            return Arc::clone(member);
        }
        let member = Arc::new(Member::new(current));
        state.members.push(Arc::clone(&member));
        if let [first, _] = &*state.members {
            // The first member's heartbeats are expected only from now on: a member that is alone emits
            // none.
            first.expect_heartbeats();
        }
        drop(state);
        member.handle.spawn(heartbeat_task(Arc::downgrade(self), Arc::clone(&member)));
        self.changed.notify_waiters();
        member
    }

    /// Moves the work to `member` if there is no home, or if `must_leave` returns true for the home.
    fn move_home_if(&self, must_leave: impl FnOnce(&Member) -> bool, member: &Arc<Member>) {
        let _moving = self.moving.lock();
        let before = self.home.load_full();
        if before.as_ref().is_some_and(|home| Arc::ptr_eq(home, member) || !must_leave(home)) {
            return;
        }
        let mut state = self.state.lock();
        std::mem::take(&mut state.stop).cancel();
        let stop = state.stop.clone();
        self.home.store(Some(Arc::clone(member)));
        state.services.retain(|service| service.strong_count() > 0);
        let services: Vec<_> = state.services.iter().filter_map(Weak::upgrade).collect();
        drop(state);
        if before.is_some() {
            self.moves.fetch_add(1, Ordering::Release);
            tracing::info!(
                "the Tokio runtime that ran a manager's connections and renewals has ended or stalled; \
                 moving them to another runtime"
            );
        }
        for service in services {
            service.start(&member.handle, &stop);
        }
    }

    /// Returns the runtime that runs the background work, and the token that is cancelled when the work
    /// moves. Returns `None` if no runtime has used the manager.
    pub(crate) fn home(&self) -> Option<(Handle, CancellationToken)> {
        let state = self.state.lock();
        let home = self.home.load();
        home.as_ref().map(|home| (home.handle.clone(), state.stop.clone()))
    }

    /// Returns how often the work has moved to another runtime.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    /// Waits until every service has started in its new runtime. This blocks for a few calls of `spawn` at
    /// most.
    pub(crate) fn finish_move(&self) {
        drop(self.moving.lock());
    }

    /// Returns how many members are left.
    fn members(&self) -> usize {
        let mut state = self.state.lock();
        state.members.retain(|member| !member.has_ended());
        state.members.len()
    }
}

impl Drop for Runtimes {
    fn drop(&mut self) {
        self.state.get_mut().stop.cancel();
        self.changed.notify_waiters();
    }
}

impl fmt::Debug for Runtimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtimes")
            .field("members", &self.state.lock().members.len())
            .field("moves", &self.moves())
            .finish_non_exhaustive()
    }
}
