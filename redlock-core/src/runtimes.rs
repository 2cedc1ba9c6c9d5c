//! Which runtime runs the background work of a manager.
//!
//! Connections, renewal and releases run in one runtime, the *home* of the manager: the first runtime
//! that used the manager. Their state belongs to the manager and not to their tasks, so that another runtime can go on
//! with them when the home ends, or when nobody drives it any more (a `current_thread` runtime outside
//! of `block_on`).
//!
//! Every runtime that uses the manager is a member. As soon as there are two, each has a steward: a task
//! that shows a sign of life every [`BEAT`]. When the home has ended, or has shown no sign of life for
//! [`LATE`] while this member's steward has shown [`BEATS`] of them, the work moves to this member. A
//! process that is stopped or throttled as a whole moves nothing: the signs of all members stay away.

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
/// How many signs of life a steward has to give in this time. In a process that was held up as a whole,
/// no steward gives that many before the home gives one.
const BEATS: u32 = 5;

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
    /// Held while the work moves, so that two moves cannot cross each other.
    moving: Mutex<()>,
    /// How often the work has moved.
    moves: AtomicU64,
    /// Wakes the stewards.
    news: Arc<Notify>,
}

#[derive(Default)]
struct State {
    members: Vec<Arc<Member>>,
    services: Vec<Weak<dyn Service>>,
    /// Changes together with the home.
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
    /// How many signs there were.
    signs: u64,
}

