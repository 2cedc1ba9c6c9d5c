//! The command `redlock`: shows and ends the holders of a lock, checks the nodes, and runs commands under a lock.
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
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use arguments::{Arguments, Command, Options};
use failure::Failure;

/// How long the end of the sessions may take, and the time between two looks.
const LONGEST_END: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(1);

fn main() -> ExitCode {
    let Arguments { options, command } = Arguments::of_process();
    if let Command::Stub(stub) = command {
        return run::stub::execute(&stub);
    }
    log::begin(command.log_level(options.verbose));
    // One thread: the parent-death signal of a child comes when the thread ends that has started it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("the runtime: {error}")));
    let done = runtime.and_then(|runtime| {
        runtime.block_on(async {
            let done = execute(&options, command).await;
            end_sessions().await;
            done
        })
    });
    done.unwrap_or_else(|failure| failure.report())
}

async fn execute(options: &Options, command: Command) -> Result<ExitCode, Failure> {
    let config = settings::read(options)?;
    match command {
        Command::Status(arguments) => status::run(&config, &arguments).await,
        Command::Watch(arguments) => watch::run(&config, &arguments).await,
        Command::Break(arguments) => breaking::run(&config, &arguments).await,
        Command::Nodes(arguments) => nodes::run(&config, &arguments).await,
        Command::Run(arguments) => run::run(&config, &arguments).await,
        Command::Stub(_) => Ok(ExitCode::SUCCESS),
    }
}

/// Waits for the tasks of the manager, which was dropped. The task of a ZooKeeper node closes its session. Otherwise the place of
/// the session in the queue of a lock would keep other callers waiting until the session timeout.
async fn end_sessions() {
    let tasks = Handle::current().metrics();
    let ended = async {
        while tasks.num_alive_tasks() > 0 {
            sleep(TICK).await;
        }
    };
    // A server that does not answer delays the end no longer.
    let _ = timeout(LONGEST_END, ended).await;
}
