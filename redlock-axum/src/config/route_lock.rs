//! The lock of a route: key, methods and options.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::response::Response;
use http::{Method, StatusCode};
use redlock_core::{InvalidOption, KeyTemplate};

use super::{KeySource, Methods};
use crate::error::SetupError;
use crate::options::RouteOptions;

/// The settings by which a layer or a policy locks requests.
///
/// Building a layer never fails, so invalid settings are stored here, and `check` returns them as errors.
#[derive(Debug, Clone)]
pub(crate) struct RouteLock {
    pub(crate) key: Result<KeySource, SetupError>,
    pub(crate) methods: Methods,
    pub(crate) options: RouteOptions,
    pub(crate) lock_fallback: bool,
    fallback_reported: Arc<AtomicBool>,
    /// Set when the settings were found to be valid, so that they are not checked at each request.
    checked: OnceLock<()>,
}

impl RouteLock {
    pub(crate) fn new(template: Result<KeyTemplate, SetupError>) -> Self {
        Self::with_key(template.map(KeySource::Template))
    }

    pub(crate) fn with_key(key: Result<KeySource, SetupError>) -> Self {
        Self {
            key,
            methods: Methods::default(),
            options: RouteOptions::default(),
            lock_fallback: false,
            fallback_reported: Arc::default(),
            checked: OnceLock::new(),
        }
    }

    /// Returns the source of the key, or the first mistake in the settings.
    pub(crate) fn check(&self) -> Result<&KeySource, SetupError> {
        if self.checked.get().is_none() {
            self.check_independent()?;
            self.options.check()?;
            self.check_shared_on()?;
            // Another thread may have been faster.
            let _ = self.checked.set(());
        }
        self.key.as_ref().map_err(Clone::clone)
    }

    /// Returns the settings of a builder, to change them.
    pub(crate) fn changed(this: &mut Arc<Self>) -> &mut Self {
        let settings = Arc::make_mut(this);
        settings.checked = OnceLock::new();
        settings
    }

    /// Returns the source of the key, or the first mistake that setting more options cannot correct.
    pub(crate) fn check_independent(&self) -> Result<&KeySource, SetupError> {
        let key = self.key.as_ref().map_err(Clone::clone)?;
        self.options.check_independent()?;
        if self.methods.is_empty() {
            return Err(SetupError::NoMethods);
        }
        Ok(key)
    }

    /// Checks that the methods of `shared_on` are locked. Otherwise their requests would run without a lock.
    fn check_shared_on(&self) -> Result<(), InvalidOption> {
        let shared_on = self.options.shared_on.as_ref().and_then(Methods::named);
        let unlocked = shared_on.unwrap_or_default().iter().find(|m| !self.methods.matches(m));
        match unlocked {
            Some(method) => {
                let allowed = format!("among the methods that are locked: {}", self.methods);
                Err(InvalidOption::new("shared_on", method, allowed))
            }
            None => Ok(()),
        }
    }

    /// Returns whether `serve` handles requests with this method.
    ///
    /// An empty list of methods is a mistake, and `serve` must refuse every request because of it.
    pub(crate) fn matches(&self, method: &Method) -> bool {
        self.methods.is_empty() || self.methods.matches(method)
    }

    /// Warns once if a fallback answers without a lock and with another status than 404 or 405.
    ///
    /// Such a fallback probably did work, even if its response is a redirect or a failure.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::LockLayer;

    #[test]
    fn an_option_that_is_set_after_a_check_is_checked() {
        let layer = LockLayer::new("import").checked().unwrap();
        assert!(layer.expire(Duration::ZERO).checked().is_err());
    }
}
