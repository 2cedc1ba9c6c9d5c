//! Runs work under a lock, for all front ends of HTTP.

use axum::response::Response;
use futures_util::FutureExt;
use http::request::Parts;
use redlock_core::__private::{AbortOnLoss, LossWatcher, detach};
use redlock_core::{LockError, LockGuard, LockRequest, OnLost};

use super::body::Exchange;
use super::end::{LockEnd, Postponed};
use super::extraction::{Extraction, Extractions};
use crate::extract::lock_slot::LockSlot;
use crate::options::HttpOptions;
use crate::rejection::LockRejection;

/// The properties of a request that decide what happens under its lock.
#[derive(Debug)]
pub(crate) struct RequestParts {
    exchange: Exchange,
    /// The slot of the extractors, which is filled when the lock is held.
    pub(crate) slot: LockSlot,
    /// The parameters of the handler that are extracted when the lock is held.
    extractions: Extractions,
    /// Ends the lock after the commit of a layer around the handler, if there is such a layer.
    postponed: Option<Postponed>,
}

impl RequestParts {
    /// Puts the slot of the lock into the extensions of a request.
    pub(crate) fn of(parts: &mut Parts, fenced: bool) -> Self {
        let slot = LockSlot::pending(fenced);
        parts.extensions.insert(slot.clone());
        let postponed = Postponed::of(&parts.extensions).cloned();
        let exchange = Exchange::new(parts);
        Self { exchange, slot, extractions: Extractions::default(), postponed }
    }

    /// Extracts a parameter when the lock is held, after the parameters before it.
    pub(crate) fn extract_later(&mut self, extraction: Extraction) {
        self.extractions.push(extraction);
    }
}

/// The options and the parts of one request for the time in which its lock is held, or is refused.
#[derive(Debug)]
pub(crate) struct RequestLock {
    pub(crate) http: HttpOptions,
    on_lost: OnLost,
    pub(crate) parts: RequestParts,
}

impl RequestLock {
    pub(crate) fn new(request: &LockRequest, http: HttpOptions, parts: RequestParts) -> Self {
        Self { http, on_lost: request.get_on_lost(), parts }
    }
}

/// The response of a request, or the error of its service. The rejection of a request that is refused or stopped.
pub(crate) type Served<E> = Result<Result<Response, E>, LockRejection>;

/// Acquires the lock, runs the work, and releases the lock. Without the lock the work does not run, and `refuse` makes
/// the response.
///
/// The work is a closure, because a future as an argument would be stored twice.
pub(crate) fn locked<W, E>(
    acquire: impl Future<Output = Result<LockGuard, LockError>>,
    lock: RequestLock,
    refuse: impl FnOnce(LockRejection) -> Response,
    work: impl FnOnce() -> W,
) -> impl Future<Output = Result<Response, E>>
where
    W: Future<Output = Served<E>>,
{
    acquire.then(|acquired| serve(acquired, lock, refuse, work))
}

/// As [`locked`], but from the acquired lock to its release, the request is served in a task of its own. If the caller
/// leaves, the work goes on, and the response is dropped in that task.
pub(crate) fn locked_detached<W, E>(
    acquire: impl Future<Output = Result<LockGuard, LockError>> + Send,
    lock: RequestLock,
    refuse: impl FnOnce(LockRejection) -> Response + Send + 'static,
    work: impl FnOnce() -> W + Send + 'static,
) -> impl Future<Output = Result<Response, E>> + Send
where
    W: Future<Output = Served<E>> + Send + 'static,
    E: Send + 'static,
{
    acquire.then(|acquired| {
        if let (Ok(guard), Some(postponed)) = (&acquired, &lock.parts.postponed) {
            postponed.detach(guard);
        }
        detach(acquired, |acquired| serve(acquired, lock, refuse, work))
    })
}

/// Serves a request whose lock was acquired or refused.
fn serve<W, E>(
    acquired: Result<LockGuard, LockError>,
    lock: RequestLock,
    refuse: impl FnOnce(LockRejection) -> Response,
    work: impl FnOnce() -> W,
) -> impl Future<Output = Result<Response, E>>
where
    W: Future<Output = Served<E>>,
{
    let RequestLock { http, on_lost, parts } = lock;
    let served = async move {
        let guard = acquired?;
        // The task of detached work may begin late.
        guard.check_before_work()?;
        let handle = guard.handle();
        parts.slot.fill(handle.clone());
        let end = LockEnd::new(guard, http, on_lost, parts.exchange, parts.postponed);
        if let Err(response) = parts.extractions.run_under(&handle).await? {
            if let Some(guard) = end.into_guard() {
                guard.release_or_log().await;
            }
            return Ok(Ok(*response));
        }
        let watch = LossWatcher::new(&handle, on_lost);
        // A lost lock has no release to wait for: dropping the guard cleans up the nodes in the background.
        let served = AbortOnLoss::new(watch, work()).await?;
        let (served, guard) = match served {
            Ok(Ok(response)) => {
                let (response, guard) = end.respond(response);
                (Ok(Ok(response)), guard)
            }
            Ok(Err(_)) | Err(_) if !handle.is_valid() => (served, None),
            _ => (served, end.into_guard()),
        };
        if let Some(guard) = guard {
            guard.release_or_log().await;
        }
        served
    };
    served.map(move |served| {
        served.unwrap_or_else(|rejection| Ok(refuse(rejection.with_http_options(http))))
    })
}
