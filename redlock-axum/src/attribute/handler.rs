//! The lock of a handler with the attribute.

use std::marker::PhantomData;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;
use http::Method;
use redlock_core::__private::{Keys, request_of};
use redlock_core::{KeyError, LockManager, LockOptions, LostError, OnLost};

use super::http_options::HttpOptions;
use crate::extract::lock_slot::LockSlot;
use crate::options::HoldUntil;
use crate::rejection::LockRejection;
use crate::serve::active_lock::ActiveLock;
use crate::serve::body;

/// The hidden extractor of a locked handler, which runs before the handler's own extractors.
///
/// It extracts the manager by `M`, from the state or from the layer, and inserts an empty `LockSlot` for the other extractors.
#[derive(Debug)]
pub struct HandlerLock<M, const FENCED: bool> {
    manager: LockManager,
    slot: LockSlot,
    /// The response to HEAD is sent without a body.
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
    /// Acquires the handler's lock, with a fencing token if `FENCED`, and fills the slot.
    ///
    /// # Errors
    ///
    /// The rejection of the request, with the HTTP options.
    pub async fn acquire(
        self,
        keys: Result<impl Into<Keys>, KeyError>,
        options: LockOptions,
        http: HttpOptions,
    ) -> Result<HandlerGuard, LockRejection> {
        let request = request_of(&self.manager, keys.map(Into::into));
        let request = request.options(options).fenced(FENCED);
        let active_lock = request.acquire().await.map(ActiveLock::new).map_err(|error| {
            http.apply(LockRejection::from(error)).with_log_limit(self.manager.log_limit())
        })?;
        self.slot.fill(active_lock.handle());
        let until_end_of_body = http.hold_until == HoldUntil::EndOfBody && !self.is_head;
        Ok(HandlerGuard { active_lock, http, until_end_of_body })
    }
}

/// The lock of a handler while it runs.
#[derive(Debug)]
pub struct HandlerGuard {
    active_lock: ActiveLock,
    http: HttpOptions,
    until_end_of_body: bool,
}

impl HandlerGuard {
    /// Runs the handler while the lock is held, and drops it when the lock is lost.
    ///
    /// # Errors
    ///
    /// A [`LostError`] if the lock was lost before the handler returned.
    pub fn until_lost<F: Future>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<F::Output, LostError>> + use<F> {
        self.active_lock.until_lost(work)
    }

    /// Returns the rejection of a handler that was stopped because its lock was lost. It is logged within the
    /// limit of the lock's manager.
    pub fn lost(&self, error: LostError) -> LockRejection {
        let rejection = LockRejection::from(error).with_log_limit(self.active_lock.log_limit());
        self.http.apply(rejection)
    }

    /// Releases the lock: now, or with `hold_until = end_of_body` when the body has ended. With `aborts`, a loss of
    /// the lock ends the body with an error.
    pub fn finish(
        self,
        response: Response,
        aborts: bool,
    ) -> impl Future<Output = Response> + Send + use<> {
        let on_lost = if aborts { OnLost::Abort } else { OnLost::KeepGoing };
        body::respond(response, self.active_lock, self.until_end_of_body, on_lost)
    }
}
