//! Many callers of one process that contend for one key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;
use redlock_core::LockRequest;
use redlock_tests::Servers;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::comparison::{Comparison, Costs, Side, compare};
use crate::floor::Floor;
use crate::locker::Locker;
use crate::ours::{Ours, With};
use crate::rounds::Contender;
use crate::settings::{LEAST_ROUNDS, Settings};
use crate::theirs::Theirs;
use crate::usage::{Meter, Usage};

const CALLERS: usize = 64;
const WORK: Duration = Duration::from_millis(3);

/// The work under the lock of one key.
#[derive(Debug, Clone, Copy)]
struct Task {
    /// How often each caller acquires the lock.
    turns: usize,
    /// How long a caller holds the lock.
    work: Duration,
}

/// The result of one measurement.
struct Turns {
    taken: usize,
    elapsed: Duration,
    /// How often the key went to another caller.
    changes: usize,
    waits: Vec<Duration>,
    usage: Usage,
}

impl Turns {
    fn per_second(&self) -> f64 {
        self.taken as f64 / self.elapsed.as_secs_f64()
    }

    fn changes_per_second(&self) -> f64 {
        self.changes as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the longest wait as a multiple of the mean wait.
    fn longest(&self) -> f64 {
        let mean = self.waits.iter().sum::<Duration>().as_secs_f64() / self.waits.len() as f64;
        self.waits.iter().max().map_or(0.0, |longest| longest.as_secs_f64() / mean)
    }

    fn commands_per_turn(&self) -> f64 {
        self.usage.commands as f64 / self.taken as f64
    }
}

/// The costs of a change of holder.
impl Costs for Turns {
    fn usage(&self) -> Usage {
        self.usage
    }

    fn count(&self) -> usize {
        self.changes
    }

    /// A caller that fails ends the benchmark.
    fn failures(&self) -> usize {
        0
    }
}

/// A local mutex, to compare the queue with.
#[derive(Clone, Default)]
struct Local(Arc<Mutex<()>>);

impl Locker for Local {
    type Held = OwnedMutexGuard<()>;

    async fn lock(&self, _: &str) -> Result<Self::Held, String> {
        Ok(Arc::clone(&self.0).lock_owned().await)
    }

    async fn wait(&self, key: &str) -> Result<Self::Held, String> {
        self.lock(key).await
    }

