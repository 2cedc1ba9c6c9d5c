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

/// The response of the work's output, or the result of a request without a response.
pub(crate) type Responded<O> = Result<ControlFlow<O, Response>, LockRejection>;

/// Acquires the lock, runs the work, and releases the lock. Without the lock the work does not run, and `refuse` makes
/// the response.
///
/// `respond` makes the response of the work's output, or breaks with the result of a request without a response, or fails with
/// a rejection for `refuse`. `finish` turns a response into such a result.
///
/// The work is a closure, because a future as an argument would be stored twice.
pub(crate) fn locked<W: Future, O>(
    lock: RequestLock,
    refuse: impl FnOnce(LockRejection) -> Response,
    respond: impl FnOnce(W::Output) -> Responded<O>,
    finish: fn(Response) -> O,
    work: impl FnOnce() -> W,
) -> impl Future<Output = O> {
    serve(lock, LockRequest::acquire_for_work, refuse, respond, finish, work)
}

/// As [`locked`], but from the acquired lock to its release, the request is served in a task of its own. If the caller
/// leaves, the work goes on, and the response is dropped in that task.
#[expect(clippy::manual_async_fn, reason = "an `async fn` would store its arguments twice")]
pub(crate) fn locked_detached<W, O>(
    lock: RequestLock,
    refuse: impl FnOnce(LockRejection) -> Response + Send + 'static,
    respond: impl FnOnce(W::Output) -> Responded<O> + Send + 'static,
    finish: fn(Response) -> O,
    work: impl FnOnce() -> W + Send + 'static,
) -> impl Future<Output = O> + Send
where
    W: Future + Send + 'static,
    O: Send + 'static,
{
    async move {
        let guard = match lock.request.clone().acquire_for_work().await {
            Ok(guard) => guard,
            Err(error) => return finish(refuse(lock.http.rejection(error, &lock.log_limit))),
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
    respond: impl FnOnce(W::Output) -> Responded<O>,
    finish: fn(Response) -> O,
    work: impl FnOnce() -> W,
) -> impl Future<Output = O>
where
    A: Future<Output = Result<LockGuard, LockError>>,
    W: Future,
{
    async move {
        // A captured value that moves into a variable or into another closure stays in the future, which then has both places.
        let guard = match acquire(lock.request).await {
            Ok(guard) => guard,
            Err(error) => return finish(refuse(lock.http.rejection(error, &lock.log_limit))),
        };
        // The task of detached work may begin late.
        if let Err(lost) = guard.check_before_work() {
            return finish(refuse(lock.http.rejection(lost, &lock.log_limit)));
        }
        lock.slot.fill(guard.handle());
        match lock.extractions.run_under(&guard).await {
            Ok(()) => {}
            Err(NotExtracted::Lost(error)) => {
                return finish(refuse(lock.http.rejection(error, &lock.log_limit)));
            }
            Err(NotExtracted::Rejected(response)) => {
                guard.release_or_log().await;
                return finish(*response);
            }
        }
        let watch = LossWatcher::new(&guard, lock.on_lost);
        let result = match AbortOnLoss::new(watch, work()).await {
            Ok(output) => respond(output).unwrap_or_else(|rejection| {
                Break(finish(refuse(lock.http.rejection(rejection, &lock.log_limit))))
            }),
            // A lost lock has no release to wait for: dropping the guard cleans up the nodes in the background.
            Err(error) => return finish(refuse(lock.http.rejection(error, &lock.log_limit))),
        };
        let (result, guard) = match result {
            Continue(response) if lock.http.hold_until == HoldUntil::EndOfBody => {
                match body::hold(response, guard, lock.on_lost, lock.exchange) {
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
