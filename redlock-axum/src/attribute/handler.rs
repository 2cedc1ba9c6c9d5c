//! The lock of a handler with the attribute.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::response::Response;
use pin_project_lite::pin_project;
use redlock_core::__private::Keys;
use redlock_core::{KeyError, LockManager, LockRequest, scope};

use super::deferred::{Deferred, Extracted};
use super::options::Options;
use crate::rejection::LockRejection;
use crate::scope_layer::Installed;
use crate::serve::locked::{RequestLock, RequestParts, Served, locked, locked_detached};
use crate::serve::unread::{ReadBeside, Unread};

/// The hidden extractor of a locked handler, which runs before the handler's own extractors.
///
/// It takes the manager from the router's state or, if it is `INSTALLED`, from the [`ScopeLayer`](crate::ScopeLayer), and
/// inserts an empty slot of the lock for the other extractors.
#[derive(Debug)]
pub struct HandlerLock<const FENCED: bool, const INSTALLED: bool = false> {
    manager: LockManager,
    parts: RequestParts,
}

impl<S, const FENCED: bool> FromRequestParts<S> for HandlerLock<FENCED>
where
    S: Sync,
    LockManager: FromRef<S>,
{
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, LockRejection> {
        Ok(Self::new(parts, LockManager::from_ref(state)))
    }
}

impl<S: Sync, const FENCED: bool> FromRequestParts<S> for HandlerLock<FENCED, true> {
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, LockRejection> {
        let Some(manager) = Installed::manager(&parts.extensions).cloned() else {
            return Err(LockRejection::missing_manager().at_route_of(parts));
        };
        Ok(Self::new(parts, manager))
    }
}

impl<const FENCED: bool, const INSTALLED: bool> HandlerLock<FENCED, INSTALLED> {
    fn new(parts: &mut Parts, manager: LockManager) -> Self {
        Self { manager, parts: RequestParts::of(parts, FENCED) }
    }

    /// Extracts a parameter when the lock is held, after the parameters before it.
    pub fn extract_later<T>(&mut self, parameter: Deferred<T>) -> Extracted<T> {
        let (extraction, extracted) = parameter.into_parts();
        self.parts.extract_later(extraction);
        extracted
    }

    /// Runs the handler under its lock. `respond` makes the response of the handler's output, and `refuse` that of a
    /// request whose handler does not run, or is stopped. `work` returns `None` if a parameter was not extracted.
    pub fn serve<W: Future>(
        self,
        unread: Unread,
        keys: Result<impl Into<Keys>, KeyError>,
        options: Options,
        refuse: impl FnOnce(LockRejection) -> Response,
        respond: fn(W::Output) -> Response,
        work: impl FnOnce() -> Option<W>,
    ) -> impl Future<Output = Response> {
        let http = options.http;
        let request = LockRequest::new(self.manager.context(), keys.map(Into::into));
        let request = options.apply_to(request);
        let lock = RequestLock::new(&request, http, self.parts);
        let refuse = refusing(self.manager, unread.clone(), refuse);
        let work = move || HandlerWork { begun: work(), respond };
        let acquire = async { request.prepare()?.acquire().await };
        ReadBeside::new(unread, scope(locked(acquire, lock, refuse, work)))
    }

    /// As [`serve`](Self::serve), but from the acquired lock to its release, the handler runs in a task of its own.
    pub fn serve_detached<W: Future + Send + 'static>(
        self,
        unread: Unread,
        keys: Result<impl Into<Keys>, KeyError>,
        options: Options,
        refuse: impl FnOnce(LockRejection) -> Response + Send + 'static,
        respond: fn(W::Output) -> Response,
        work: impl FnOnce() -> Option<W> + Send + 'static,
    ) -> impl Future<Output = Response> {
        let http = options.http;
        let request = LockRequest::new(self.manager.context(), keys.map(Into::into));
        let request = options.apply_to(request);
        let lock = RequestLock::new(&request, http, self.parts);
        let refuse = refusing(self.manager, unread.clone(), refuse);
        let work = move || HandlerWork { begun: work(), respond };
        let acquire = async { request.prepare()?.acquire().await };
        ReadBeside::new(unread, scope(locked_detached(acquire, lock, refuse, work)))
    }
}

/// Logs a refusal within the limit of the manager, and reads the rest of the body after the response.
fn refusing(
    manager: LockManager,
    unread: Unread,
    refuse: impl FnOnce(LockRejection) -> Response,
) -> impl FnOnce(LockRejection) -> Response {
    move |rejection| {
        let response = refuse(rejection.with_log_limit(manager.log_limit()));
        unread.read_after(response, &manager)
    }
}

pin_project! {
    /// The future of a handler's code. `begun` is `None` if the code does not run.
    struct HandlerWork<W: Future> {
        #[pin]
        begun: Option<W>,
        respond: fn(W::Output) -> Response,
    }
}

impl<W: Future> Future for HandlerWork<W> {
    type Output = Served<Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.begun.as_pin_mut() {
            Some(work) => work.poll(cx).map(this.respond).map(|response| Ok(Ok(response))),
            None => Poll::Ready(Err(LockRejection::misconfigured(
                "a parameter that depends on the lock has no value when the lock is held, so the handler has not begun; \
                 leave out the parameter, and report this mistake of redlock-axum",
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::RequestExt;
    use axum::body::Body;
    use axum::extract::{Path, Request};
    use axum::response::IntoResponse;
    use redlock_core::{LockKey, MemoryNode};

    use super::super::options::{Form, options};
    use super::*;

    type Parameters = (HandlerLock<false>, Deferred<Path<u64>>);

    /// The generated code leaves each extraction to the lock. Without the extraction there is no value.
    #[tokio::test]
    async fn a_handler_without_a_value_answers_500_and_releases_its_lock() {
        let node = MemoryNode::new();
        let locks = LockManager::builder().memory_node(&node).connect().await.unwrap();
        let mut request = Request::new(Body::empty());
        let unread = Unread::of(&mut request);
        let extracted = request.extract_with_state::<Parameters, _, _>(&locks).await;
        let (lock, parameter) = extracted.unwrap();
        let (_, value) = parameter.into_parts();
        let work = move || {
            let value = value.take()?;
            Some(async move { value.to_string() })
        };
        let options = options(Form::Handler, 1000, "a", "f", &[]);
        let key = LockKey::new("a");
        let refuse = IntoResponse::into_response;
        let response =
            lock.serve(unread, key, options, refuse, IntoResponse::into_response, work).await;
        assert_eq!(response.status(), 500);
        assert!(node.is_empty());
    }
}
