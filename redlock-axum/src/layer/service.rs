use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::{Body, HttpBody};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::Request;
use redlock_core::LockError;
use tower_service::Service;

use super::{LockLayer, Matched};
use crate::extract::lock_slot::LockSlot;
use crate::options::BodyMode;
use crate::rejection::LockRejection;
use crate::serve::locked::{Served, locked, locked_detached};
use crate::serve::unread::Unread;
use crate::serve::{BoxedResponse, ResponseFuture, buffered, streamed};

/// Locks each request that has a policy before passing it to the inner service. Created by [`LockLayer`].
#[derive(Debug, Clone)]
pub struct LockService<S> {
    inner: S,
    layer: LockLayer,
}

impl<S> LockService<S> {
    /// Creates a service that locks each request that has a policy of `layer` before it calls `inner`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use axum::body::Body;
    /// use http::{Request, Response};
    /// use redlock_axum::{LockLayer, LockManager, LockService};
    /// use tower::{ServiceExt, service_fn};
    ///
    /// async fn import(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    ///     Ok(Response::new(Body::from("imported")))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = LockLayer::new(&LockManager::in_memory(), "import")?;
    /// let service = LockService::new(service_fn(import), layer);
    /// let response = service.oneshot(Request::new(Body::empty())).await?;
    /// assert_eq!(response.status(), 200);
    /// # Ok(()) }
    /// ```
    pub fn new(inner: S, layer: LockLayer) -> Self {
        Self { inner, layer }
    }

    /// Gets a reference to the underlying service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Gets a mutable reference to the underlying service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Consumes `self`, returning the underlying service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B> Service<Request<B>> for LockService<S>
where
    S: Service<Request<Body>, Response: IntoResponse, Error: Send, Future: Send>
        + Clone
        + Send
        + 'static,
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response;
    type Error = S::Error;
    type Future = ResponseFuture<S>;

    /// Is always ready. The inner service is asked after the lock is acquired, so that a request that waits for its lock
    /// takes no place of the inner service, such as one of a concurrency limit.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let matched = self.layer.lock(&mut parts);
        let mut request = Request::from_parts(parts, Body::new(body));
        let inner = self.inner.clone();
        match matched {
            Ok(Some(matched)) => {
                let layer = self.layer.clone();
                let unread = Unread::of(&mut request);
                ResponseFuture::locked(if matched.reads_body(&request) {
                    Box::pin(receive_and_lock(layer, matched, inner, request, unread))
                } else {
                    lock(layer, matched, inner, request, unread)
                })
            }
            Ok(None) => ResponseFuture::unlocked(inner, request),
            Err(rejection) => {
                let unread = Unread::of(&mut request);
                let response = self.layer.reject(rejection);
                ResponseFuture::rejected(unread.read_after(response, &self.layer.locks))
            }
        }
    }
}

impl Matched {
    fn refuse(self, layer: &LockLayer, rejection: LockRejection, unread: &Unread) -> Response {
        let response = layer.reject(rejection.with_http_options(self.lock.http).at(self.origin));
        unread.read_after(response, &layer.locks)
    }

    /// Returns whether the layer reads the body of the request before it requests the lock.
    fn reads_body(&self, request: &Request<Body>) -> bool {
        self.body.mode == BodyMode::Buffer && !request.body().is_end_stream()
    }
}

/// Reads the body of a request into memory, acquires its lock, and calls the service. A request that is refused anyway is
/// answered at once: its client need not send the body.
async fn receive_and_lock<S>(
    layer: LockLayer,
    matched: Matched,
    inner: S,
    request: Request<Body>,
    unread: Unread,
) -> Result<Response, S::Error>
where
    S: Service<Request<Body>, Response: IntoResponse, Error: Send, Future: Send> + Send + 'static,
{
    if let Some(refusal) = matched.acquisition.refusal_at_once() {
        return Ok(matched.refuse(&layer, refusal.into(), &unread));
    }
    let received = {
        let space = layer.locks.body_buffers();
        let read = pin!(buffered::read(request, matched.body.limit, space));
        buffered::unless_drained(read, &matched.acquisition).await
    };
    match received {
        Ok(request) => lock(layer, matched, inner, request, unread).await,
        Err(rejection) => Ok(matched.refuse(&layer, rejection, &unread)),
    }
}

/// Acquires the lock of a request, and calls the service.
fn lock<S>(
    layer: LockLayer,
    matched: Matched,
    inner: S,
    request: Request<Body>,
    unread: Unread,
) -> BoxedResponse<S::Error>
where
    S: Service<Request<Body>, Response: IntoResponse, Error: Send, Future: Send> + Send + 'static,
{
    let Matched { acquisition, lock, origin, body } = matched;
    let streamed = body.mode == BodyMode::Stream && !request.body().is_end_stream();
    let (is_detached, slot) = (lock.http.detached, lock.parts.slot.clone());
    let refuse = move |rejection: LockRejection| {
        let response = layer.reject(rejection.at(origin));
        unread.read_after(response, &layer.locks)
    };
    let work = move || call_under_lock(inner, request, slot, streamed);
    if is_detached {
        Box::pin(locked_detached(acquisition.acquire(), lock, refuse, work))
    } else {
        Box::pin(locked(acquisition.acquire(), lock, refuse, work))
    }
}

/// Waits until the service is ready, and calls it. Rejects a request that the service does not get, or not as a whole.
/// `streamed` limits the time for the request's body.
#[expect(clippy::manual_async_fn, reason = "an `async fn` would store its arguments twice")]
fn call_under_lock<S: Service<Request<Body>, Response: IntoResponse>>(
    mut inner: S,
    mut request: Request<Body>,
    slot: LockSlot,
    streamed: bool,
) -> impl Future<Output = Served<S::Error>> {
    async move {
        let handle = slot.handle();
        let mut cut = None;
        if streamed && let Some(handle) = handle {
            let body = std::mem::take(request.body_mut());
            let (body, of_body) = streamed::limit(body, handle.clone());
            (*request.body_mut(), cut) = (body, Some(of_body));
        }
        let mut has_waited = false;
        let ready = poll_fn(|cx| {
            let ready = inner.poll_ready(cx);
            has_waited |= ready.is_pending();
            ready
        });
        if let Err(error) = ready.await {
            return Ok(Err(error));
        }
        if has_waited
            && let Some(handle) = handle
            && !handle.is_valid()
        {
            return Err(LockError::Lost(handle.loss()).into());
        }
        let result = inner.call(request).await;
        match cut.zip(handle).and_then(|(cut, handle)| cut.rejection(handle)) {
            Some(rejection) => Err(rejection),
            None => Ok(result.map(IntoResponse::into_response)),
        }
    }
}
