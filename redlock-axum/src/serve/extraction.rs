//! Extracts parameters of a handler under its lock.

use std::fmt;
use std::future::ready;
use std::pin::Pin;

use axum::response::Response;
use redlock_core::__private::{AbortOnLoss, LossWatcher};
use redlock_core::{LockGuard, LostError, OnLost};

/// Extracts one parameter, or fails with the response to the request.
pub(crate) type Extraction = Pin<Box<dyn Future<Output = Result<(), Box<Response>>> + Send>>;

/// The extractions of one handler, in the order of its parameters. Most handlers have none, and store a pointer.
#[derive(Default)]
pub(crate) struct Extractions(Option<Box<List>>);

#[derive(Default)]
struct List {
    extractions: Vec<Extraction>,
}

/// The reason why a handler does not begin.
pub(crate) enum NotExtracted {
    /// An extractor has rejected the request.
    Rejected(Box<Response>),
    Lost(LostError),
}

impl Extractions {
    pub(crate) fn push(&mut self, extraction: Extraction) {
        self.0.get_or_insert_default().extractions.push(extraction);
    }

    /// Runs the extractions, one after the other. Fails if the lock is lost before the end of the last one.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the current extraction is dropped, and the later ones do not begin.
    pub(crate) async fn run_under(self, guard: &LockGuard) -> Result<(), NotExtracted> {
        match self.0 {
            None => Ok(()),
            // Boxed, because the future would enlarge the futures of handlers that extract nothing under their locks.
            Some(list) => Box::pin(list.run_under(guard)).await,
        }
    }
}

impl List {
    async fn run_under(self: Box<Self>, guard: &LockGuard) -> Result<(), NotExtracted> {
        // The last one extracts nothing: it finds a loss at the end of the extraction before it.
        let last = Box::pin(ready(Ok(()))) as Extraction;
        for extraction in self.extractions.into_iter().chain([last]) {
            let watch = LossWatcher::new(guard, OnLost::Abort);
            let extracted = AbortOnLoss::new(watch, extraction).await;
            extracted.map_err(NotExtracted::Lost)?.map_err(NotExtracted::Rejected)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Extractions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Extractions").field(&self.0.is_some()).finish()
    }
}
