//! Extracts parameters of a handler under its lock.

use std::fmt;
use std::future::ready;
use std::pin::Pin;

use axum::response::Response;
use redlock_core::__private::{AbortOnLoss, LossWatcher};
use redlock_core::{LockHandle, LostError, OnLost};

/// Extracts one parameter.
pub(crate) type Extraction = Pin<Box<dyn Future<Output = ExtractionResult> + Send>>;

/// The response of an extractor that rejects the request.
pub(crate) type ExtractionResult = Result<(), Box<Response>>;

/// The extractions of one handler, in the order of its parameters. Most handlers have none, and store a pointer.
#[derive(Default)]
pub(crate) struct Extractions(Option<Box<List>>);

#[derive(Default)]
struct List {
    extractions: Vec<Extraction>,
}

impl Extractions {
    pub(crate) fn push(&mut self, extraction: Extraction) {
        self.0.get_or_insert_default().extractions.push(extraction);
    }

    /// Runs the extractions, one after the other, until one of them rejects the request. Fails if the lock is lost before
    /// the end of the last one.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the current extraction is dropped, and the later ones do not begin.
    pub(crate) async fn run_under(self, lock: &LockHandle) -> Result<ExtractionResult, LostError> {
        match self.0 {
            None => Ok(Ok(())),
            // Boxed, because the future would enlarge the futures of handlers that extract nothing under their locks.
            Some(list) => Box::pin(list.run_under(lock)).await,
        }
    }
}

impl List {
    async fn run_under(self: Box<Self>, lock: &LockHandle) -> Result<ExtractionResult, LostError> {
        // The last one extracts nothing: it finds a loss at the end of the extraction before it.
        let last = Box::pin(ready(Ok(()))) as Extraction;
        for extraction in self.extractions.into_iter().chain([last]) {
            let watch = LossWatcher::new(lock, OnLost::Abort);
            if let rejected @ Err(_) = AbortOnLoss::new(watch, extraction).await? {
                return Ok(rejected);
            }
        }
        Ok(Ok(()))
    }
}

impl fmt::Debug for Extractions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Extractions").field(&self.0.is_some()).finish()
    }
}
