use std::sync::Arc;
use std::task::{Context, Poll};

use axum::response::{IntoResponse, Response};
use http::Request;
use tower_service::Service;

use crate::future::ResponseFuture;
use crate::locked;
use crate::setup::Setup;
use crate::terms::Terms;

/// Locks requests before it hands them on. Made by [`LockLayer`](super::LockLayer).
#[derive(Debug, Clone)]
pub struct LockService<S> {
    inner: S,
    terms: Arc<Terms>,
    setup: Arc<Setup>,
}

impl<S> LockService<S> {
    pub(super) fn new(inner: S, terms: Arc<Terms>, setup: Arc<Setup>) -> Self {
        Self { inner, terms, setup }
    }
}

impl<S, B> Service<Request<B>> for LockService<S>
where
    S: Service<Request<B>, Response: IntoResponse, Error: Send, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Send + 'static,
{
    type Response = Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !self.terms.cover(request.method()) {
            return ResponseFuture::unlocked(self.inner.call(request));
        }
        let (terms, setup) = (Arc::clone(&self.terms), Arc::clone(&self.setup));
        locked::serve(terms, setup, &mut self.inner, request)
    }
}
