//! The service: asks whether a request has an answer already, and locks its key.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::{Body, HttpBody};
use axum::extract::MatchedPath;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::Request;
use http::request::Parts;
use redlock_core::__private::{Acquisition, detach};
use tower_layer::Layer;
use tower_service::Service;

use super::answers::AnswerId;
use super::fingerprint::Fingerprint;
use super::key;
use super::layer::IdempotencyLayer;
use super::rejection::IdempotencyRejection;
use super::settings::Settings;
use super::turn::{Turn, bounded};
use crate::rejection::LockRejection;
use crate::serve::unread::Unread;
use crate::serve::{ResponseFuture, buffered};

/// Executes each request with an idempotency key once. Created by [`IdempotencyLayer`].
#[derive(Debug, Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    layer: IdempotencyLayer,
}

impl<S> IdempotencyService<S> {
    /// Creates a service that asks the store of `layer` before it calls `inner`.
    pub fn new(inner: S, layer: IdempotencyLayer) -> Self {
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

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, self.clone())
    }
}

/// A request with a key.
struct Keyed {
    settings: Arc<Settings>,
    id: AnswerId,
    acquisition: Acquisition,
    route: Option<MatchedPath>,
}

impl Keyed {
    /// Returns the key of a request; `None` if the request passes by.
    fn of(layer: &IdempotencyLayer, parts: &Parts) -> Result<Option<Self>, IdempotencyRejection> {
        let settings = &layer.settings;
        if !settings.covers(&parts.method) {
            return Ok(None);
        }
        let key = match key::read(&parts.headers) {
            Ok(Some(key)) => key,
            Ok(None) if settings.is_optional => return Ok(None),
            Ok(None) => return Err(IdempotencyRejection::missing_key()),
            Err(detail) => return Err(IdempotencyRejection::invalid_key(detail)),
        };
        let id = AnswerId::new(&layer.scope_of(parts)?, &key);
        let acquisition = settings.lock(&id).prepare().map_err(LockRejection::from)?;
        let route = parts.extensions.get().cloned();
        Ok(Some(Self { settings: Arc::clone(settings), id, acquisition, route }))
    }
}

impl<S, B> Service<Request<B>> for IdempotencyService<S>
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

    /// Is always ready. The inner service is asked under the lock.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let keyed =
            Keyed::of(&self.layer, &parts).map_err(|rejection| rejection.at_route_of(&parts));
        let mut request = Request::from_parts(parts, Body::new(body));
        match keyed {
            Ok(None) => ResponseFuture::unlocked(self.inner.clone(), request),
            Ok(Some(keyed)) => {
                let unread = Unread::of(&mut request);
                let inner = self.inner.clone();
                ResponseFuture::locked(Box::pin(answer(keyed, inner, request, unread)))
            }
            Err(rejection) => {
                let unread = Unread::of(&mut request);
                let Settings { locks, .. } = &*self.layer.settings;
                let response = self.layer.settings.reject(rejection);
                ResponseFuture::rejected(unread.read_after(response, locks))
            }
        }
    }
}

/// Reads the body of a request, and answers the request: by its stored answer, or by the inner service under the lock.
async fn answer<S>(
    keyed: Keyed,
    inner: S,
    request: Request<Body>,
    unread: Unread,
) -> Result<Response, S::Error>
where
    S: Service<Request<Body>, Response: IntoResponse, Error: Send, Future: Send> + Send + 'static,
{
    let Keyed { settings, id, acquisition, route } = keyed;
    let reject = |rejection: IdempotencyRejection| {
        let response = settings.reject(rejection.at_route(route.clone()));
        Ok(unread.read_after(response, &settings.locks))
    };
    let received = {
        let space = settings.locks.body_buffers();
        let read = pin!(buffered::read_data(request, Some(settings.longest_body()), space));
        buffered::unless_drained(read, &acquisition).await
    };
    let (parts, body, fingerprint) = match received {
        Ok((request, data)) => {
            let (parts, body) = request.into_parts();
            let fingerprint = Fingerprint::of(&parts, &data);
            (parts, body, fingerprint)
        }
        Err(rejection) => return reject(rejection.into()),
    };
    let turn = Turn::new(Arc::clone(&settings), id, fingerprint, route.clone());
    // An answer never changes, so no lock is needed to read it.
    match bounded(settings.answers.load(turn.id())).await {
        Err(error) => return reject(error.into()),
        Ok(Some(record)) => {
            if let Some(response) = turn.answer_of(record) {
                return Ok(response);
            }
        }
        Ok(None) => {}
    }
    let acquired = acquisition.acquire().await;
    let request = Request::from_parts(parts, body);
    if settings.is_detached {
        detach(acquired, |acquired| turn.serve(acquired, inner, request)).await
    } else {
        turn.serve(acquired, inner, request).await
    }
}
