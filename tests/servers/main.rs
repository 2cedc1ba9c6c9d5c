//! The commands that the library sends to Redis servers, and how it handles their replies; beside the locks of other
//! libraries (`interop`); with the settings and the rights of operators (`operations`).

#![allow(clippy::unwrap_used, reason = "tests")]

mod changes;
mod changes_cases;
mod changes_leftovers;
mod cluster_mode;
mod connect;
mod foreign_keys;
mod hints;
mod hostile;
mod hostile_texts;
mod idle;
mod kind;
mod losses;
mod lost_keys;
mod measured;
mod old_protocol;
mod read_only;
mod redisson_wire;
mod scripts;
mod server_states;
mod several_keys;
mod status_and_break;
mod wire;
mod wire_names;
mod without_script;

#[path = "../interop/mod.rs"]
mod interop;
#[path = "../operations/mod.rs"]
mod operations;

use std::time::Duration;

use redlock_core::LockManager;
use redlock_tests::{Probe, Servers, builder, connect, eventually};

/// A lease longer than any test.
const LONG: Duration = Duration::from_secs(300);
/// Deadline for what takes no time on an idle machine.
const SOON: Duration = Duration::from_secs(20);

/// Starts servers and a manager.
async fn start(count: usize) -> (Servers, LockManager) {
    let servers = Servers::start(count).await;
    let locks = connect(servers.urls()).await;
    (servers, locks)
}

/// Waits for releases in the background, and for the key of a release that Redisson removes afterwards.
async fn no_key_is_left(servers: &Servers) {
    eventually("no key is left", SOON, async || servers.keys().await.is_empty().then_some(()))
        .await;
}

/// Waits until a waiter for a lock in the Redisson dialect has subscribed to its release and was refused once more. From
/// then on only the message wakes it. The refusals are counted by `PTTL`, which no other command since the last
/// `reset_calls` uses.
async fn until_it_sleeps(probe: &mut Probe, channel: &str) {
    eventually("the waiter sleeps", SOON, async || {
        let listeners: (String, u64) = probe.command(["PUBSUB", "NUMSUB", channel]).await;
        let refusals = probe.calls().await.get("pttl").copied();
        (listeners.1 == 1 && refusals >= Some(2)).then_some(())
    })
    .await;
}
