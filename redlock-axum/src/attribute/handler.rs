//! The lock of a handler with the attribute.

use std::convert::identity;
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::response::Response;
use redlock_core::__private::{Keys, request_of};
use redlock_core::{KeyError, LockManager, scope};

use super::deferred::{Deferred, Extracted};
use super::options::Options;
use crate::extract::lock_slot::LockSlot;
use crate::locks_layer::Installed;
use crate::rejection::LockRejection;
use crate::serve::body::Exchange;
use crate::serve::extraction::Extractions;
use crate::serve::locked::{RequestLock, locked, locked_detached};
use crate::serve::unread::{ReadBeside, Unread};

/// The hidden extractor of a locked handler, which runs before the handler's own extractors.
///
/// It takes the manager from the router's state or, if it is `INSTALLED`, from the [`LocksLayer`](crate::LocksLayer), and
/// inserts an empty slot of the lock for the other extractors.
#[derive(Debug)]
pub struct HandlerLock<const FENCED: bool, const INSTALLED: bool = false> {
    manager: LockManager,
    slot: LockSlot,
    extractions: Extractions,
    exchange: Exchange,
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
        let manager = Installed::manager(&parts.extensions).cloned();
        Ok(Self::new(parts, manager.ok_or_else(LockRejection::missing_manager)?))
    }
}

impl<const FENCED: bool, const INSTALLED: bool> HandlerLock<FENCED, INSTALLED> {
    fn new(parts: &mut Parts, manager: LockManager) -> Self {
        let slot = LockSlot::pending(FENCED);
        parts.extensions.insert(slot.clone());
        let extractions = Extractions::default();
        Self { manager, slot, extractions, exchange: Exchange::new(parts) }
    }

    /// Extracts a parameter when the lock is held, after the parameters before it.
    pub fn extract_later<T>(&mut self, parameter: Deferred<T>) -> Extracted<T> {
        let (extraction, extracted) = parameter.into_parts();
        self.extractions.push(extraction);
        extracted
    }

    /// Runs the handler under its lock. `respond` makes the response of the handler's output, and `refuse` that of a
    /// request whose handler does not run, or is stopped.
    pub fn serve<W: Future>(
        self,
        unread: Unread,
        keys: Result<impl Into<Keys>, KeyError>,
        options: Options,
        refuse: impl FnOnce(LockRejection) -> Response,
        respond: fn(W::Output) -> Response,
        work: impl FnOnce() -> W,
    ) -> impl Future<Output = Response> {
        let respond = move |output| Ok(ControlFlow::Continue(respond(output)));
        let refuse = self.refusing(&unread, refuse);
        let lock = self.lock(keys.map(Into::into), options);
        ReadBeside::new(unread, scope(locked(lock, refuse, respond, identity, work)))
    }

    /// As [`serve`](Self::serve), but from the acquired lock to its release, the handler runs in a task of its own.
    pub fn serve_detached<W: Future + Send + 'static>(
        self,
        unread: Unread,
        keys: Result<impl Into<Keys>, KeyError>,
        options: Options,
        refuse: impl FnOnce(LockRejection) -> Response + Send + 'static,
        respond: fn(W::Output) -> Response,
        work: impl FnOnce() -> W + Send + 'static,
    ) -> impl Future<Output = Response> {
        let respond = move |output| Ok(ControlFlow::Continue(respond(output)));
        let refuse = self.refusing(&unread, refuse);
        let lock = self.lock(keys.map(Into::into), options);
        ReadBeside::new(unread, scope(locked_detached(lock, refuse, respond, identity, work)))
    }

    /// Reads the rest of the body after a refusal.
    fn refusing<R: FnOnce(LockRejection) -> Response>(
        &self,
        unread: &Unread,
        refuse: R,
    ) -> impl FnOnce(LockRejection) -> Response + use<R, FENCED, INSTALLED> {
        let (unread, locks) = (unread.clone(), self.manager.clone());
        move |rejection| unread.read_after(refuse(rejection), &locks)
    }

    fn lock(self, keys: Result<Keys, KeyError>, options: Options) -> RequestLock {
        let Self { manager, slot, extractions, exchange } = self;
        RequestLock {
            on_lost: options.lock.on_lost.unwrap_or_default(),
            log_limit: Arc::clone(manager.log_limit()),
            request: request_of(&manager, keys).options(options.lock),
            http: options.http,
            exchange,
            slot,
            extractions,
        }
    }
}
