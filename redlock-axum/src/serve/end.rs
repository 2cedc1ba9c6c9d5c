//! The end of a request's lock: after its handler, or after the commit of a layer around the handler.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::response::Response;
use http::Extensions;
use redlock_core::__private::{LossWatcher, ShutdownDelay, delay_shutdown};
use redlock_core::{LockGuard, OnLost};

use super::body::{self, Exchange};
use crate::options::{HoldUntil, HttpOptions};
use crate::rejection::LockRejection;

/// A held lock whose work runs. It is released after the work, or left to a layer around the handler.
#[derive(Debug)]
pub(super) struct LockEnd {
    lock: Option<EndingLock>,
    postponed: Option<Postponed>,
}

/// A held lock, with the options of its end.
#[derive(Debug)]
pub(crate) struct EndingLock {
    guard: LockGuard,
    http: HttpOptions,
    on_lost: OnLost,
    exchange: Exchange,
    /// Watches the lock from the end of its work to the commit.
    watch: Option<LossWatcher>,
}

impl LockEnd {
    pub(super) fn new(
        guard: LockGuard,
        http: HttpOptions,
        on_lost: OnLost,
        exchange: Exchange,
        postponed: Option<Postponed>,
    ) -> Self {
        Self { lock: Some(EndingLock { guard, http, on_lost, exchange, watch: None }), postponed }
    }

    /// Ends the work of a handler that has returned its response. Returns the guard that is to be released now: neither the
    /// body nor a layer around the handler holds the lock.
    pub(super) fn respond(mut self, response: Response) -> (Response, Option<LockGuard>) {
        match self.lock_to_end() {
            Some(lock) => lock.respond(response),
            None => (response, None),
        }
    }

    /// Ends the work of a handler that has no response. Returns the guard, unless a layer around the handler ends the lock.
    pub(super) fn into_guard(mut self) -> Option<LockGuard> {
        self.lock_to_end().map(EndingLock::into_guard)
    }

    /// Returns the lock, unless a layer around the handler ends it.
    fn lock_to_end(&mut self) -> Option<EndingLock> {
        let lock = self.lock.take()?;
        match &self.postponed {
            Some(postponed) => postponed.leave(lock).err().map(|lock| *lock),
            None => Some(lock),
        }
    }
}

/// Leaves the lock of work that has panicked or was dropped to the layer around the handler. Without such a layer, the lock is
/// released in the background, as a lock that is lost.
impl Drop for LockEnd {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take_if(|lock| lock.guard.is_valid())
            && let Some(postponed) = &self.postponed
        {
            drop(postponed.leave(lock));
        }
    }
}

impl EndingLock {
    /// Lets the body of the response hold the lock if its options say so. Otherwise returns the guard, too.
    pub(crate) fn respond(self, response: Response) -> (Response, Option<LockGuard>) {
        let Self { guard, http, on_lost, exchange, .. } = self;
        match http.hold_until {
            HoldUntil::EndOfBody => body::hold(response, guard, on_lost, exchange),
            HoldUntil::Response => (response, Some(guard)),
        }
    }

    /// Returns the guard of a request that has no response.
    pub(crate) fn into_guard(self) -> LockGuard {
        self.guard
    }

    /// Returns the rejection of a request whose lock was lost, if the loss stops the request.
    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<LockRejection> {
        let Some(watch) = &mut self.watch else { return Poll::Pending };
        watch.poll(cx).map(|error| {
            let rejection = LockRejection::from(error).with_http_options(self.http);
            rejection.with_log_limit(self.guard.log_limit())
        })
    }
}

/// The locks of one request that end after the commit of a layer around their handlers. The layer puts it into the
/// extensions of the request.
#[derive(Debug, Clone)]
pub(crate) struct Postponed(Arc<Mutex<Option<Locks>>>);

/// `None` in [`Postponed`] after the layer has ended the locks.
#[derive(Debug, Default)]
struct Locks {
    /// The locks whose work has ended.
    ending: Vec<EndingLock>,
    /// One for each lock whose work is detached.
    detached: Vec<ShutdownDelay>,
}

impl Postponed {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(Locks::default()))))
    }

    /// Returns the locks of a request, if a layer around the handler will end them.
    pub(crate) fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get::<Self>().filter(|postponed| postponed.locks().is_some())
    }

    fn locks(&self) -> MutexGuard<'_, Option<Locks>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the end of a lock to the layer. Returns the lock if the layer has ended its locks.
    fn leave(&self, mut lock: EndingLock) -> Result<(), Box<EndingLock>> {
        match &mut *self.locks() {
            Some(locks) => {
                lock.watch = LossWatcher::new(&lock.guard, lock.on_lost);
                locks.ending.push(lock);
                Ok(())
            }
            None => Err(Box::new(lock)),
        }
    }

    /// Lets the layer serve the request to its end, also if the client leaves.
    pub(super) fn detach(&self, guard: &LockGuard) {
        if let Some(locks) = &mut *self.locks() {
            locks.detached.push(delay_shutdown(guard));
        }
    }

    /// Returns whether the layer serves the request to its end if the client leaves.
    pub(crate) fn is_detached(&self) -> bool {
        self.locks().as_ref().is_some_and(|locks| !locks.detached.is_empty())
    }

    /// Returns the rejection of a request with a lock that was lost after its work, if the loss stops the request.
    pub(crate) fn poll_lost(&self, cx: &mut Context<'_>) -> Poll<LockRejection> {
        for lock in self.locks().iter_mut().flat_map(|locks| &mut locks.ending) {
            if let Poll::Ready(rejection) = lock.poll_lost(cx) {
                return Poll::Ready(rejection);
            }
        }
        Poll::Pending
    }

    /// Returns the locks to end. From now on, a lock ends with its work.
    pub(crate) fn close(&self) -> Vec<EndingLock> {
        self.locks().take().unwrap_or_default().ending
    }
}
