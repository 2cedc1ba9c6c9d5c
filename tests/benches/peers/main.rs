//! Compares this library with two floors and with rslock. Starts its own servers.
//!
//! ```text
//! cargo bench -p redlock-tests --bench peers                           all rows, about six minutes
//! cargo bench -p redlock-tests --bench peers -- one-node five-nodes    only these rows
//! ```
//!
//! The two [floors](floor) are the commands of a lock, sent with the redis crate alone: **plain**, as the
//! redis crate comes, and **batched**, over a stream that writes the commands of many callers together.
//!
//! | rows | work |
//! |---|---|
//! | `one-node`, `five-nodes` | one caller |
//! | `one-node-8`, `one-node-64`, `one-node-256`, `five-nodes-64` | callers with keys of their own |
//! | `one-node-delayed` | 64 callers, and a server 1 ms away |
//! | `one-node-shared-cores` | 8 and 64 callers, and a server that has no core of its own |
//! | `one-node-tls` | 64 callers over TLS |
//! | `one-node-current-thread` | 64 callers in a current-thread runtime |
//! | `modes`, `modes-five-nodes` | one reader, holder of a permit, or fair caller |
//! | `ten-keys`, `ten-keys-five-nodes` | one caller that locks ten keys at once |
//! | `one-frozen`, `one-frozen-cold`, `one-far-away` | five nodes, one of which is frozen, frozen before the start, or far away |
//! | `hot-key`, `hot-key-work` | 64 callers that contend for one key |
//! | `hot-key-fair`, `hot-key-readers` | 64 fair callers, and 64 readers |
//! | `hot-key-processes` | eight processes that contend for one key |
//! | `try-held` | attempts on a held key |
//! | `connections`, `renewed`, `distinct` | memory of connections, of held locks, of many keys |
//!
//! Prints one Markdown table. The compared libraries run in the same process and runtime, over the same redis
//! crate. Each round measures all of them, one after another. A ratio compares figures of the same round. A
//! cell shows the median over the rounds, with the smallest and the largest figure. `renewed` and `distinct`
//! are measured once.
//!
//! `PEERS_ROUNDS` (21, at least 15) sets the number of rounds, `PEERS_SLICE_MS` (100) the duration of a
//! measurement. Slow rows have 15 rounds.

#![allow(clippy::cast_precision_loss, reason = "figures for a reader")]
#![allow(clippy::expect_used, reason = "a benchmark that cannot continue must stop")]

mod batching;
mod child;
mod comparison;
mod cores;
mod delay;
mod floor;
mod load;
mod locker;
mod machine;
mod ours;
mod round_trip;
mod rounds;
mod rows;
mod settings;
mod statistics;
mod table;
mod theirs;
mod usage;

use rows::{
    connections, degraded, held, hot_key, modes, own_keys, processes, several_keys, surroundings,
};
use settings::Settings;

fn main() {
    match child::role().as_deref() {
        None => runtime().block_on(measure()),
        Some("delay") => delay::run(),
        Some("tls") => runtime().block_on(surroundings::run_tls()),
        Some("turns") => runtime().block_on(processes::run()),
        Some("connections") => runtime().block_on(connections::run()),
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
    println!("{}.\n{}.", machine::describe(), round_trip::describe().await);
    println!(
        "{} rounds, {:?} for each measurement. Figures: median of the rounds (smallest-largest).\n",
        settings.rounds, settings.slice
    );
    table::print_head();
    own_keys::one_node(&settings).await;
    surroundings::measure(&settings);
    own_keys::five_nodes(&settings).await;
    modes::measure(&settings).await;
    several_keys::measure(&settings).await;
    degraded::measure(&settings).await;
    hot_key::measure(&settings).await;
    processes::measure(&settings).await;
    held::measure(&settings).await;
    connections::measure(&settings).await;
    println!(
        "\nIn the rows with keys of their own on one node, and in those of one caller with five healthy \
         nodes, the callers and the servers are pinned to different cores, as on machines of their own. In \
         the other rows, and where the row says so, they share all cores."
    );
    println!(
        "\nNot measured: packet loss, servers on other machines, \
         persistence, more than five nodes, clusters."
    );
}
