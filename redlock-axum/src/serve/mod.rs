//! Serves one request: makes the key, acquires the lock, calls the handler, releases the lock.

pub(crate) mod body;
mod future;
pub(crate) mod locked;
mod request_values;
pub(crate) mod route_key;

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::response::IntoResponse;
use http::request::Parts;
use http::{Method, Request};
use tower_service::Service;

use crate::config::LayerConfig;
use crate::config::RouteLock;
use crate::extract::lock_slot::LockSlot;
use crate::options::RouteOptions;
use crate::rejection::LockRejection;
pub use future::ResponseFuture;
use locked::{RequestLock, locked, locked_detached};

/// Acquires the lock, and calls `inner` while the lock is held. Without the lock `inner` is not called.
///
/// `inner` must be ready. The call runs in a [`scope`](redlock_core::scope()), so that a second request for the
/// same lock inside of it fails instead of waiting for itself.
pub(crate) fn serve<S, B>(
    route_lock: &Arc<RouteLock>,
    config: &Arc<LayerConfig>,
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
    let (mut parts, body) = request.into_parts();
    if !route_lock.lock_fallback && route_key::is_unmatched(&mut parts) {
        let call = inner.call(Request::from_parts(parts, body));
        let route_lock = Arc::clone(route_lock);
        return ResponseFuture::boxed(async move {
            let response = call.await?.into_response();
            route_lock.report_fallback(&response);
            Ok(response)
        });
    }
    let lock = match lock_of_request(route_lock, config, &mut parts) {
        Ok(lock) => lock,
        Err(rejection) => {
            // The failure may have preceded the look-up of the manager, whose limit applies to the log.
            let rejection = match config.manager(&parts.extensions) {
                Some(manager) => rejection.with_log_limit(manager.log_limit()),
                None => rejection,
            };
            return ResponseFuture::rejected(config.reject(rejection));
        }
    };
    // Only the service on which `poll_ready` was called is ready, so the clone stays behind.
    let clone = inner.clone();
    let mut inner = std::mem::replace(inner, clone);
    let config = Arc::clone(config);
    let respond = |result: Result<S::Response, S::Error>| match result {
        Ok(response) => ControlFlow::Continue(response.into_response()),
        Err(error) => ControlFlow::Break(Err(error)),
    };
    let work = move || inner.call(Request::from_parts(parts, body));
    let refuse = move |rejection| config.reject(rejection);
    if lock.http.detached {
        return ResponseFuture::locked(locked_detached(lock, refuse, respond, Ok, work));
    }
    ResponseFuture::locked(locked(lock, refuse, respond, Ok, work))
}

/// Returns the lock of a request, and puts its slot into the extensions of the request.
fn lock_of_request(
    route_lock: &RouteLock,
    config: &LayerConfig,
    parts: &mut Parts,
) -> Result<RequestLock, LockRejection> {
    // A mistake in the settings refuses every request (no work without the lock).
    let key = route_lock.check()?;
    let key = route_key::of_request(key, config, parts)?;
    let manager = config.manager(&parts.extensions).ok_or_else(LockRejection::missing_manager)?;
    let RouteOptions { lock, http, .. } = &route_lock.options;
    let slot = LockSlot::pending(lock.fenced.unwrap_or_default());
    let lock = RequestLock {
        request: manager.lock(key).options(route_lock.options.options_for(&parts.method)),
        on_lost: lock.on_lost.unwrap_or_default(),
        http: *http,
        is_head: parts.method == Method::HEAD,
        slot: slot.clone(),
        log_limit: Arc::clone(manager.log_limit()),
    };
    parts.extensions.insert(slot);
    Ok(lock)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;

    use axum::body::Body;
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
                ready(Ok(request.extensions().get::<LockSlot>().is_some().to_string()))
            }
        }

        let route_lock = RouteLock::new(Ok(KeyTemplate::new("k").unwrap()));
        let mut config = LayerConfig::default();
        config.set_manager(LockManager::in_memory());
        let request = Request::new(Body::empty());
        let response =
            serve(&Arc::new(route_lock), &Arc::new(config), &mut Inner, request).await.unwrap();
        let body = axum::body::to_bytes(response.into_body(), 10).await.unwrap();
        assert_eq!(body, "true");
    }
}
