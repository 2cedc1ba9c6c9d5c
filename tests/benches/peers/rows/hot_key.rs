//! Many callers of one process that contend for one key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;
use redlock_tests::Servers;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::floor::Floor;
use crate::locker::Locker;
use crate::ours::Ours;
use crate::rounds::{Contender, interleave};
use crate::settings::Settings;
use crate::statistics::{Summary, figure};
use crate::table::{Row, ratio};
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
    count: usize,
    elapsed: Duration,
    /// How often the key went to another caller.
    changes: usize,
    waits: Vec<Duration>,
    usage: Usage,
}

impl Turns {
    fn per_second(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64()
    }

    fn changes_per_second(&self) -> f64 {
        self.changes as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the longest wait as a multiple of the mean wait.
    fn longest(&self) -> f64 {
        let mean = self.waits.iter().sum::<Duration>().as_secs_f64() / self.waits.len() as f64;
        self.waits.iter().max().map_or(0.0, |longest| longest.as_secs_f64() / mean)
    }

    fn per_change(&self, used: f64) -> f64 {
        used / self.changes as f64
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
    let servers = Servers::start(1).await;
    let urls = servers.urls();
    if settings.wants("hot-key") {
        let floor = Floor::connect(&urls).await;
        let task = Task { turns: 20, work: Duration::ZERO };
        let all = compare(settings, &servers, &floor, task).await;
        let changes = |who: usize| Summary::of(all[who].iter().map(Turns::changes_per_second));
        let beside_rslock = ratio(&all[1], &all[2], Turns::changes_per_second);
        Row {
            work: format!(
                "hot key, {CALLERS} callers x {} turns, no work inside, changes of holder/s; \
                 ours / rslock: {beside_rslock} (floor: plain commands behind a local mutex)",
                task.turns
            ),
            floor: changes(0).to_string(),
            ours: changes(1).to_string(),
            ratio: ratio(&all[1], &all[0], Turns::changes_per_second).to_string(),
            rslock: changes(2).to_string(),
            rslock_ratio: ratio(&all[2], &all[0], Turns::changes_per_second).to_string(),
            target: ">= 100x rslock",
            met: beside_rslock.median >= 100.0,
            ..used_per_change(&all)
        }
        .print();
    }
    if settings.wants("hot-key-work") {
        let task = Task { turns: 5, work: WORK };
        let all = compare(settings, &servers, &Local::default(), task).await;
        let turns = |who: usize| Summary::of(all[who].iter().map(Turns::per_second));
        let longest = |who: usize| Summary::of(all[who].iter().map(Turns::longest));
        let ours = ratio(&all[1], &all[0], Turns::per_second);
        let commands = |turns: &Turns| turns.usage.commands as f64 / turns.count as f64;
        let per_turn = Summary::of(all[1].iter().map(commands));
        Row {
            work: format!(
                "hot key, {CALLERS} callers x {} turns, 3 ms of work inside, turns/s; commands per turn \
                 of ours: {per_turn} (floor: a tokio mutex around the same work)",
                task.turns
            ),
            floor: format!("{}; longest/mean wait {}", turns(0), longest(0)),
            ours: format!("{}; longest/mean wait {}", turns(1), longest(1)),
            ratio: ours.to_string(),
            rslock: format!("{}; longest/mean wait {}", turns(2), longest(2)),
            rslock_ratio: ratio(&all[2], &all[0], Turns::per_second).to_string(),
            target: ">= 0.97x mutex, longest wait <= 1.5x mean, <= 0.5 commands per turn",
            met: ours.median >= 0.97 && longest(1).median <= 1.5 && per_turn.median <= 0.5,
            ..used_per_change(&all)
        }
        .print();
    }
}

/// Fills in the processor time and the commands of each contender per change of holder.
fn used_per_change(all: &[Vec<Turns>]) -> Row {
    let each = |per_change: &dyn Fn(&Turns) -> f64| {
        let medians =
            all.iter().map(|rounds| figure(Summary::of(rounds.iter().map(per_change)).median));
        medians.collect::<Vec<_>>().join(", ")
    };
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    Row {
        client: each(&|turns| turns.per_change(micros(turns.usage.client))),
        servers: each(&|turns| turns.per_change(micros(turns.usage.servers))),
        commands: each(&|turns| turns.per_change(turns.usage.commands as f64)),
        ..Row::default()
    }
}

/// Measures the floor, ours and rslock in alternation.
async fn compare(
    settings: &Settings,
    servers: &Servers,
    floor: &impl Locker,
    task: Task,
) -> Vec<Vec<Turns>> {
    let urls = servers.urls();
    let meter = Meter::over(servers).await;
    let (ours, theirs) = (Ours::connect(&urls).await, Theirs::new(&urls));
    let contenders = vec![
        contender(floor, task, &meter),
        contender(&ours, task, &meter),
        contender(&theirs, task, &meter),
    ];
    let all = interleave(settings.rounds_up_to(7), contenders).await;
    ours.0.shutdown().await;
    all
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
    Turns { count: owners.len(), elapsed, changes, waits, usage }
}
