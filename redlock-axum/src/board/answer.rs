//! The suspects of this process as JSON. The fields are those of a snapshot.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_core::{LockKey, Snapshot, WaitingSnapshot};
use serde::Serialize;
use serde_json::{Value, json};

/// How many suspects of each kind an answer names.
const NAMED: usize = 20;
/// A caller that waits for longer is suspicious.
const LONG_WAIT: Duration = Duration::from_secs(1);
/// For how long a loss is shown.
const SHOWN_LOSS: Duration = Duration::from_secs(60 * 60);

/// Returns the nodes and the suspects of this process.
pub(super) fn process(snapshot: &Snapshot, may_break: bool) -> Value {
    let Snapshot { taken, process, nodes, held, waiting, lost, counters, .. } = snapshot;
    let age = |since: &SystemTime| taken.duration_since(*since).unwrap_or_default();
    let mut long_held: Vec<_> = held.iter().filter(|held| age(&held.since) > held.lease).collect();
    long_held.sort_by_key(|held| held.since);
    let is_long = |waiting: &&WaitingSnapshot| waiting.longest_wait > LONG_WAIT;
    let mut waiting_long: Vec<_> = waiting.iter().filter(is_long).collect();
    waiting_long.sort_by_key(|waiting| Reverse(waiting.longest_wait));
    let lost_lately: Vec<_> = lost.iter().filter(|lost| age(&lost.at) < SHOWN_LOSS).collect();
    // A snapshot has the last losses alone. If an older one is missing, all of them may be of the last hour.
    let has_lost_more = lost_lately.len() == lost.len() && counters.lost > lost.len() as u64;
    json!({
        "process": process,
        "at": seconds(*taken),
        "may_break": may_break,
        "nodes": nodes,
        "held": suspects(held.len(), &long_held, |held, row| {
            row["keys"] = held.keys.iter().map(LockKey::as_str).collect();
        }),
        "waiting": suspects(waiting.len(), &waiting_long, |waiting, row| {
            row["key"] = waiting.key.as_str().into();
        }),
        "lost": suspects(lost.len(), &lost_lately, |lost, row| {
            row["key"] = lost.key.as_str().into();
        }),
        "has_lost_more": has_lost_more,
    })
}

/// Returns the first suspects, how many there are, and of how many. Their keys have no prefix, as those of a status.
fn suspects<T: Serialize>(all: usize, found: &[&T], set_keys: impl Fn(&T, &mut Value)) -> Value {
    let rows = found.iter().take(NAMED).map(|suspect| {
        let mut row = json!(suspect);
        set_keys(suspect, &mut row);
        row
    });
    json!({ "all": all, "found": found.len(), "first": rows.collect::<Vec<_>>() })
}

/// Returns a time of the wall clock in seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
