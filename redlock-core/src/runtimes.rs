//! Which runtime runs the background work of a manager.
//!
//! Connections, renewal and releases run in one runtime, the *home* of the manager: the first runtime
//! that used the manager. Their state belongs to the manager and not to their tasks, so that another runtime can go on
//! with them when the home ends, or when nobody drives it any more (a `current_thread` runtime outside
//! of `block_on`).
//!
//! Every runtime that uses the manager is a member. As soon as there are two, each has a steward: a task
//! that shows a sign of life every [`BEAT`]. When the home has ended, or has shown no sign of life for
//! [`LATE`] while this member's steward was on time, the work moves to this member. A process that was
//! stopped as a whole moves nothing: after it goes on, no steward was on time.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How often a steward shows a sign of life.
const BEAT: Duration = Duration::from_millis(50);
/// A home without a sign of life for this time is left.
const LATE: Duration = Duration::from_millis(250);
/// A steward that comes later than this was held up itself.
const ON_TIME: Duration = Duration::from_millis(100);
/// How many times in a row a steward has to be on time before it judges others.
const BEATS_ON_TIME: u32 = 3;

/// Background work that can go on in another runtime.
pub(crate) trait Service: Send + Sync {
    /// Starts the work in a runtime, until `tenure` is cancelled because the work moves again. Work that
    /// was begun in another runtime is begun anew.
    fn start(&self, runtime: &Handle, tenure: &CancellationToken);
}

/// The runtimes that use a manager.
pub(crate) struct Runtimes {
    home: ArcSwapOption<Member>,
    state: Mutex<State>,
    /// How often the work has moved.
    moves: AtomicU64,
    /// Wakes the stewards.
    news: Arc<Notify>,
}

#[derive(Default)]
struct State {
    members: Vec<Arc<Member>>,
    services: Vec<Weak<dyn Service>>,
    tenure: CancellationToken,
}

/// A runtime that uses the manager.
struct Member {
    id: Id,
    handle: Handle,
    /// Whether the runtime has ended.
    gone: AtomicBool,
    life: Mutex<Life>,
}

struct Life {
    last_sign: Instant,
    beats_on_time: u32,
}

impl Runtimes {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            home: ArcSwapOption::empty(),
            state: Mutex::default(),
            moves: AtomicU64::new(0),
            news: Arc::default(),
        })
    }

    /// Adds work, which starts in the home as soon as there is one.
    pub(crate) fn serve<S: Service + 'static>(&self, service: &Arc<S>) {
        let mut state = self.state.lock();
        let weak: Weak<S> = Arc::downgrade(service);
        state.services.push(weak);
        let tenure = state.tenure.clone();
        drop(state);
        if let Some(home) = self.home() {
            service.start(&home, &tenure);
        }
    }

    /// Notes that the runtime of this thread uses the manager. The runtime becomes the home if there is
    /// none, or if the home has ended.
    pub(crate) fn check_in(self: &Arc<Self>) {
        let Ok(current) = Handle::try_current() else { return };
        let home = self.home.load();
        let is_home = |home: &Arc<Member>| home.id == current.id() && !home.is_gone();
        if !home.as_ref().is_some_and(is_home) {
            self.check_in_elsewhere(current);
        }
    }

    #[cold]
    fn check_in_elsewhere(self: &Arc<Self>, current: Handle) {
        let mut state = self.state.lock();
        state.members.retain(|member| !member.is_gone());
        let known = state.members.iter().find(|member| member.id == current.id());
        let member = if let Some(member) = known {
            Arc::clone(member)
        } else {
            let member = Arc::new(Member::new(current));
            state.members.push(Arc::clone(&member));
            // Until now nobody looked at the others.
            state.members.iter().for_each(|member| member.begin());
            member.handle.spawn(attend(Arc::downgrade(self), Arc::clone(&member)));
            self.news.notify_waiters();
            member
        };
        if self.home.load().as_ref().is_none_or(|home| home.is_gone()) {
            self.move_to(&member, state);
        }
    }

    /// Moves the work to another runtime.
    fn move_to(&self, member: &Arc<Member>, mut state: parking_lot::MutexGuard<'_, State>) {
        std::mem::take(&mut state.tenure).cancel();
        let tenure = state.tenure.clone();
        let before = self.home.swap(Some(Arc::clone(member)));
        state.services.retain(|service| service.strong_count() > 0);
        let services: Vec<_> = state.services.iter().filter_map(Weak::upgrade).collect();
        drop(state);
        if before.is_some() {
            self.moves.fetch_add(1, Ordering::Release);
            tracing::info!(
                "the runtime of a lock manager's connections and renewals has ended or stands still; \
                 they move to another runtime"
            );
        }
        for service in services {
            service.start(&member.handle, &tenure);
        }
    }

    /// Moves the work to a member if the home is not driven any more. Returns how many members there are.
    fn look_after_home(&self, member: &Arc<Member>) -> usize {
        let was_on_time = member.beat();
        let state = self.state.lock();
        let members = state.members.len();
        let home = self.home.load();
        let is_left = |home: &Arc<Member>| {
            !Arc::ptr_eq(home, member) && (home.is_gone() || was_on_time && home.is_late())
        };
        if home.as_ref().is_none_or(is_left) {
            self.move_to(member, state);
        }
        members
    }

    /// The runtime that does the background work; `None` where no runtime has used the manager.
    pub(crate) fn home(&self) -> Option<Handle> {
        self.home.load().as_ref().map(|home| home.handle.clone())
    }

    /// How often the work has moved to another runtime.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }
}

