//! What a layer or a policy locks requests by.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::response::Response;
use http::{Method, StatusCode};
use redlock_core::KeyTemplate;

use super::Methods;
use crate::error::SetupError;
use crate::options::RouteOptions;

/// Which requests are locked, by which key, for how long. Mistakes are kept, because a layer is
/// built without errors; `check` finds them.
#[derive(Debug, Clone)]
pub(crate) struct RouteLock {
    pub(crate) template: Result<KeyTemplate, SetupError>,
    pub(crate) methods: Methods,
    pub(crate) options: RouteOptions,
    pub(crate) lock_fallback: bool,
    fallback_reported: Arc<AtomicBool>,
}

impl RouteLock {
    pub(crate) fn new(template: Result<KeyTemplate, SetupError>) -> Self {
        Self {
            template,
            methods: Methods::default(),
            options: RouteOptions::default(),
            lock_fallback: false,
            fallback_reported: Arc::default(),
        }
    }

    /// Finds the first mistake.
    pub(crate) fn check(&self) -> Result<&KeyTemplate, SetupError> {
        let template = self.check_each()?;
        self.options.check()?;
        Ok(template)
    }

    /// Finds the first mistake that no further option can mend.
    pub(crate) fn check_each(&self) -> Result<&KeyTemplate, SetupError> {
        let template = self.template.as_ref().map_err(Clone::clone)?;
        self.options.check_each()?;
        if self.methods.is_empty() {
            return Err(SetupError::NoMethods);
        }
        Ok(template)
    }

    /// Whether requests with this method are for `serve`. An empty list is a mistake, so all are.
    pub(crate) fn cover(&self, method: &Method) -> bool {
        self.methods.is_empty() || self.methods.cover(method)
    }

    /// Says once that a fallback did more than to say that there is nothing. Work may also end with a
    /// redirect or a failure.
    pub(crate) fn report_fallback(&self, response: &Response) {
        let status = response.status();
        let nothing = matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED);
        if !nothing && !self.fallback_reported.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a fallback answered with {status} without a lock, because `LockLayer` locks routes \
                 only; add `.lock_fallback()` to lock fallbacks, or use `route_layer` to leave \
                 them out"
            );
        }
    }
}
