//! Many callers of one process that contend for one key.

use std::time::Duration;

use redlock_tests::Servers;

use crate::comparison::Side::{Other, Ours, Plain, Rslock};
use crate::comparison::Target::{AtLeast, Limit};
use crate::comparison::{Side, compare};
use crate::floor::Floor;
use crate::load::{Measured, Task, contender};
use crate::lockers::{self, Change, Local, Theirs};
use crate::settings::{LEAST_ROUNDS, Settings};
use crate::usage::Meter;

const CALLERS: usize = 64;
const MUTEX: Side = Other("a tokio mutex");
const EXCLUSIVE: Side = Other("exclusive callers");

pub(crate) async fn measure(settings: &Settings) {
    let servers = Servers::start(1).await;
    let urls = servers.urls();
    let meter = Meter::over(&servers).await;
    let (ours, theirs) = (lockers::Ours::connect(&urls).await, Theirs::new(&urls));
    let task = Task::HotKey(CALLERS, 20, Duration::ZERO);
    if settings.wants("hot-key") {
        // rslock is so slow here that more turns would take minutes.
        let few = Task::HotKey(CALLERS, 4, Duration::ZERO);
        let sides = vec![
            (Plain, contender(&Floor::plain(&urls).await, task, &meter)),
            (Ours, contender(&ours, task, &meter)),
            (Rslock, contender(&theirs, few, &meter)),
        ];
        let work = format!(
            "hot key, {CALLERS} callers, no work inside, changes of holder/s (floor: plain commands behind a local \
             mutex)"
        );
        let compared = compare(LEAST_ROUNDS, sides).await;
        compared.print(work, Measured::changes_per_second, &[], &[AtLeast(100.0, Rslock)]);
    }
    if settings.wants("hot-key-work") {
        let task = Task::HotKey(CALLERS, 3, Duration::from_millis(3));
        let sides = vec![
            (MUTEX, contender(&Local::default(), task, &meter)),
            (Ours, contender(&ours, task, &meter)),
            (Rslock, contender(&theirs, task, &meter)),
        ];
        let compared = compare(LEAST_ROUNDS, sides).await;
        let longest = compared.summary(Ours, Measured::longest);
        let commands = compared.summary(Ours, Measured::commands_per_turn);
        let notes = [
            compared.beside(MUTEX, Measured::per_second),
            format!("longest/mean wait {longest}; {commands} commands per turn"),
        ];
        let targets = [
            AtLeast(0.97, MUTEX),
            Limit("longest/mean wait", Measured::longest, 1.5),
            Limit("commands per turn", Measured::commands_per_turn, 0.5),
        ];
        let work = format!("hot key, {CALLERS} callers, 3 ms of work inside, turns/s");
        compared.print(work, Measured::per_second, &notes, &targets);
    }
    let modes: [(_, _, Change); 2] = [
        ("hot-key-fair", "fair callers", |request| request.fair(true)),
        ("hot-key-readers", "readers", |request| request.shared(true)),
    ];
    for (_, callers, mode) in modes.into_iter().filter(|(name, ..)| settings.wants(name)) {
        let sides = vec![
            (EXCLUSIVE, contender(&ours, task, &meter)),
            (Ours, contender(&ours.with(mode), task, &meter)),
        ];
        let compared = compare(LEAST_ROUNDS, sides).await;
        let [commands, exclusive] =
            [Ours, EXCLUSIVE].map(|side| compared.summary(side, Measured::commands_per_turn));
        let notes = [
            compared.beside(EXCLUSIVE, Measured::per_second),
            format!("{commands} commands per turn, exclusive {exclusive}"),
        ];
        let work = format!("hot key, {CALLERS} {callers}, no work inside, turns/s");
        compared.print(work, Measured::per_second, &notes, &[]);
    }
}
