//! `redlock watch`: the holders of a lock, once a second, until Ctrl-C, or until nobody reads the output any more.

use std::fmt::Write;
use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use redlock_core::{LockManager, LockManagerConfig, LockStatus, StatusError};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::arguments::StatusArguments;
use crate::failure::{Failure, complain};
use crate::output::{Paint, cell, has_no_reader, print, seconds, short, utc};
use crate::settings::connect;
use crate::status;

const INTERVAL: Duration = Duration::from_secs(1);
/// Switches to the second screen of a terminal, and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?1049l\x1b[?25h";

pub(crate) async fn run(
    config: &LockManagerConfig,
    arguments: &StatusArguments,
) -> Result<ExitCode, Failure> {
    let locks = connect(config).await?;
    let mut view = View::new(arguments.json, stdout().is_terminal());
    let caught = |kind| signal(kind).map_err(|error| Failure::new(format!("signals: {error}")));
    let mut interrupted = caught(SignalKind::interrupt())?;
    let mut terminated = caught(SignalKind::terminate())?;
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interrupted.recv() => break,
            _ = terminated.recv() => break,
            _ = ticks.tick() => {
                view.show(look(&locks, &arguments.key).await?)?;
                // Without a change, nothing is written that would fail.
                if has_no_reader() {
                    break;
                }
            }
        }
    }
    view.end()?;
    Ok(ExitCode::SUCCESS)
}

/// Asks for the status. An outage is shown, and ends nothing.
async fn look(locks: &LockManager, key: &str) -> Result<Result<LockStatus, StatusError>, Failure> {
    match locks.status(key).await {
        Err(error @ StatusError::Unavailable { .. }) => Ok(Err(error)),
        Err(error) => Err(status::failure(error)),
        Ok(status) => Ok(Ok(status)),
    }
}

/// How the answers are shown.
enum View {
    /// In place, on the second screen of a terminal. Has the last text.
    Screen { last: Option<String> },
    /// A line for each change. Has the last one, without its time.
    Lines { as_json: bool, last: Option<String> },
}

impl View {
    fn new(as_json: bool, is_terminal: bool) -> Self {
        if is_terminal && !as_json {
            Self::Screen { last: None }
        } else {
            Self::Lines { as_json, last: None }
        }
    }

    fn show(&mut self, answer: Result<LockStatus, StatusError>) -> Result<(), Failure> {
        match self {
            Self::Screen { last } => {
                let begin = if last.is_none() { ENTER } else { "" };
                let text = match answer {
                    Ok(status) => status::as_text(&status, Paint::of_stdout()),
                    Err(error) => format!("{}\n", error.diagnostics()),
                };
                let now = utc(SystemTime::now());
                // Overwrites the lines, so that nothing flickers.
                let lines = text.replace('\n', "\x1b[K\r\n");
                print(&format!(
                    "{begin}\x1b[H{now}  Ctrl-C ends\x1b[K\r\n\x1b[K\r\n{lines}\x1b[J"
                ))?;
                *last = Some(text);
            }
            Self::Lines { as_json, last } => {
                let line = match &answer {
                    Ok(status) => change(status),
                    Err(error) => error.diagnostics().to_string(),
                };
                if last.as_ref() == Some(&line) {
                    return Ok(());
                }
                let now = SystemTime::now();
                match &answer {
                    Ok(status) if *as_json => {
                        let mut json = json!(status);
                        json["at"] = json!(seconds(now));
                        print(&format!("{json}\n"))?;
                    }
                    Ok(status) => print(&format!("{} {line}{}\n", utc(now), rest(status)))?,
                    Err(_) => complain(format!("{} {line}", utc(now))),
                }
                *last = Some(line);
            }
        }
        Ok(())
    }

    /// Leaves the last answer on the first screen.
    fn end(&mut self) -> Result<(), Failure> {
        match self {
            Self::Screen { last } => {
                last.take().map_or(Ok(()), |text| print(&format!("{LEAVE}{text}")))
            }
            Self::Lines { .. } => Ok(()),
        }
    }
}

/// Leaves the second screen also after an error.
impl Drop for View {
    fn drop(&mut self) {
        if let Self::Screen { last: Some(_) } = self {
            let _ = print(LEAVE);
        }
    }
}

/// Returns what a change is: another state, other holders, or other failures of nodes.
fn change(status: &LockStatus) -> String {
    let mut line = format!("{} {}", status.key(), status::word(status.state()));
    for holder in status.holders() {
        let _ = write!(line, " {} {}", holder.id(), cell(holder.label()));
    }
    for node in status.nodes() {
        if let Some(error) = node.error() {
            let _ = write!(line, "; {}: {error}", node.name());
        }
    }
    line
}

/// Returns the rest of the lease, which changes all the time.
fn rest(status: &LockStatus) -> String {
    let rest = status.holders().first().and_then(redlock_core::Holder::remaining);
    rest.map_or_else(String::new, |rest| format!("; {} left", short(rest)))
}
