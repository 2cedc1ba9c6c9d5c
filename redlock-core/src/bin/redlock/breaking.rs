//! `redlock break`: ends the lock of one holder.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use redlock_core::{BreakError, Holder, KeyState, LockManagerConfig, LockStatus};
use serde_json::json;

use crate::arguments::BreakArguments;
use crate::failure::{Failure, NO};
use crate::output::{cell, print, print_json, short};
use crate::settings::connect;
use crate::status::{failure, since};

pub(crate) async fn run(
    config: &LockManagerConfig,
    arguments: &BreakArguments,
) -> Result<ExitCode, Failure> {
    let BreakArguments { key, holder: id, reason, yes, json: as_json } = arguments;
    let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !yes && !can_ask {
        return Err(Failure::new(
            "without a terminal, nothing asks whether to break the lock; give --yes",
        ));
    }
    let locks = connect(config).await?;
    let status = locks.status(key).await.map_err(failure)?;
    let found = status.holders().iter().find(|holder| holder.id() == *id);
    let holder = found.ok_or_else(|| gone(arguments, &status))?;
    if !yes
        && !agrees(holder, &status).map_err(|error| Failure::new(format!("the answer: {error}")))?
    {
        return Err(Failure::new("nothing was changed").with_status(NO));
    }
    let breaking = locks.break_lock(key, holder);
    let breaking = match reason {
        Some(reason) => breaking.reason(reason),
        None => breaking,
    };
    let broken = breaking.await.map_err(|error| match error {
        BreakError::NotHeld { .. } => gone(arguments, &status),
        error => Failure::new(error.diagnostics()),
    })?;
    if *as_json {
        let mut json = json!(broken);
        json["key"] = json!(status.key().as_str());
        json["broken"] = json!(holder);
        print_json(&json)?;
    } else {
        let rest = broken.may_be_valid_for();
        let rest = rest.map_or_else(|| "an unknown time".to_owned(), short);
        print(&format!(
            "{}: broken. Its former holder may believe in its lock for {rest}. Its work may last longer: end its process to be sure\n",
            status.key()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the error of a holder that does not have the lock, with the present ones.
fn gone(arguments: &BreakArguments, status: &LockStatus) -> Failure {
    let BreakArguments { key, holder, .. } = arguments;
    let present: Vec<_> = status
        .holders()
        .iter()
        .filter(|one| one.id() != *holder)
        .map(|one| one.id().to_string())
        .collect();
    let present = match &*present {
        [] if matches!(status.state(), KeyState::Foreign) => "its value is no lock".to_owned(),
        [] => "no other holder was seen".to_owned(),
        ids => format!("its holder is {}", ids.join(", ")),
    };
    let message = format!(
        "the holder {holder} does not have the lock {key}, or no longer; {present}. Nothing was changed; see `redlock status {key}`"
    );
    Failure::new(message).with_status(NO)
}

/// Asks on the terminal, and returns whether the answer is yes.
fn agrees(holder: &Holder, status: &LockStatus) -> io::Result<bool> {
    let mut terminal = io::stderr();
    write!(
        terminal,
        "Lock:   {}\nHolder: {}\nOwner:  {}\nSince:  {}\nRest:   {}\nNodes:  {} of {}\n\n\
         A break does not stop the owner: two processes may work at once until its work ends.\n\
         Only `yes` breaks the lock: ",
        status.key(),
        holder.id(),
        cell(holder.label()),
        since(holder),
        cell(holder.remaining().map(short)),
        holder.nodes(),
        status.nodes().len(),
    )?;
    terminal.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}
