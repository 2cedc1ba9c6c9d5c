//! `redlock run`: runs a command under a lock.
//!
//! * [`child`]: the process of the command.
//! * [`watcher`]: watches lock and command together.
//! * [`stub`]: executes a command that ends with its parent.

mod child;
pub(crate) mod stub;
mod watcher;

use std::process::ExitCode;
use std::time::Duration;

use redlock_core::{
    ConnectError, LockError, LockGuard, LockManager, LockManagerConfig, LockRequest, Votes,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::arguments::RunArguments;
use crate::failure::{Failure, complain};

use child::Child;
use watcher::Watcher;

/// The exit status without the lock: `EX_TEMPFAIL`, a failure that passes.
const NOT_HAD: u8 = 75;
/// The exit status of a job that a signal has ended is this and the number of the signal.
const BY_SIGNAL: u8 = 128;
/// The time from SIGTERM to SIGKILL: at most this, and at most a part of the lease.
const GRACE: Duration = Duration::from_secs(5);
const GRACE_DIVISOR: u32 = 3;
/// The longest grace is the lease divided by this number: two thirds are left at a renewal.
const LONGEST_GRACE_DIVISOR: u32 = 2;

/// The signals that end a program, which are passed on to the command.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let caught = |kind| signal(kind).map_err(|error| Failure::new(format!("signals: {error}")));
        Ok(Self {
            interrupt: caught(SignalKind::interrupt())?,
            terminate: caught(SignalKind::terminate())?,
        })
    }

    /// Returns the next signal.
    async fn next(&mut self) -> rustix::process::Signal {
        tokio::select! {
            _ = self.interrupt.recv() => rustix::process::Signal::INT,
            _ = self.terminate.recv() => rustix::process::Signal::TERM,
        }
    }
}

pub(crate) async fn run(
    config: &LockManagerConfig,
    arguments: &RunArguments,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    // An error behind the acquisition would leave the lock for as long as it is kept, although no command has run.
    let kept = arguments.keep.map(|keep| Watcher::of_kept(config, arguments, keep)).transpose()?;
    if let Err(status) = child::check(&arguments.command) {
        return Ok(status);
    }
    let acquiring = acquire(config, arguments);
    let acquired = tokio::select! {
        acquired = acquiring => acquired?,
        signal = signals.next() => return Ok(ExitCode::from(of_signal(signal.as_raw()))),
    };
    let Some((locks, guard)) = acquired else {
        return Ok(ExitCode::SUCCESS);
    };
    let watcher = kept.map_or_else(|| Watcher::of_renewed(&locks, &guard, arguments), Ok);
    let status = match watcher {
        Ok(watcher) => under(&watcher, guard, arguments, &mut signals).await,
        Err(failure) => {
            release(guard).await;
            Err(failure)
        }
    };
    locks.shutdown().await;
    status
}

/// Connects, and acquires the lock. Returns `None` if another holder has it, and the run is skipped then.
async fn acquire(
    config: &LockManagerConfig,
    arguments: &RunArguments,
) -> Result<Option<(LockManager, LockGuard)>, Failure> {
    let locks = config.connect().await.map_err(|error| match error {
        ConnectError::Unavailable { ref votes, .. } if !votes.need_an_operator() => {
            Failure::new(error).with_status(NOT_HAD)
        }
        error => Failure::new(error),
    })?;
    if arguments.keep.is_some() && ends_with_session(&locks) {
        return Err(Failure::new(
            "--keep needs a store that has a lock when its client is gone; a lock in ZooKeeper ends with its session",
        ));
    }
    let request = request(&locks, arguments);
    let acquired = match arguments.wait {
        Some(wait) => request.wait_time(wait).acquire().await,
        None => request.try_acquire().await,
    };
    match acquired {
        Ok(guard) => Ok(Some((locks, guard))),
        Err(error) => {
            locks.shutdown().await;
            // Split votes are no reason to skip: no other run has the lock.
            if arguments.skip && error.is_contended() { Ok(None) } else { Err(refused(&error)) }
        }
    }
}

fn ends_with_session(locks: &LockManager) -> bool {
    locks.snapshot().nodes.iter().any(|node| node.report.kind == "zookeeper")
}

fn request(locks: &LockManager, arguments: &RunArguments) -> LockRequest {
    let request = locks.lock(&arguments.key).fenced(true);
    match (arguments.keep, arguments.expire) {
        // The lease is the time for which the lock is kept. The watcher extends it if the command takes longer.
        (Some(keep), _) => request.expire(keep).keep(true),
        (None, Some(expire)) => request.expire(expire).renew(true),
        (None, None) => request,
    }
}

fn refused(error: &LockError) -> Failure {
    let failure = Failure::new(error.diagnostics());
    match error {
        LockError::InvalidKey(_) | LockError::InvalidOption(_) | LockError::ForeignKey { .. } => {
            failure
        }
        // The status 75 asks the caller to try again, and the next run would fail in the same way.
        _ if error.votes().is_some_and(Votes::need_an_operator) => failure,
        _ => failure.with_status(NOT_HAD),
    }
}

/// Runs the command while the lock is held, and releases the lock.
async fn under(
    watcher: &Watcher,
    guard: LockGuard,
    arguments: &RunArguments,
    signals: &mut Signals,
) -> Result<ExitCode, Failure> {
    let environment = [
        ("LOCK_KEY", guard.keys()[0].as_str().to_owned()),
        (
            "LOCK_FENCING_TOKEN",
            guard.fencing_token().map_or_else(String::new, |token| token.number().to_string()),
        ),
    ];
    let mut child = match Child::start(&arguments.command, environment) {
        Ok(child) => child,
        Err(failure) => {
            release(guard).await;
            return Ok(failure);
        }
    };
    let ended = watcher.watch(&guard.handle(), &mut child, signals).await;
    let status = ended.status?;
    if ended.is_lost {
        drop(guard);
        // A loss is never silent: a command that ends well may have worked beside the next holder.
        return Ok(ExitCode::from(if status == 0 { NOT_HAD } else { status }));
    }
    release(guard).await;
    Ok(ExitCode::from(status))
}

async fn release(guard: LockGuard) {
    if let Err(error) = guard.release().await {
        complain(format!("the release failed: {}", error.diagnostics()));
    }
}

fn of_signal(number: i32) -> u8 {
    BY_SIGNAL.wrapping_add(u8::try_from(number).unwrap_or_default())
}
