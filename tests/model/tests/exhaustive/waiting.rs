//! Waiting, by the library's own machine and line.

use std::time::Duration;
use std::{env, fs};

use redlock_model::waiting::{Claim, Rule, World, holds, needs, table};

const WRITER: bool = false;
const READER: bool = true;

const WRITERS: World =
    World { name: "three writers", readers: &[WRITER, WRITER, WRITER], ..World::CALM };
const TWO: World = World { name: "two writers", readers: &[WRITER, WRITER], ..World::CALM };
const BOTH: World =
    World { name: "readers and a writer", readers: &[READER, WRITER, READER], ..World::CALM };

#[test]
fn writers_wait_in_order() {
    holds(World { drops: 1, ..WRITERS });
    holds(World { name: "two writers and another process", drops: 1, others: 2, ..TWO });
    needs(WRITERS, Rule::Wake, Claim::NobodySleepsForEver);
    needs(WRITERS, Rule::KeepOrder, Claim::OrderIsKept);
    needs(WRITERS, Rule::EndBeforeHandOver, Claim::OneHolder);
    needs(World { drops: 1, ..WRITERS }, Rule::Leave, Claim::NoPlaceStays);
}

#[test]
fn readers_go_together_and_do_not_overtake_a_writer() {
    holds(World { drops: 1, ..BOTH });
    needs(BOTH, Rule::Queue, Claim::OrderIsKept);
}

#[test]
fn readers_join_the_lock_of_another_one() {
    let ends_after = Duration::from_millis(45);
    let trio = World { readers: &[READER, READER, READER], joins: true, ..World::CALM };
    let mixed = World { readers: &[READER, WRITER, READER], ends_after, ..trio };
    holds(World { name: "three readers that join", drops: 1, ..trio });
    holds(World { name: "readers that join, and a writer", drops: 1, ..mixed });
    holds(World { name: "a reader with a longer lease", long: Some(2), drops: 1, ..trio });
    let two = World { readers: &[READER, READER], ..trio };
    holds(World { name: "two readers that join, and another process", others: 1, drops: 1, ..two });
    holds(World {
        name: "two readers that join, an outage and a loss",
        outages: 1,
        losses: 1,
        ..two
    });
    holds(World { name: "two readers that join, and a shutdown", shutdowns: 1, drops: 1, ..two });
    needs(two, Rule::CountHolders, Claim::NoGuardOutlivesItsLock);
}

#[test]
fn an_outage_has_one_grace() {
    let outage = World { name: "an outage", outages: 1, others: 1, ..TWO };
    holds(outage);
    holds(World {
        name: "an outage, and a caller that waits for ever",
        endless: Some(1),
        ..outage
    });
    needs(outage, Rule::ShareTheOutage, Claim::OneGrace);
    let ends_after = Duration::from_millis(5);
    let again = World { name: "callers that come again", agains: 3, outages: 1, ends_after, ..TWO };
    holds(again);
    let name = "callers that come again, and one that waits for ever";
    let endless = World { name, endless: Some(0), ..again };
    holds(endless);
    needs(endless, Rule::EndTheOutage, Claim::NobodyIsOvertakenForEver);
}

#[test]
fn waiters_bear_losses_and_split_votes() {
    let pair = World { readers: &[READER, WRITER], others: 1, ..World::CALM };
    holds(World { name: "a loss", losses: 1, ..pair });
    holds(World { name: "a loss before the lock is taken", losses: 1, ..WRITERS });
    holds(World {
        name: "a loss before the lock is taken, and a reader",
        readers: &[WRITER, WRITER, READER],
        losses: 1,
        ..World::CALM
    });
    holds(World {
        name: "a loss before the lock is taken, and a reader that wants a turn",
        readers: &[WRITER, WRITER, READER],
        losses: 1,
        others: 3,
        ends_after: Duration::from_millis(10),
        ..World::CALM
    });
    holds(World {
        name: "a loss before the lock is taken, and two readers",
        readers: &[WRITER, WRITER, READER, READER],
        losses: 1,
        ends_after: Duration::from_millis(10),
        ..World::CALM
    });
    let ends_after = Duration::from_millis(110);
    holds(World { name: "a loss in an outage", losses: 1, outages: 1, ends_after, ..WRITERS });
    holds(World { name: "split votes", nodes: 3, splits: 1, ..pair });
}

#[test]
fn a_shutdown_and_a_waiting_time_end_all_waits() {
    let wait_time = Some(Duration::from_millis(100));
    holds(World { name: "a waiting time", wait_time, others: 1, ..TWO });
    holds(World { name: "a shutdown", shutdowns: 1, others: 1, ..TWO });
}

/// Set `REDLOCK_BLESS` to write the table.
#[test]
fn the_table_of_the_architecture_is_that_of_the_machine() {
    const BEGIN: &str = "<!-- the table of tests/model -->\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");
    let text = fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the mark of the table");
    let (present, after) = rest.split_at(rest.find("\n\n").map_or(rest.len(), |end| end + 1));
    let table = table();
    if env::var_os("REDLOCK_BLESS").is_some() {
        fs::write(path, format!("{before}{BEGIN}{table}{after}")).unwrap();
    } else {
        assert_eq!(present, table, "REDLOCK_BLESS=1 writes it");
    }
}