    async fn unlock(&self, _: &str, _: Self::Held) -> Result<(), String> {
        Ok(())
    }
}

pub(crate) async fn measure(settings: &Settings) {
    if !settings.wants_any(&["hot-key", "hot-key-work", "hot-key-fair", "hot-key-readers"]) {
        return;
    }
    let servers = Servers::start(1).await;
    let urls = servers.urls();
    if settings.wants("hot-key") {
        let floor = (Side::Plain, Floor::plain(&urls).await);
        let task = Task { turns: 20, work: Duration::ZERO };
        // rslock is so slow here that more turns would take minutes.
        let few = Task { turns: 4, ..task };
        let compared = sides(&servers, floor, [task, task, few]).await;
        let work = format!(
            "hot key, {CALLERS} callers, no work inside, changes of holder/s (floor: plain commands behind a \
             local mutex)"
        );
        let row = compared.row(work, Turns::changes_per_second);
        row.at_least(100.0, Side::Rslock).print();
    }
    if settings.wants("hot-key-work") {
        let mutex = (Side::Reference, Local::default());
        let compared = sides(&servers, mutex, [Task { turns: 3, work: WORK }; 3]).await;
        let work = format!("hot key, {CALLERS} callers, 3 ms of work inside, turns/s");
        let to_mutex = compared.ours_to(Side::Reference, Turns::per_second);
        let mutex = compared.summary(Side::Reference, Turns::per_second);
        let longest = compared.summary(Side::Ours, Turns::longest);
        let commands = compared.summary(Side::Ours, Turns::commands_per_turn);
        let mut row = compared.row(work, Turns::per_second);
        row.add_to_ours(format!(
            "{to_mutex} of a tokio mutex: {mutex}; longest/mean wait {longest}; {commands} commands per turn"
        ));
        row.target(">= 0.97x mutex", to_mutex.median >= 0.97)
            .limit("longest/mean wait", longest.median, 1.5)
            .limit("commands per turn", commands.median, 0.5)
            .print();
    }
    if settings.wants("hot-key-fair") {
        beside_exclusive(&servers, "fair callers", LockRequest::fair).await;
    }
    if settings.wants("hot-key-readers") {
        beside_exclusive(&servers, "readers", LockRequest::shared).await;
    }
}

/// Measures callers in another mode beside exclusive callers.
async fn beside_exclusive(servers: &Servers, callers: &str, mode: fn(LockRequest) -> LockRequest) {
    let meter = Meter::over(servers).await;
    let exclusive = Ours::connect(&servers.urls()).await;
    let others = With(exclusive.0.clone(), mode);
    let task = Task { turns: 20, work: Duration::ZERO };
    let sides = vec![
        (Side::Reference, contender(&exclusive, task, &meter)),
        (Side::Ours, contender(&others, task, &meter)),
    ];
    let compared = compare(LEAST_ROUNDS, sides).await;
    exclusive.0.shutdown().await;
    let to_exclusive = compared.ours_to(Side::Reference, Turns::per_second);
    let commands = compared.summary(Side::Ours, Turns::commands_per_turn);
    let exclusive = compared.summary(Side::Reference, Turns::commands_per_turn);
    let mut row = compared
        .row(format!("hot key, {CALLERS} {callers}, no work inside, turns/s"), Turns::per_second);
    row.add_to_ours(format!(
        "{to_exclusive} of exclusive callers; {commands} commands per turn, exclusive {exclusive}"
    ));
    row.print();
}

/// Measures a base, ours and rslock. Each has a task of its own.
async fn sides(
    servers: &Servers,
    (base, locker): (Side, impl Locker),
    [of_base, of_ours, of_rslock]: [Task; 3],
) -> Comparison<Turns> {
    let urls = servers.urls();
    let meter = Meter::over(servers).await;
    let (ours, theirs) = (Ours::connect(&urls).await, Theirs::new(&urls));
    let sides = vec![
        (base, contender(&locker, of_base, &meter)),
        (Side::Ours, contender(&ours, of_ours, &meter)),
        (Side::Rslock, contender(&theirs, of_rslock, &meter)),
    ];
    let compared = compare(LEAST_ROUNDS, sides).await;
    ours.0.shutdown().await;
    compared
}

fn contender<'a>(locker: &impl Locker, task: Task, meter: &Meter) -> Contender<'a, Turns> {
    let (locker, meter) = (locker.clone(), meter.clone());
    Box::new(move || {
        let (locker, mut meter) = (locker.clone(), meter.clone());
        async move { take_turns(&locker, task, &mut meter).await }.boxed_local()
    })
}

async fn take_turns(locker: &impl Locker, task: Task, meter: &mut Meter) -> Turns {
    let owners = Arc::new(std::sync::Mutex::new(Vec::with_capacity(CALLERS * task.turns)));
    let begun_usage = meter.begin().await;
    let begun = Instant::now();
    let callers = (0..CALLERS).map(|caller| {
        let (locker, owners) = (locker.clone(), Arc::clone(&owners));
        tokio::spawn(async move {
            let mut waits = Vec::with_capacity(task.turns);
            for _ in 0..task.turns {
                let before = Instant::now();
                let held = locker.wait("hot").await.expect("a turn");
                waits.push(before.elapsed());
                owners.lock().expect("no caller panics while it holds the mutex").push(caller);
                if !task.work.is_zero() {
                    tokio::time::sleep(task.work).await;
                }
                // After a failed release, the library releases in the background.
                let _ = locker.unlock("hot", held).await;
            }
            waits
        })
    });
    let waits = join_all(callers).await;
    let elapsed = begun.elapsed();
    let usage = meter.end(begun_usage).await;
    let waits: Vec<Duration> =
        waits.into_iter().flat_map(|waits| waits.expect("a caller that does not panic")).collect();
    let owners = owners.lock().expect("no caller panics while it holds the mutex");
    let changes = owners.windows(2).filter(|pair| pair[0] != pair[1]).count();
    Turns { taken: owners.len(), elapsed, changes, waits, usage }
}
