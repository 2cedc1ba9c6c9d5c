//! A background job that takes longer than its lease.
//!
//! ```sh
//! cargo run --example renewal                                 # locks this process only
//! LOCKS_URLS=redis://127.0.0.1 cargo run --example renewal    # one job among all copies
//! ```
//!
//! `POST /settlements?steps=6` begins the job, a step each second, and does not wait for its end.
//! While the job runs on any copy of the service, a second one is answered with 409.
//!
//! The lease is only three seconds, so that a copy that crashes does not block the job for long. It
//! is renewed every second while the job runs. The job stops when its lock is lost, because another
//! copy may have begun by then: the Redis servers were gone for longer than the lease, this process
//! slept for longer than the lease, the job ran for longer than `MAX_HOLD`, or the service ends.

mod server;

use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, Query, State};
use axum::http::StatusCode;
use axum::routing::post;
use redlock_axum::{LockGuard, LockManager, LockRejection};
use serde::Deserialize;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

const LEASE: Duration = Duration::from_secs(3);
/// The renewal ends after this time, so that a job that hangs does not hold its lock for ever.
const MAX_HOLD: Duration = Duration::from_secs(12);

/// Begins a settlement. The lock is acquired before the answer is sent, and moves into the job.
async fn begin_settlement(
    State(locks): State<LockManager>,
    State(jobs): State<TaskTracker>,
    Query(Settlement { steps }): Query<Settlement>,
) -> Result<(StatusCode, &'static str), LockRejection> {
    let request = locks.lock("settlement").expire(LEASE).renew(true).max_hold(MAX_HOLD);
    let guard = request.try_acquire().await?;
    jobs.spawn(settle(guard, steps));
    Ok((StatusCode::ACCEPTED, "the settlement begins\n"))
}

/// The state of the service.
#[derive(Clone, FromRef)]
struct App {
    locks: LockManager,
    jobs: TaskTracker,
}

async fn settle(guard: LockGuard, steps: u32) {
    let work = async {
        for step in 1..=steps {
            info!("settlement: step {step} of {steps}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        // Looks at the lock first: after a long sleep of this process, the work must not go on.
        biased;
        lost = guard.lost() => warn!(%lost, "settlement: stopped, because its lock is lost"),
        () = work => {
            info!("settlement: done");
            if let Err(error) = guard.release().await {
                warn!("{error}");
            }
        }
    }
}

#[derive(Deserialize)]
struct Settlement {
    steps: u32,
}

#[tokio::main]
async fn main() -> ExitCode {
    server::run(async {
        let locks = server::connect().await?;
        let jobs = TaskTracker::new();
        let app = Router::new()
            .route("/settlements", post(begin_settlement))
            .with_state(App { locks: locks.clone(), jobs: jobs.clone() });
        // At its end it releases the lock of a running job. For the job, the lock is lost, so that it stops.
        server::serve(app, &locks).await?;
        jobs.close();
        jobs.wait().await;
        Ok(())
    })
    .await
}
