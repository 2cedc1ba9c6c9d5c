//! The command `redlock`: who has a lock, to end it, to check the nodes, and to run a command under a lock.
//!
//! * [`arguments`]: the command line.
//! * [`settings`]: the settings of the manager, from a file or the environment.
//! * [`failure`]: the errors, with their exit status.
//! * [`output`]: tables, colours and times.
//! * [`log`]: the log of the library, on standard error.
//! * [`status`], [`watch`], [`breaking`], [`nodes`], [`run`]: the commands.

mod arguments;
mod breaking;
mod failure;
mod log;
mod nodes;
mod output;
mod run;
mod settings;
mod status;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};
use failure::Failure;

fn main() -> ExitCode {
    let Arguments { options, command } = Arguments::parse();
    if let Command::Stub(stub) = command {
        return run::stub::execute(&stub);
    }
    log::begin(command.log_level(options.verbose));
    // One thread: the parent-death signal of a child comes when the thread ends that has started it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(|error| Failure::new(format!("the runtime: {error}"))).and_then(
        |runtime| {
            runtime.block_on(async {
                let config = settings::read(&options)?;
                match command {
                    Command::Status(arguments) => status::run(&config, &arguments).await,
                    Command::Watch(arguments) => watch::run(&config, &arguments).await,
                    Command::Break(arguments) => breaking::run(&config, &arguments).await,
                    Command::Nodes(arguments) => nodes::run(&config, &arguments).await,
                    Command::Run(arguments) => run::run(&config, &arguments).await,
                    Command::Stub(_) => Ok(ExitCode::SUCCESS),
                }
            })
        },
    );
    done.unwrap_or_else(|failure| failure.report())
}
