//! The response future of the services in this crate.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::response::{IntoResponse, Response};
use pin_project_lite::pin_project;
use redlock_core::{Scoped, scope};

pin_project! {
    /// Resolves to the response of a service behind a lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the inner service's future and releases the lock in the background. With
    /// [`detached`](crate::LockPolicy::detached), the inner service goes on once the lock is acquired.
    pub struct ResponseFuture<F, E> {
        #[pin]
        state: ResponseState<F, E>,
    }
}

pin_project! {
    #[project = ResponseStateProjection]
    enum ResponseState<F, E> {
        Unlocked { #[pin] future: F },
        // The scope is outside of the box, so that the large future moves only once, into the box.
        Locked { #[pin] future: Scoped<BoxedResponse<E>> },
    }
}

type BoxedResponse<E> = Pin<Box<dyn Future<Output = Result<Response, E>> + Send>>;

impl<F, E> ResponseFuture<F, E> {
    pub(crate) fn unlocked(future: F) -> Self {
        Self { state: ResponseState::Unlocked { future } }
    }

    /// Runs `future` in a [`scope`].
    pub(crate) fn locked(
        future: impl Future<Output = Result<Response, E>> + Send + 'static,
    ) -> Self {
        Self { state: ResponseState::Locked { future: scope(Box::pin(future)) } }
    }

    /// Responds at once.
    pub(crate) fn rejected(response: Response) -> Self
    where
        E: Send + 'static,
    {
        Self::locked(std::future::ready(Ok(response)))
    }
}

impl<F, R, E> Future for ResponseFuture<F, E>
where
    F: Future<Output = Result<R, E>>,
    R: IntoResponse,
{
    type Output = Result<Response, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            ResponseStateProjection::Unlocked { future } => {
                future.poll(cx).map(|result| result.map(IntoResponse::into_response))
            }
            ResponseStateProjection::Locked { future } => future.poll(cx),
        }
    }
}

impl<F, E> fmt::Debug for ResponseFuture<F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            ResponseState::Unlocked { .. } => "unlocked",
            ResponseState::Locked { .. } => "locked",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish()
    }
}
