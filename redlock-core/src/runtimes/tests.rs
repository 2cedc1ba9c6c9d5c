use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Id, Runtime};

use super::heartbeat::{HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, HomeMonitor, MIN_OWN_HEARTBEATS};
use super::*;

const SOON: Duration = Duration::from_secs(20);

/// Records the runtimes in which the work was started, each with the token that cancels it there.
#[derive(Default)]
struct Work(Mutex<Vec<(Id, CancellationToken)>>);

impl BackgroundService for Work {
    fn start(&self, runtime: &Handle, stop: &CancellationToken) {
        self.0.lock().push((runtime.id(), stop.clone()));
    }
}

impl Work {
    /// Returns the runtimes in which the work was started. Asserts that only the last one may run
    /// the work.
    fn starts(&self) -> Vec<Id> {
        let starts = self.0.lock();
        for (index, (_, stop)) in starts.iter().enumerate() {
            assert_eq!(stop.is_cancelled(), index + 1 < starts.len());
        }
        starts.iter().map(|(id, _)| *id).collect()
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn work() -> (Arc<Runtimes>, Arc<Work>) {
    let (runtimes, work) = (Runtimes::new(), Arc::new(Work::default()));
    runtimes.add_service(&work);
    (runtimes, work)
}

#[test]
fn work_starts_in_the_first_runtime_and_stays_there() {
    let (runtimes, work) = work();
    runtimes.register_current();
    assert!(work.starts().is_empty(), "there is no runtime here");
    let (home, other) = (runtime(), runtime());
    home.block_on(async { runtimes.register_current() });
    other.block_on(async { runtimes.register_current() });
    home.block_on(async { runtimes.register_current() });
    assert_eq!(work.starts(), [home.handle().id()]);
    let late = Arc::new(Work::default());
    runtimes.add_service(&late);
    assert_eq!(
        late.starts(),
        [home.handle().id()],
        "a service that is added later starts there too"
    );
    assert_eq!(runtimes.moves(), 0);
}

#[test]
fn work_moves_to_the_runtime_of_the_next_caller_when_the_home_has_ended() {
    let (runtimes, work) = work();
    let (home, other) = (runtime(), runtime());
    home.block_on(async { runtimes.register_current() });
    let first = home.handle().id();
    drop(home);
    other.block_on(async { runtimes.register_current() });
    assert_eq!(work.starts(), [first, other.handle().id()]);
    assert_eq!(runtimes.moves(), 1);
}

/// The work moves without a further call, because a holder may work for long without one.
#[test]
fn work_moves_to_a_known_runtime_when_the_home_ends_or_stands_still() {
    for is_dropped in [true, false] {
        let (runtimes, work) = work();
        let (home, other) = (runtime(), runtime());
        home.block_on(async { runtimes.register_current() });
        let first = home.handle().id();
        let still = (!is_dropped).then_some(home);
        other.block_on(async {
            runtimes.register_current();
            let deadline = Instant::now() + SOON;
            while runtimes.moves() == 0 {
                assert!(Instant::now() < deadline, "the work has not moved");
                tokio::time::sleep(HEARTBEAT_INTERVAL).await;
            }
        });
        assert_eq!(work.starts(), [first, other.handle().id()]);
        drop(still);
    }
}

/// After a single look, a process that was stopped as a whole, or that gets no CPU time, would move
/// its work to and fro, and break its connections each time.
#[test]
fn a_member_checks_the_home_several_times_before_the_work_moves() {
    let home = Member::new(runtime().handle().clone());
    let mut monitor = HomeMonitor::default();
    let long_ago = Instant::now().checked_sub(10 * HEARTBEAT_TIMEOUT).unwrap();
    let stopped = || home.heartbeats.lock().last = long_ago;
    stopped();
    for _ in 0..MIN_OWN_HEARTBEATS {
        assert!(!monitor.has_stalled(&home), "the whole process may have been stopped");
    }
    assert!(monitor.has_stalled(&home));
    home.beat();
    assert!(!monitor.has_stalled(&home), "the home has emitted a heartbeat");
    for _ in 0..10 * MIN_OWN_HEARTBEATS {
        assert!(!monitor.has_stalled(&home), "the last heartbeat is too recent");
    }
    stopped();
    assert!(monitor.has_stalled(&home));
}

/// If two moves overlapped, the first one could start its work last, in the wrong runtime, where it
/// would be cancelled.
#[test]
fn two_moves_run_one_after_the_other() {
    struct Slow {
        starts: Mutex<Vec<(Id, CancellationToken)>>,
        /// Delays the start of the first move.
        gate: Mutex<Option<std::sync::mpsc::Receiver<()>>>,
    }

    impl BackgroundService for Slow {
        fn start(&self, runtime: &Handle, stop: &CancellationToken) {
            let gate = self.gate.lock().take();
            if let Some(gate) = gate {
                gate.recv().unwrap();
            }
            self.starts.lock().push((runtime.id(), stop.clone()));
        }
    }

    let (open, gate) = std::sync::mpsc::channel();
    let runtimes = Runtimes::new();
    let slow = Arc::new(Slow { starts: Mutex::default(), gate: Mutex::default() });
    runtimes.add_service(&slow);
    let [first, second, third] = [runtime(), runtime(), runtime()];
    first.block_on(async { runtimes.register_current() });
    *slow.gate.lock() = Some(gate);
    drop(first);
    std::thread::scope(|scope| {
        let (runtimes, slow, next) = (&runtimes, &slow, third.handle().clone());
        let handle = second.handle().clone();
        let moving = scope.spawn(move || {
            let _entered = handle.enter();
            runtimes.register_current();
        });
        while slow.gate.lock().is_some() {
            std::thread::yield_now();
        }
        // The second runtime ends while the work still moves to it.
        drop(second);
        let moving_on = scope.spawn(move || {
            let _entered = next.enter();
            runtimes.register_current();
        });
        // If the second move did not wait, it would overtake the first one in this time.
        std::thread::sleep(2 * HEARTBEAT_INTERVAL);
        open.send(()).unwrap();
        moving.join().unwrap();
        moving_on.join().unwrap();
    });
    let starts = slow.starts.lock();
    let (last, stop) = starts.last().unwrap();
    assert_eq!(*last, third.handle().id());
    assert!(!stop.is_cancelled());
    assert!(starts[..starts.len() - 1].iter().all(|(_, stop)| stop.is_cancelled()));
}

#[test]
fn heartbeat_tasks_end_with_the_manager() {
    let (runtimes, _work) = work();
    let (home, other) = (runtime(), runtime());
    home.block_on(async { runtimes.register_current() });
    other.block_on(async { runtimes.register_current() });
    drop(runtimes);
    for runtime in [home, other] {
        runtime.block_on(async {
            let deadline = Instant::now() + SOON;
            while Handle::current().metrics().num_alive_tasks() > 0 {
                assert!(Instant::now() < deadline, "a heartbeat task is left");
                tokio::task::yield_now().await;
            }
        });
    }
}
