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

mod away;
mod batching;
mod child;
mod comparison;
mod cores;
mod floor;
mod load;
mod lockers;
mod machine;
mod rows;
mod settings;
mod statistics;
mod usage;

use rows::{beside, degraded, hot_key, memory, own_keys, processes};
use settings::Settings;

use std::process::ExitCode;

fn main() -> ExitCode {
    let role = child::role();
    if role.is_none() && own_keys::tls_files().is_none() {
        let ended = own_keys::run_with_tls_files();
        return ExitCode::from(u8::from(!ended.success()));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let Some((role, [side, url])) = role else { return measure().await };
        let urls = std::slice::from_ref(&url);
        match &*role {
            "proxy" => away::run(&side, &url).await,
            "turns" => processes::run(&side, urls).await,
            "renewed" => memory::renewed(urls).await,
            "distinct" => memory::distinct(urls).await,
            "connections" => memory::connections(&side, urls).await,
            other => panic!("no such role: {other}"),
        }
    });
    ExitCode::SUCCESS
}

async fn measure() {
    redlock_logs::do_not_watch();
    let settings = Settings::read();
    println!("{}.", machine::describe().await);
    println!(
        "{} rounds, {:?} for each measurement. Figures: median of the rounds (smallest-largest).\n",
        settings.rounds, settings.slice
    );
    comparison::print_head();
    own_keys::measure(&settings).await;
    beside::modes(&settings).await;
    beside::several_keys(&settings).await;
    degraded::measure(&settings).await;
    hot_key::measure(&settings).await;
    processes::measure(&settings).await;
    memory::measure(&settings).await;
    println!(
        "\nIn the rows with keys of their own on one node, and in those of one caller with five healthy \
         nodes, the callers and the servers are pinned to different cores, as on machines of their own. In \
         the other rows, and where the row says so, they share all cores. The floors wait for all five nodes."
    );
    println!(
        "\nNot measured: packet loss, servers on other machines, \
         persistence, more than five nodes, clusters."
    );
    settings.check_names();
}
