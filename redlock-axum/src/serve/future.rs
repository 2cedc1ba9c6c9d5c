//! The response future of the services in this crate.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use pin_project_lite::pin_project;
use redlock_core::{Scoped, scope};
use tower::util::Oneshot;
use tower_service::Service;

pin_project! {
    /// Resolves to the response of a service behind a lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the inner service's future and releases the lock in the background. With
    /// [`detached`](crate::LockPolicy::detached), the inner service goes on once the lock is acquired.
    pub struct ResponseFuture<S: Service<Request>> {
        #[pin]
        state: ResponseState<S>,
    }
}

pin_project! {
    #[project = ResponseStateProjection]
    enum ResponseState<S: Service<Request>> {
        Unlocked { #[pin] future: Oneshot<S, Request> },
        // The scope is outside of the box, so that the large future moves only once, into the box.
        Locked { #[pin] future: Scoped<BoxedResponse<S::Error>> },
    }
}

pub(crate) type BoxedResponse<E> = Pin<Box<dyn Future<Output = Result<Response, E>> + Send>>;

impl<S: Service<Request>> ResponseFuture<S> {
    /// Calls the service as soon as it is ready.
    pub(crate) fn unlocked(service: S, request: Request) -> Self {
        Self { state: ResponseState::Unlocked { future: Oneshot::new(service, request) } }
    }

    /// Runs `future` in a [`scope`].
    pub(crate) fn locked(future: BoxedResponse<S::Error>) -> Self {
        Self { state: ResponseState::Locked { future: scope(future) } }
    }

    /// Responds at once.
    pub(crate) fn rejected(response: Response) -> Self
    where
        S::Error: Send + 'static,
    {
        Self::locked(Box::pin(std::future::ready(Ok(response))))
    }
}

impl<S> Future for ResponseFuture<S>
where
    S: Service<Request, Response: IntoResponse>,
{
    type Output = Result<Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            ResponseStateProjection::Unlocked { future } => {
                future.poll(cx).map(|result| result.map(IntoResponse::into_response))
            }
            ResponseStateProjection::Locked { future } => future.poll(cx),
        }
    }
}

impl<S: Service<Request>> fmt::Debug for ResponseFuture<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            ResponseState::Unlocked { .. } => "unlocked",
            ResponseState::Locked { .. } => "locked",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish()
    }
}