impl Drop for Runtimes {
    fn drop(&mut self) {
        self.state.get_mut().tenure.cancel();
        self.news.notify_waiters();
    }
}

impl Member {
    fn new(handle: Handle) -> Self {
        let life = Mutex::new(Life { last_sign: Instant::now(), beats_on_time: 0 });
        Self { id: handle.id(), handle, gone: AtomicBool::new(false), life }
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn is_late(&self) -> bool {
        self.life.lock().last_sign.elapsed() > LATE
    }

    /// Begins to expect signs of life.
    fn begin(&self) {
        self.life.lock().last_sign = Instant::now();
    }

    /// Shows a sign of life. Returns whether the last ones were on time.
    fn beat(&self) -> bool {
        let mut life = self.life.lock();
        let is_on_time = life.last_sign.elapsed() <= ON_TIME;
        life.beats_on_time = if is_on_time { life.beats_on_time.saturating_add(1) } else { 0 };
        life.last_sign = Instant::now();
        life.beats_on_time >= BEATS_ON_TIME
    }
}

/// Notes when the runtime has dropped its steward.
struct Presence {
    member: Arc<Member>,
    news: Arc<Notify>,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.member.gone.store(true, Ordering::Release);
        self.news.notify_waiters();
    }
}

/// The steward of a member.
fn attend(runtimes: Weak<Runtimes>, member: Arc<Member>) -> impl Future<Output = ()> + Send {
    let news = runtimes.upgrade().map(|runtimes| Arc::clone(&runtimes.news)).unwrap_or_default();
    // Outside of the task, which a runtime that has ended drops without a poll.
    let presence = Presence { member: Arc::clone(&member), news: Arc::clone(&news) };
    async move {
        let _presence = presence;
        loop {
            let heard = news.notified();
            tokio::pin!(heard);
            heard.as_mut().enable();
            let Some(members) =
                runtimes.upgrade().map(|runtimes| runtimes.look_after_home(&member))
            else {
                return;
            };
            if members > 1 {
                let _ = tokio::time::timeout(BEAT, heard).await;
            } else {
                heard.await;
            }
        }
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

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// Notes in which runtimes it was started, and whether it may go on there.
    #[derive(Default)]
    struct Work(Mutex<Vec<(Id, CancellationToken)>>);

    impl Service for Work {
        fn start(&self, runtime: &Handle, tenure: &CancellationToken) {
            self.0.lock().push((runtime.id(), tenure.clone()));
        }
    }

    impl Work {
        /// The runtimes that it was started in; only the last one may do the work.
        fn starts(&self) -> Vec<Id> {
            let starts = self.0.lock();
            for (index, (_, tenure)) in starts.iter().enumerate() {
                assert_eq!(tenure.is_cancelled(), index + 1 < starts.len());
            }
            starts.iter().map(|(id, _)| *id).collect()
        }
    }

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn work() -> (Arc<Runtimes>, Arc<Work>) {
        let (runtimes, work) = (Runtimes::new(), Arc::new(Work::default()));
        runtimes.serve(&work);
        (runtimes, work)
    }

    #[test]
    fn work_starts_in_the_first_runtime_and_stays_there() {
        let (runtimes, work) = work();
        runtimes.check_in();
        assert!(work.starts().is_empty(), "there is no runtime here");
        let (home, other) = (runtime(), runtime());
        home.block_on(async { runtimes.check_in() });
        other.block_on(async { runtimes.check_in() });
        home.block_on(async { runtimes.check_in() });
        assert_eq!(work.starts(), [home.handle().id()]);
        let late = Arc::new(Work::default());
        runtimes.serve(&late);
        assert_eq!(late.starts(), [home.handle().id()], "added afterwards");
        assert_eq!(runtimes.moves(), 0);
    }

    #[test]
    fn work_moves_to_the_next_caller_when_the_home_has_ended() {
        let (runtimes, work) = work();
        let (home, other) = (runtime(), runtime());
        home.block_on(async { runtimes.check_in() });
        let first = home.handle().id();
        drop(home);
        other.block_on(async { runtimes.check_in() });
        assert_eq!(work.starts(), [first, other.handle().id()]);
        assert_eq!(runtimes.moves(), 1);
    }

    /// No further call is needed: a holder may do its work without one.
    #[test]
    fn work_moves_to_a_known_runtime_when_the_home_ends_or_stands_still() {
        for is_dropped in [true, false] {
            let (runtimes, work) = work();
            let (home, other) = (runtime(), runtime());
            home.block_on(async { runtimes.check_in() });
            let first = home.handle().id();
            let still = (!is_dropped).then_some(home);
            other.block_on(async {
                runtimes.check_in();
                let deadline = Instant::now() + SOON;
                while runtimes.moves() == 0 {
                    assert!(Instant::now() < deadline, "the work has not moved");
                    tokio::time::sleep(BEAT).await;
                }
            });
            assert_eq!(work.starts(), [first, other.handle().id()]);
            drop(still);
        }
    }

    /// A process that was stopped as a whole, or has no processor, would otherwise move its work to and
    /// fro, and break its connections each time.
    #[test]
    fn a_steward_that_was_late_itself_does_not_judge_the_home() {
        let (runtimes, work) = work();
        let (home, other) = (runtime(), runtime());
        home.block_on(async { runtimes.check_in() });
        other.block_on(async { runtimes.check_in() });
        let members = runtimes.state.lock().members.clone();
        let [first, second] = &*members else { panic!("there are two") };
        let long_ago = Instant::now().checked_sub(10 * LATE).unwrap();
        for member in &members {
            *member.life.lock() = Life { last_sign: long_ago, beats_on_time: 100 };
        }
        runtimes.look_after_home(second);
        assert_eq!(work.starts().len(), 1, "both were late");
        second.life.lock().beats_on_time = BEATS_ON_TIME;
        runtimes.look_after_home(second);
        assert_eq!(work.starts(), [first.id, second.id]);
    }

    #[test]
    fn stewards_end_with_the_manager() {
        let (runtimes, _work) = work();
        let (home, other) = (runtime(), runtime());
        home.block_on(async { runtimes.check_in() });
        other.block_on(async { runtimes.check_in() });
        drop(runtimes);
        for runtime in [home, other] {
            runtime.block_on(async {
                let deadline = Instant::now() + SOON;
                while Handle::current().metrics().num_alive_tasks() > 0 {
                    assert!(Instant::now() < deadline, "a steward is left");
                    tokio::task::yield_now().await;
                }
            });
        }
    }
}
