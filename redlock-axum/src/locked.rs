//! The way of one request: key, lock, handler, release.

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{Method, Request};
use redlock_core::scope;
use tower_service::Service;

use crate::body::LockedBody;
use crate::future::ResponseFuture;
use crate::held_slot::HeldSlot;
use crate::hold::Hold;
use crate::options::{HoldUntil, OnLost};
use crate::rejection::LockRejection;
use crate::route_key;
use crate::setup::Setup;
use crate::terms::Terms;
use crate::until_lost::UntilLost;

/// Serves the request by `inner`, which is ready, while its lock is held; without the lock `inner` is
/// not called. Whatever asks for the same lock inside does not wait for itself.
pub(crate) fn serve<S, B>(
    terms: Arc<Terms>,
    setup: Arc<Setup>,
    inner: &mut S,
    request: Request<B>,
) -> ResponseFuture<S::Future, S::Error>
where
    S: Service<Request<B>, Response: IntoResponse, Error: Send, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Send + 'static,
{
    // The clone is not known to be ready; what was polled is.
    let clone = inner.clone();
    let ready = std::mem::replace(inner, clone);
    ResponseFuture::locked(scope(serve_by(ready, terms, setup, request)))
}

async fn serve_by<S, B>(
    mut inner: S,
    terms: Arc<Terms>,
    setup: Arc<Setup>,
    request: Request<B>,
) -> Result<Response, S::Error>
where
    S: Service<Request<B>, Response: IntoResponse>,
{
    let (mut parts, body) = request.into_parts();
    if !terms.lock_fallback && route_key::is_unmatched(&mut parts).await {
        let request = Request::from_parts(parts, body);
        let response = inner.call(request).await?.into_response();
        terms.report_fallback(&response);
        return Ok(response);
    }

    let hold = match acquire(&terms, &setup, &mut parts).await {
        Ok(hold) => hold,
        Err(rejection) => {
            // Before the manager is found, mistakes of the set-up are.
            let rejection = match setup.manager(&parts.extensions) {
                Ok(manager) => rejection.limited_by(manager.log_limit()),
                Err(_) => rejection,
            };
            return Ok(setup.reject(rejection));
        }
    };
    parts.extensions.insert(HeldSlot::Filled(hold.held()));
    // The answer to HEAD has no body that could be sent.
    let until_end_of_body =
        terms.options.hold_until == HoldUntil::EndOfBody && parts.method != Method::HEAD;
    let watch = || match terms.options.on_lost {
        OnLost::KeepGoing => None,
        OnLost::Abort => Some(hold.watch()),
    };

    let request = Request::from_parts(parts, body);
    let result = match UntilLost::new(watch(), inner.call(request)).await {
        Ok(result) => result.map(IntoResponse::into_response),
        Err(error) => {
            return Ok(setup.reject(LockRejection::from(error).limited_by(hold.log_limit())));
        }
    };
    match result {
        Ok(response) if until_end_of_body && !response.body().is_end_stream() => {
            let watch = watch();
            Ok(response.map(|body| Body::new(LockedBody::new(body, hold, watch))))
        }
        Ok(response) if until_end_of_body => {
            // Dropping the body may be the end of its work.
            let response = response.map(|_| Body::empty());
            hold.release().await;
            Ok(response)
        }
        result => {
            hold.release().await;
            result
        }
    }
}

async fn acquire(terms: &Terms, setup: &Setup, parts: &mut Parts) -> Result<Hold, LockRejection> {
    // A mistake refuses every request: better no answer than one without the lock.
    let template = terms.check()?;
    let key = route_key::render(template, parts).await?;
    let manager = setup.manager(&parts.extensions)?;
    let options = &terms.options;
    let request = manager.lock(key).options(options.resolved());
    Hold::acquire(request, options.fenced)
        .await
        .map_err(|error| LockRejection::from(error).with_contended_status(options.contended_status))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;

    use redlock_core::{KeyTemplate, LockManager};

    use super::*;

    /// The `HeldLock` extractor reads the slot.
    #[tokio::test]
    async fn the_inner_service_finds_the_slot_of_its_lock() {
        #[derive(Clone)]
        struct Inner;

        impl Service<Request<Body>> for Inner {
            type Response = String;
            type Error = Infallible;
            type Future = std::future::Ready<Result<String, Infallible>>;

            fn poll_ready(
                &mut self,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Result<(), Infallible>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: Request<Body>) -> Self::Future {
                ready(Ok(request.extensions().get::<HeldSlot>().is_some().to_string()))
            }
        }

        let terms = Terms::new(Ok(KeyTemplate::new("k").unwrap()));
        let mut setup = Setup::default();
        setup.set_manager(LockManager::in_memory());
        let request = Request::new(Body::empty());
        let response = serve(Arc::new(terms), Arc::new(setup), &mut Inner, request).await.unwrap();
        let body = axum::body::to_bytes(response.into_body(), 10).await.unwrap();
        assert_eq!(body, "true");
    }
}
