//! The tower layer that ends locks after the commit of another layer.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use axum::response::{IntoResponse, Response};
use http::Request;
use redlock_core::__private::stay;
use redlock_core::scope;
use tokio::runtime::Handle;
use tower_layer::Layer;
use tower_service::Service;
use tracing::{Instrument, Span};

use crate::serve::BoxedResponse;
use crate::serve::end::Postponed;

/// Runs a layer that commits after the handler, such as one with a transaction or a session, and ends the locks of the
/// handler after that commit.
///
/// Without it, the lock of a handler ends with the handler, before such a layer commits. The next holder then reads the old
/// values, and one of two writes is lost. `CommitUnderLock` takes the layer as its argument, so that the order cannot be
/// wrong. The page [`guide::transactions`](crate::guide::transactions) compares it with the other ways.
///
/// # Examples
///
/// ```
/// use axum::extract::{Path, Request};
/// use axum::middleware::{Next, from_fn};
/// use axum::response::Response;
/// use axum::{Router, routing::post};
/// use redlock_axum::{CommitUnderLock, LockManager, redis_lock};
///
/// /// Begins a transaction, and commits it after the handler.
/// async fn transaction(request: Request, next: Next) -> Response {
///     let response = next.run(request).await;
///     // .. commit ..
///     response
/// }
///
/// #[redis_lock(key = "stock:{sku}", wait_time = 5)]
/// async fn reserve(Path(sku): Path<String>) -> String {
///     format!("one {sku} is reserved")
/// }
///
/// let app: Router = Router::new()
///     .route("/stock/{sku}", post(reserve))
///     .layer(CommitUnderLock::new(from_fn(transaction)))
///     .with_state(LockManager::in_memory());
/// ```
///
/// # The end of the locks
///
/// It postpones the end of each lock that the [attribute](crate::redis_lock) of a handler, or a
/// [`LockLayer`](crate::LockLayer), acquires inside. When the service of the wrapped layer has returned its response, and its future is
/// dropped, the locks are released, and then the response is sent. The first `CommitUnderLock` of a request ends the locks of
/// all others inside.
///
/// * A client that leaves ends the request, as it does without this layer: the transaction is dropped, and then the
///   locks are released in the background.
/// * With `detached`, the handler and the wrapped layer both run to their ends when the client leaves, and the writes are
///   committed. [`LockManager::shutdown`](crate::LockManager::shutdown) waits for them.
/// * With `on_lost = abort`, a loss of the lock before the end of the commit drops the request. The response is a
///   [`LockRejection`](crate::LockRejection) with 503; after the handler, `on_reject` does not change it. If the loss comes
///   during the commit, the commit may have happened.
/// * With `hold_until = end_of_body`, the body of the response holds the lock after the commit.
/// * A handler that panics keeps its lock until the wrapped layer has ended, too.
///
/// The locks that a handler acquires by hand, by [`LockRequest::run`](crate::LockRequest::run), or by an attribute with
/// `manager` end as they do everywhere: commit before their end. A time limit inside of the wrapped layer ends it and all
/// waiting for a `detached` handler. Place time limits outside, and also layers that repeat a request: a repetition meets its
/// own lock.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct CommitUnderLock<L> {
    layer: L,
}

impl<L> CommitUnderLock<L> {
    /// Wraps the layer that commits.
    pub fn new(layer: L) -> Self {
        Self { layer }
    }
}

impl<S, L: Layer<S>> Layer<S> for CommitUnderLock<L> {
    type Service = CommitUnderLockService<L::Service>;

    fn layer(&self, inner: S) -> Self::Service {
        CommitUnderLockService { inner: self.layer.layer(inner) }
    }
}

/// Ends the locks of each request after the inner service, which commits, has returned its response. Created by
/// [`CommitUnderLock`].
#[derive(Debug, Clone)]
pub struct CommitUnderLockService<S> {
    inner: S,
}

impl<S, B> Service<Request<B>> for CommitUnderLockService<S>
where
    S: Service<
            Request<B>,
            Response: IntoResponse + 'static,
            Error: Send + 'static,
            Future: Send + 'static,
        >,
{
    type Response = Response;
    type Error = S::Error;
    type Future = BoxedResponse<S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if Postponed::of(request.extensions()).is_some() {
            let response = self.inner.call(request);
            return Box::pin(async { response.await.map(IntoResponse::into_response) });
        }
        let postponed = Postponed::new();
        request.extensions_mut().insert(postponed.clone());
        let response = self.inner.call(request);
        let work = until_committed(response, Closing(postponed.clone()));
        // The inner future enters the scope at its first poll, and stays in it if it moves to another task.
        let work = Box::pin(scope(async { stay(work).await }));
        Box::pin(Detachable { work: Some(work), postponed, span: Span::current() })
    }
}

/// Ends the postponed locks when it is dropped.
struct Closing(Postponed);

impl Drop for Closing {
    /// Releases the locks in the background, whatever else keeps the extensions of the request alive.
    fn drop(&mut self) {
        drop(self.0.close());
    }
}

/// Serves the request, and ends its locks.
async fn until_committed<R: IntoResponse, E>(
    response: impl Future<Output = Result<R, E>>,
    closing: Closing,
) -> Result<Response, E> {
    let postponed = &closing.0;
    let served = {
        let mut response = pin!(response);
        std::future::poll_fn(|cx| {
            // The locks are checked first: a request that has lost its lock must not be polled again.
            if let Poll::Ready(rejection) = postponed.poll_lost(cx) {
                return Poll::Ready(Err(rejection));
            }
            match response.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(Ok(result.map(IntoResponse::into_response))),
                // The poll may have left another lock.
                Poll::Pending => postponed.poll_lost(cx).map(Err),
            }
        })
        .await
        // The inner future, which may contain the transaction, is dropped here, before the locks end.
    };
    let locks = postponed.close();
    match served {
        Ok(Ok(mut response)) => {
            for lock in locks {
                let (answer, guard) = lock.respond(response);
                response = answer;
                if let Some(guard) = guard {
                    guard.release_or_log().await;
                }
            }
            Ok(response)
        }
        Ok(Err(error)) => {
            for lock in locks {
                lock.into_guard().release_or_log().await;
            }
            Err(error)
        }
        // A lost lock has no release to wait for.
        Err(rejection) => Ok(rejection.into_response()),
    }
}

/// Serves a request in the task of its client or, after the client has left, in a task of its own.
struct Detachable<E: Send + 'static> {
    /// `None` while it is polled, and when it has ended.
    work: Option<BoxedResponse<E>>,
    postponed: Postponed,
    span: Span,
}

impl<E: Send + 'static> Future for Detachable<E> {
    type Output = Result<Response, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // A panic drops the work.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let result = work.as_mut().poll(cx);
        if result.is_pending() {
            self.work = Some(work);
        }
        result
    }
}

impl<E: Send + 'static> Drop for Detachable<E> {
    /// Lets a request go on whose client has left, if one of its locks is `detached`.
    fn drop(&mut self) {
        if self.postponed.is_detached()
            && let Some(work) = self.work.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(work.instrument(self.span.clone()));
        }
    }
}
