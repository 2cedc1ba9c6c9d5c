//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use redlock_core::__private::{TimeText, check_reason, read_time};
use redlock_core::{HolderId, InvalidOption, LockOptions};
use tracing_subscriber::filter::LevelFilter;

/// Shows and ends distributed locks, checks their nodes, and runs commands under a lock.
#[derive(Debug, Parser)]
#[command(name = "redlock", version, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Without --url and --config, the settings are the environment variables LOCKS_URLS, LOCKS_PREFIX and their sisters.
Exit status: 2 is an error. Each command's help has the others.";

/// The options of all commands.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The URL of a node, such as `redis://10.0.0.1`; once for each node. Replaces the URLs of the settings
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Vec<String>,
    /// A TOML file with the settings of the manager, at its top or in its table [locks]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Prints the log of the library on standard error
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows who has a lock. Exit status: 0 free, 1 not free, 2 error
    Status(StatusArguments),
    /// Shows who has a lock, once a second, until Ctrl-C. Exit status: 0, or 2 for an error at the start
    Watch(StatusArguments),
    /// Ends the lock of one holder. Exit status: 0 broken, 1 not broken, 2 error
    Break(BreakArguments),
    /// Checks the nodes before a deployment. Exit status: 0 sound, 1 not sound, 2 error
    Nodes(NodesArguments),
    /// Runs a command under a lock, which is renewed. Exit status: that of the command, 128 + n for the signal n, 75 without the lock (but see --skip)
    Run(RunArguments),
    /// Executes a command that ends with its parent
    #[command(name = "__stub", hide = true)]
    Stub(StubArguments),
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// The key of the lock, without the prefix of the settings
    pub(crate) key: String,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BreakArguments {
    /// The key of the lock, without the prefix of the settings
    pub(crate) key: String,
    /// The id of the holder, as `redlock status KEY` shows it. No other holder is removed
    #[arg(long, value_name = "ID")]
    pub(crate) holder: HolderId,
    /// The reason, for the log line of this command: up to 200 bytes
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: Option<String>,
    /// Does not ask. Required without a terminal
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NodesArguments {
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The key of the lock, without the prefix of the settings
    pub(crate) key: String,
    /// Waits so long while another holder has the lock, such as 10m. Defaults to one attempt
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) wait: Option<Duration>,
    /// The lease, which is renewed while the command runs. Defaults to that of the settings, or 30s
    #[arg(long, value_name = "TIME", value_parser = lease)]
    pub(crate) expire: Option<Duration>,
    /// Keeps the lock for this time from its acquisition on, however the command ends
    #[arg(long, value_name = "TIME", value_parser = lease)]
    pub(crate) keep: Option<Duration>,
    /// Ends with status 0 and without a message if another holder has the lock, after the time of --wait if given
    #[arg(long)]
    pub(crate) skip: bool,
    /// The time from SIGTERM to SIGKILL when the lock is lost: up to half of the lease. Defaults to 5s, or a third of the lease
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) grace: Option<Duration>,
    /// The command, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct StubArguments {
    /// The process that must be the parent
    pub(crate) parent: u32,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

impl Arguments {
    /// Reads the command line of this process. Ends it after a mistake.
    pub(crate) fn of_process() -> Self {
        Self::parse_from(with_negative_times(std::env::args_os()))
    }
}

/// Joins an option with a negative number behind it by `=`. So `--wait -5s` is a wrong value, and not the unknown option `-5`.
fn with_negative_times(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut joined = Vec::<OsString>::new();
    let mut is_of_command = false;
    for word in words {
        is_of_command |= word == "--";
        let is_negative = matches!(word.as_encoded_bytes(), [b'-', b'0'..=b'9', ..]);
        match joined.last_mut().filter(|last| last.as_encoded_bytes().starts_with(b"--")) {
            Some(option) if is_negative && !is_of_command => {
                option.push("=");
                option.push(word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

impl Command {
    /// Returns which events of the library are printed. The commands that change locks print warnings.
    pub(crate) fn log_level(&self, is_verbose: bool) -> LevelFilter {
        match self {
            _ if is_verbose => LevelFilter::INFO,
            Self::Break(_) | Self::Run(_) => LevelFilter::WARN,
            _ => LevelFilter::OFF,
        }
    }
}

/// Reads a time as the settings have it.
fn time(text: &str) -> Result<Duration, String> {
    match read_time(text) {
        TimeText::Time(time) => Ok(time),
        TimeText::Number(seconds) => Ok(Duration::from_secs(seconds)),
        _ => {
            Err("must be a time such as 500ms, 30s or 1h, or a whole number of seconds".to_owned())
        }
    }
}

/// Reads the time for which a server has a lock.
fn lease(text: &str) -> Result<Duration, String> {
    let lease = time(text)?;
    LockOptions::new().expire(lease).check().map_err(|error| range(&error))?;
    Ok(lease)
}

/// Reads a reason as a break takes it, before any node is asked.
fn reason(text: &str) -> Result<String, String> {
    check_reason(text).map_err(|error| range(&error))?;
    Ok(text.to_owned())
}

/// Returns what the value must be, without the name of the option in the library.
fn range(error: &InvalidOption) -> String {
    let text = error.to_string();
    text.rsplit_once(", but ").map_or(text.clone(), |(_, range)| range.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_negative_number_is_the_value_of_the_option_before_it() {
        for (words, expected) in [
            ("run a --wait -5s -- job", "run a --wait=-5s -- job"),
            ("run a --wait 5s -- job --depth -5", "run a --wait 5s -- job --depth -5"),
            ("run a --json -x -- job", "run a --json -x -- job"),
            ("run a -5", "run a -5"),
        ] {
            let joined = with_negative_times(words.split(' ').map(OsString::from));
            let joined: Vec<_> = joined.iter().map(|word| word.to_str().unwrap()).collect();
            assert_eq!(joined.join(" "), expected);
        }
    }
}
