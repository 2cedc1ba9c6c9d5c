//! `redlock status`: the holders of a lock.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::SystemTime;

use redlock_core::node::FoundKind;
use redlock_core::{Holder, KeyState, LockManagerConfig, LockStatus, NodeAnswer, StatusError};
use serde_json::json;

use crate::arguments::StatusArguments;
use crate::failure::{Failure, NO};
use crate::output::{self, Colour, Paint, Table, cell, print, print_json, short, utc};
use crate::settings::connect;

/// How many holders a row of a node names.
const NAMED: usize = 3;

pub(crate) async fn run(
    config: &LockManagerConfig,
    arguments: &StatusArguments,
) -> Result<ExitCode, Failure> {
    let locks = connect(config).await?;
    let status = locks.status(&arguments.key).await.map_err(failure)?;
    if arguments.json {
        print_json(&json!(status))?;
    } else {
        print(&as_text(&status, Paint::of_stdout()))?;
    }
    Ok(exit_code(&status))
}

/// Returns the error of a status, with the reason of each node.
#[expect(clippy::needless_pass_by_value, reason = "as an argument of `map_err`")]
pub(crate) fn failure(error: StatusError) -> Failure {
    Failure::new(error.diagnostics())
}

fn exit_code(status: &LockStatus) -> ExitCode {
    if status.state() == KeyState::Free { ExitCode::SUCCESS } else { ExitCode::from(NO) }
}

/// Returns the state as one word.
pub(crate) fn word(state: KeyState) -> &'static str {
    match state {
        KeyState::Free => "free",
        KeyState::Exclusive => "exclusive",
        KeyState::Shared => "shared",
        KeyState::Split => "split",
        KeyState::Foreign => "foreign",
        _ => "unknown",
    }
}

fn meaning(state: KeyState) -> &'static str {
    match state {
        KeyState::Free => "no holder",
        KeyState::Exclusive => "one holder",
        KeyState::Shared => "holders that share it",
        KeyState::Split => "no holder is known to have a quorum of nodes",
        _ => "the value is no lock of this dialect",
    }
}

/// Returns the status for people.
pub(crate) fn as_text(status: &LockStatus, paint: Paint) -> String {
    let state = status.state();
    let colour = match state {
        KeyState::Free => Colour::Green,
        KeyState::Exclusive | KeyState::Shared => Colour::Yellow,
        _ => Colour::Red,
    };
    let key = status.key();
    let mut text = format!("{key}  {}: {}\n", paint.text(colour, word(state)), meaning(state));
    if key.name() != key.as_str() {
        let _ = writeln!(text, "on the nodes: {}", key.name());
    }
    if !status.holders().is_empty() {
        let mut holders = Table::new(["HOLDER", "OWNER", "SINCE", "REST", "NODES"]);
        for holder in status.holders() {
            let nodes = format!("{} of {}", holder.nodes(), status.nodes().len());
            let (id, owner) = (holder.id().to_string(), cell(holder.label()));
            holders.row([id, owner, since(holder), cell(holder.remaining().map(short)), nodes]);
        }
        let _ = write!(text, "\n{holders}");
    }
    if status.waiting_writers() > 0 {
        let _ = write!(text, "\n{} waiting\n", status.waiting_writers());
    }
    let mut nodes = Table::new(["NODE", "ANSWER"]);
    for node in status.nodes() {
        let mut said = answer(node);
        if let Some(reason) = node.quarantine() {
            let _ = write!(said, " (grants no locks: {reason})");
        }
        nodes.row([node.name().to_owned(), said]);
    }
    let _ = write!(text, "\n{nodes}");
    text
}

/// Returns since when a holder has the lock, and for how long that is.
pub(crate) fn since(holder: &Holder) -> String {
    holder.since().map_or_else(
        || "-".to_owned(),
        |since| {
            let age = SystemTime::now().duration_since(since).unwrap_or_default();
            format!("{} ({} ago)", utc(since), output::age(age))
        },
    )
}

fn answer(node: &NodeAnswer) -> String {
    let Some(found) = node.found() else {
        return cell(node.error());
    };
    match found.kind {
        FoundKind::Free => "free".to_owned(),
        FoundKind::Foreign(kind) => format!("foreign: {kind}"),
        _ => {
            let ids = found.holders.iter().take(NAMED).map(|holder| holder.id.to_string());
            let more = found.holders.len().saturating_sub(NAMED);
            let more = (more > 0).then(|| format!("and {more} more"));
            ids.chain(more).collect::<Vec<_>>().join(" ")
        }
    }
}
