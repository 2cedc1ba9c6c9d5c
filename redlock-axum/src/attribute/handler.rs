//! The lock of a handler with the attribute.

use std::convert::identity;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;
use http::Method;
use redlock_core::__private::{Keys, request_of};
use redlock_core::{KeyError, LockManager, LockOptions, scope};

use crate::extract::lock_slot::LockSlot;
use crate::options::HttpOptions;
use crate::rejection::LockRejection;
use crate::serve::locked::{RequestLock, locked};

/// The hidden extractor of a locked handler, which runs before the handler's own extractors.
///
/// It extracts the manager by `M`, from the state or from the layer, and inserts an empty `LockSlot` for the other
/// extractors.
#[derive(Debug)]
pub struct HandlerLock<M, const FENCED: bool> {
    manager: LockManager,
    slot: LockSlot,
    is_head: bool,
    extractor: PhantomData<fn() -> M>,
}

impl<S, M, const FENCED: bool> FromRequestParts<S> for HandlerLock<M, FENCED>
where
    S: Sync,
    M: FromRequestParts<S, Rejection: Into<LockRejection>> + Into<LockManager>,
{
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, LockRejection> {
        let manager = M::from_request_parts(parts, state).await.map_err(Into::into)?.into();
        let slot = LockSlot::pending(FENCED);
        parts.extensions.insert(slot.clone());
        let is_head = parts.method == Method::HEAD;
        Ok(Self { manager, slot, is_head, extractor: PhantomData })
    }
}

impl<M, const FENCED: bool> HandlerLock<M, FENCED> {
    /// Runs the handler under its lock, with a fencing token if `FENCED`. `respond` makes the response of the handler's
    /// output, and `refuse` that of a request whose handler does not run, or is stopped.
    pub fn serve<W: Future>(
        self,
        keys: Result<impl Into<Keys>, KeyError>,
        options: LockOptions,
        http: HttpOptions,
        refuse: impl FnOnce(LockRejection) -> Response,
        respond: fn(W::Output) -> Response,
        work: impl FnOnce() -> W,
    ) -> impl Future<Output = Response> {
        let Self { manager, slot, is_head, .. } = self;
        let lock = RequestLock {
            on_lost: options.on_lost.unwrap_or_default(),
            request: request_of(&manager, keys.map(Into::into)).options(options).fenced(FENCED),
            http,
            is_head,
            slot,
            log_limit: Arc::clone(manager.log_limit()),
        };
        let respond = move |output| ControlFlow::Continue(respond(output));
        scope(locked(lock, refuse, respond, identity, work))
    }
}
