//! Runs work under a lock, for all front ends of HTTP.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;

use axum::response::Response;
use redlock_core::__private::{AbortOnLoss, LogLimit, LossWatcher};
use redlock_core::{LockRequest, OnLost};

use super::body::{self, HeldResponse};
use crate::extract::lock_slot::LockSlot;
use crate::options::{HoldUntil, HttpOptions};
use crate::rejection::LockRejection;

/// The lock of one request.
#[derive(Debug)]
pub(crate) struct RequestLock {
    pub(crate) request: LockRequest,
    pub(crate) on_lost: OnLost,
    pub(crate) http: HttpOptions,
    /// The response to HEAD is sent without a body.
    pub(crate) is_head: bool,
    /// The slot of the extractors, which is filled when the lock is held.
    pub(crate) slot: LockSlot,
    /// The limit of the manager for logging similar events.
    pub(crate) log_limit: Arc<LogLimit>,
}

/// Acquires the lock, runs the work, and releases the lock. Without the lock the work does not run, and `refuse` makes
/// the response.
///
/// `respond` makes the response of the work's output, or breaks with the result of a request without a response. `finish`
/// turns a response into such a result.
///
/// The work is a closure, because a future as an argument would be stored twice.
#[expect(clippy::manual_async_fn, reason = "an `async fn` would store its arguments twice")]
pub(crate) fn locked<W: Future, O>(
    lock: RequestLock,
    refuse: impl FnOnce(LockRejection) -> Response,
    respond: impl FnOnce(W::Output) -> ControlFlow<O, Response>,
    finish: fn(Response) -> O,
    work: impl FnOnce() -> W,
) -> impl Future<Output = O> {
    async move {
        let RequestLock { request, on_lost, http, is_head, slot, log_limit } = lock;
        let refuse = |rejection: LockRejection| {
            finish(refuse(rejection.with_http_options(http).with_log_limit(&log_limit)))
        };
        let guard = match request.acquire().await {
            Ok(guard) => guard,
            Err(error) => return refuse(error.into()),
        };
        slot.fill(guard.handle());
        let watch = LossWatcher::new(&guard, on_lost);
        let result = match AbortOnLoss::new(watch, work()).await {
            Ok(output) => respond(output),
            // A lost lock has no release to wait for: dropping the guard cleans up the nodes in the background.
            Err(error) => return refuse(error.into()),
        };
        let (result, guard) = match result {
            Continue(response) if http.hold_until == HoldUntil::EndOfBody && !is_head => {
                match body::hold(response, guard, on_lost) {
                    HeldResponse::UntilEnd(response) => return finish(response),
                    HeldResponse::Ended(response, guard) => (Continue(response), guard),
                }
            }
            result => (result, guard),
        };
        guard.release_or_log().await;
        match result {
            Continue(response) => finish(response),
            Break(output) => output,
        }
    }
}
