//! Runs work under a lock, for all front ends of HTTP.

use std::future::ready;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;

use axum::response::Response;
use redlock_core::__private::{AbortOnLoss, LogLimit, LossWatcher, detach};
use redlock_core::{LockError, LockGuard, LockRequest, OnLost};

use super::body::{self, Exchange, HeldResponse};
use super::extraction::{Extractions, NotExtracted};
use crate::extract::lock_slot::LockSlot;
use crate::options::{HoldUntil, HttpOptions};
use crate::rejection::LockRejection;

/// The lock of one request.
#[derive(Debug)]
pub(crate) struct RequestLock {
    pub(crate) request: LockRequest,
    pub(crate) on_lost: OnLost,
    pub(crate) http: HttpOptions,
    pub(crate) exchange: Exchange,
    /// The slot of the extractors, which is filled when the lock is held.
    pub(crate) slot: LockSlot,
    /// The parameters of the handler that are extracted when the lock is held.
    pub(crate) extractions: Extractions,
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
pub(crate) fn locked<W: Future, O>(
    lock: RequestLock,
    refuse: impl FnOnce(LockRejection) -> Response,
    respond: impl FnOnce(W::Output) -> ControlFlow<O, Response>,
    finish: fn(Response) -> O,
    work: impl FnOnce() -> W,
) -> impl Future<Output = O> {
    serve(lock, LockRequest::acquire, refuse, respond, finish, work)
}

/// As [`locked`], but from the acquired lock to its release, the request is served in a task of its own. If the caller
/// leaves, the work goes on, and the response is dropped in that task.
#[expect(clippy::manual_async_fn, reason = "an `async fn` would store its arguments twice")]
pub(crate) fn locked_detached<W, O>(
    lock: RequestLock,
    refuse: impl FnOnce(LockRejection) -> Response + Send + 'static,
    respond: impl FnOnce(W::Output) -> ControlFlow<O, Response> + Send + 'static,
    finish: fn(Response) -> O,
    work: impl FnOnce() -> W + Send + 'static,
) -> impl Future<Output = O> + Send
where
    W: Future + Send + 'static,
    O: Send + 'static,
{
    async move {
        let guard = match lock.request.clone().acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                let rejection = LockRejection::from(error).with_http_options(lock.http);
                return finish(refuse(rejection.with_log_limit(&lock.log_limit)));
            }
        };
        let run = |guard| serve(lock, |_| ready(guard), refuse, respond, finish, work);
        detach(guard, run).await
    }
}

/// Serves a request whose lock is acquired by `acquire`.
#[expect(clippy::manual_async_fn, reason = "an `async fn` would store its arguments twice")]
fn serve<A, W, O>(
    lock: RequestLock,
    acquire: impl FnOnce(LockRequest) -> A,
    refuse: impl FnOnce(LockRejection) -> Response,
    respond: impl FnOnce(W::Output) -> ControlFlow<O, Response>,
    finish: fn(Response) -> O,
    work: impl FnOnce() -> W,
) -> impl Future<Output = O>
where
    A: Future<Output = Result<LockGuard, LockError>>,
    W: Future,
{
    async move {
        let RequestLock { request, on_lost, http, exchange, slot, extractions, log_limit } = lock;
        let refuse = |rejection: LockRejection| {
            finish(refuse(rejection.with_http_options(http).with_log_limit(&log_limit)))
        };
        let guard = match acquire(request).await {
            Ok(guard) => guard,
            Err(error) => return refuse(error.into()),
        };
        // The task of detached work may begin late.
        if let Err(lost) = guard.check_before_work() {
            return refuse(lost.into());
        }
        slot.fill(guard.handle());
        match extractions.run_under(&guard).await {
            Ok(()) => {}
            Err(NotExtracted::Lost(error)) => return refuse(error.into()),
            Err(NotExtracted::Rejected(response)) => {
                guard.release_or_log().await;
                return finish(*response);
            }
        }
        let watch = LossWatcher::new(&guard, on_lost);
        let result = match AbortOnLoss::new(watch, work()).await {
            Ok(output) => respond(output),
            // A lost lock has no release to wait for: dropping the guard cleans up the nodes in the background.
            Err(error) => return refuse(error.into()),
        };
        let (result, guard) = match result {
            Continue(response) if http.hold_until == HoldUntil::EndOfBody => {
                match body::hold(response, guard, on_lost, exchange) {
                    HeldResponse::UntilEnd(response) => return finish(response),
                    HeldResponse::Ended(response, guard) => (Continue(response), guard),
                }
            }
            // A lost lock has no release to wait for.
            Break(output) if !guard.is_valid() => return output,
            result => (result, guard),
        };
        guard.release_or_log().await;
        match result {
            Continue(response) => finish(response),
            Break(output) => output,
        }
    }
}
