//! Compares this library with plain commands of the redis crate (the floor) and with rslock. Starts its own
//! servers.
//!
//!     cargo bench -p redlock-tests --bench peers                          all rows, about five minutes
//!     cargo bench -p redlock-tests --bench peers -- one-node five-nodes   only these rows
//!
//! `PEERS_ROUNDS` (21) sets the number of rounds, `PEERS_SLICE_MS` (100) the duration of a measurement.
//!
//! Prints one Markdown table. The compared libraries run in the same process and runtime, over the same
//! redis crate. Each round measures all of them, one after another. A ratio compares figures of the same
//! round. A cell shows the median over the rounds, with the smallest and the largest figure.

#![allow(clippy::cast_precision_loss, reason = "figures for a reader")]
#![allow(clippy::expect_used, reason = "a benchmark that cannot continue must stop")]

mod child;
mod cores;
mod delay;
mod floor;
mod load;
mod locker;
mod machine;
mod ours;
mod rounds;
mod rows;
mod settings;
mod statistics;
mod table;
mod theirs;
mod usage;

use rows::{degraded, held, hot_key, own_keys, processes};
use settings::Settings;

fn main() {
    match child::role().as_deref() {
        None => runtime().block_on(measure()),
        Some("delay") => delay::run(),
        Some("turns") => runtime().block_on(processes::run()),
        Some("many-locks") => runtime().block_on(held::run()),
        Some(other) => panic!("no such role: {other}"),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime")
}

async fn measure() {
    let settings = Settings::read();
    println!("{}.", machine::describe());
    println!(
        "{} rounds, {:?} for each measurement. Figures: median of the rounds (smallest-largest).\n",
        settings.rounds, settings.slice
    );
    table::print_head();
    own_keys::measure(&settings).await;
    degraded::measure(&settings).await;
    hot_key::measure(&settings).await;
    processes::measure(&settings).await;
    held::measure(&settings).await;
    println!(
        "\nIn the rows \"1 caller, p50 us of acquire + release\", the caller and the servers are pinned to \
         different cores, as on different machines; in the other rows they share all cores."
    );
    println!(
        "\nNot measured: packet loss, servers on other machines (clients and servers share the cores), TLS, \
         persistence, more than five nodes, clusters."
    );
}
