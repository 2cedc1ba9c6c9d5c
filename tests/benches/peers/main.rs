//! This library beside the bare wire and beside rslock, on real servers of its own.
//!
//!     cargo bench -p redlock-tests --bench peers                          all rows, about five minutes
//!     cargo bench -p redlock-tests --bench peers -- one-node five-nodes   some of them
//!
//! `PEERS_ROUNDS` (21) and `PEERS_SLICE_MS` (100) make it shorter or longer.
//!
//! Prints one Markdown table. Whoever is compared runs in the same process and runtime, over the same
//! redis crate, in turns within each round; a ratio is that of one round, and what is shown is the
//! median of the rounds with the smallest and the largest.

#![allow(clippy::cast_precision_loss, reason = "figures to look at")]
#![allow(clippy::expect_used, reason = "a bench that cannot go on has to stop")]

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
        "{} rounds, {:?} for each measurement; the median of the rounds (least-most).\n",
        settings.rounds, settings.slice
    );
    table::print_head();
    own_keys::measure(&settings).await;
    degraded::measure(&settings).await;
    hot_key::measure(&settings).await;
    processes::measure(&settings).await;
    held::measure(&settings).await;
    println!(
        "\nWhere there is one caller, it and the servers have cores of their own, as they have in real life; \
         otherwise they share them."
    );
    println!(
        "\nNot shown: a network with losses, servers on machines of their own (clients and servers \
         share the cores), TLS, persistence, more than five nodes, clusters."
    );
}