impl Runtimes {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            home: ArcSwapOption::empty(),
            state: Mutex::default(),
            moving: Mutex::default(),
            moves: AtomicU64::new(0),
            news: Arc::default(),
        })
    }

    /// Adds work, which starts in the home as soon as there is one.
    pub(crate) fn serve<S: Service + 'static>(&self, service: &Arc<S>) {
        let _moving = self.moving.lock();
        let weak: Weak<S> = Arc::downgrade(service);
        self.state.lock().services.push(weak);
        if let Some((home, tenure)) = self.home() {
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
        let member = self.member(current);
        // A guard may be dropped in a runtime that is just ending.
        if !member.is_gone() {
            self.move_if(Member::is_gone, &member);
        }
    }

    /// The member that a runtime is, from now on.
    fn member(self: &Arc<Self>, current: Handle) -> Arc<Member> {
        let mut state = self.state.lock();
        state.members.retain(|member| !member.is_gone());
        let known = state.members.iter().find(|member| member.id == current.id());
        if let Some(member) = known {
            return Arc::clone(member);
        }
        let member = Arc::new(Member::new(current));
        state.members.push(Arc::clone(&member));
        if let [first, _] = &*state.members {
            // A steward that is alone shows no signs of life.
            first.begin();
        }
        drop(state);
        member.handle.spawn(attend(Arc::downgrade(self), Arc::clone(&member)));
        self.news.notify_waiters();
        member
    }

    /// Moves the work to a member if there is no home, or one that is to be left.
    fn move_if(&self, is_left: impl FnOnce(&Member) -> bool, member: &Arc<Member>) {
        let _moving = self.moving.lock();
        let before = self.home.load_full();
        if before.as_ref().is_some_and(|home| Arc::ptr_eq(home, member) || !is_left(home)) {
            return;
        }
        let mut state = self.state.lock();
        std::mem::take(&mut state.tenure).cancel();
        let tenure = state.tenure.clone();
        self.home.store(Some(Arc::clone(member)));
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

    /// The runtime that does the background work, and the token that is cancelled when the work moves;
    /// `None` where no runtime has used the manager.
    pub(crate) fn home(&self) -> Option<(Handle, CancellationToken)> {
        let state = self.state.lock();
        let home = self.home.load();
        home.as_ref().map(|home| (home.handle.clone(), state.tenure.clone()))
    }

    /// How often the work has moved to another runtime.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    /// Waits until every service has started where it has moved to. That takes no longer than a few
    /// calls of `spawn`.
    pub(crate) fn finish_move(&self) {
        drop(self.moving.lock());
    }

    /// Returns how many members are left.
    fn members(&self) -> usize {
        let mut state = self.state.lock();
        state.members.retain(|member| !member.is_gone());
        state.members.len()
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
        let life = Mutex::new(Life { last_sign: Instant::now(), signs: 0 });
        Self { id: handle.id(), handle, gone: AtomicBool::new(false), life }
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Begins to expect signs of life.
    fn begin(&self) {
        self.life.lock().last_sign = Instant::now();
    }

    /// Shows a sign of life.
    fn beat(&self) {
        let mut life = self.life.lock();
        life.last_sign = Instant::now();
        life.signs += 1;
    }
}

/// A steward's view of the home.
#[derive(Default)]
struct Watch {
    /// How many signs of life the home had shown when its steward looked last.
    signs: u64,
    /// How often the steward has looked since the last of them.
    looks: u32,
}

impl Watch {
    /// Looks at the home. Returns whether it stands still.
    fn stands_still(&mut self, home: &Member) -> bool {
        let life = home.life.lock();
        if life.signs != self.signs {
            *self = Self { signs: life.signs, looks: 0 };
        }
        self.looks = self.looks.saturating_add(1);
        self.looks > BEATS && life.last_sign.elapsed() > LATE
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
        let mut watch = Watch::default();
        loop {
            let heard = news.notified();
            tokio::pin!(heard);
            heard.as_mut().enable();
            member.beat();
            let Some(members) = runtimes.upgrade().map(|runtimes| {
                runtimes.move_if(|home| home.is_gone() || watch.stands_still(home), &member);
                runtimes.members()
            }) else {
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
    fn a_steward_judges_the_home_by_several_looks() {
        let home = Member::new(runtime().handle().clone());
        let mut watch = Watch::default();
        let long_ago = Instant::now().checked_sub(10 * LATE).unwrap();
        let stopped = || home.life.lock().last_sign = long_ago;
        stopped();
        for _ in 0..BEATS {
            assert!(!watch.stands_still(&home), "the process was stopped");
        }
        assert!(watch.stands_still(&home));
        home.beat();
        assert!(!watch.stands_still(&home), "it shows signs of life");
        for _ in 0..10 * BEATS {
            assert!(!watch.stands_still(&home), "not for long enough");
        }
        stopped();
        assert!(watch.stands_still(&home));
    }

    /// The work would otherwise start last where it moved first, and be cancelled there.
    #[test]
    fn two_moves_do_not_cross_each_other() {
        struct Slow {
            starts: Mutex<Vec<(Id, CancellationToken)>>,
            /// Holds up the start of the first move.
            gate: Mutex<Option<std::sync::mpsc::Receiver<()>>>,
        }

        impl Service for Slow {
            fn start(&self, runtime: &Handle, tenure: &CancellationToken) {
                let gate = self.gate.lock().take();
                if let Some(gate) = gate {
                    gate.recv().unwrap();
                }
                self.starts.lock().push((runtime.id(), tenure.clone()));
            }
        }

        let (open, gate) = std::sync::mpsc::channel();
        let runtimes = Runtimes::new();
        let slow = Arc::new(Slow { starts: Mutex::default(), gate: Mutex::default() });
        runtimes.serve(&slow);
        let [first, second, third] = [runtime(), runtime(), runtime()];
        first.block_on(async { runtimes.check_in() });
        *slow.gate.lock() = Some(gate);
        drop(first);
        std::thread::scope(|scope| {
            let (runtimes, slow, next) = (&runtimes, &slow, third.handle().clone());
            let handle = second.handle().clone();
            let moving = scope.spawn(move || {
                let _entered = handle.enter();
                runtimes.check_in();
            });
            while slow.gate.lock().is_some() {
                std::thread::yield_now();
            }
            // The second runtime ends while the work still moves to it.
            drop(second);
            let moving_on = scope.spawn(move || {
                let _entered = next.enter();
                runtimes.check_in();
            });
            // Long enough for the third one to be faster, if it did not wait.
            std::thread::sleep(2 * BEAT);
            open.send(()).unwrap();
            moving.join().unwrap();
            moving_on.join().unwrap();
        });
        let starts = slow.starts.lock();
        let (last, tenure) = starts.last().unwrap();
        assert_eq!(*last, third.handle().id());
        assert!(!tenure.is_cancelled());
        assert!(starts[..starts.len() - 1].iter().all(|(_, tenure)| tenure.is_cancelled()));
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
