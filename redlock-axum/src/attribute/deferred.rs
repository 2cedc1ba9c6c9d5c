//! The parameters of a handler that are extracted under its lock.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::IntoResponse;

use crate::extract::UnderLock;
use crate::serve::extraction::Extraction;

/// The hidden extractor in place of an [`UnderLock`]. It keeps a copy of the request's head and of the state, and
/// extracts the value when its extraction is run.
pub struct Deferred<T> {
    extraction: Extraction,
    value: Extracted<T>,
}

/// The value of an [`UnderLock`], once its extraction has ended.
#[derive(Debug)]
pub struct Extracted<T>(Arc<Mutex<Option<T>>>);

/// Stands in the code of the key, which is made before the lock is acquired, for a parameter that has its value only
/// under the lock.
#[derive(Debug)]
pub struct KnownUnderTheLock;

impl<S, T> FromRequestParts<S> for Deferred<T>
where
    S: Clone + Send + Sync + 'static,
    T: FromRequestParts<S> + Send + 'static,
{
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let (mut parts, state) = (parts.clone(), state.clone());
        let value = Extracted(Arc::default());
        let output = Arc::clone(&value.0);
        let extraction = Box::pin(async move {
            let value = T::from_request_parts(&mut parts, &state).await;
            let value = value.map_err(|rejection| Box::new(rejection.into_response()))?;
            *output.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            Ok(())
        });
        Ok(Self { extraction, value })
    }
}

impl<T> Deferred<T> {
    pub(super) fn into_parts(self) -> (Extraction, Extracted<T>) {
        (self.extraction, self.value)
    }
}

impl<T> Extracted<T> {
    /// Returns the value, or `None` if its extraction has not ended.
    pub fn take(self) -> Option<UnderLock<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map(UnderLock)
    }
}

impl<T> fmt::Debug for Deferred<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deferred")
    }
}
