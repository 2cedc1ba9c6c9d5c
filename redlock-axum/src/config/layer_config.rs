//! The configuration of a layer or a table of policies as a whole: its manager, its functions for extensions,
//! and its response to refused requests.

use std::fmt;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::Extensions;
use redlock_core::__private::LogLimit;
use redlock_core::LockManager;

use super::ExtensionValues;
use crate::locks_layer::Installed;
use crate::rejection::LockRejection;

type OnReject = Arc<dyn Fn(LockRejection) -> Response + Send + Sync>;

#[derive(Clone, Default)]
pub(crate) struct LayerConfig {
    manager: Option<LockManager>,
    on_reject: Option<OnReject>,
    pub(crate) extension_values: ExtensionValues,
    /// Limits the log of rejections if the manager, which has its own limit, is not known.
    log_limit: Arc<LogLimit>,
}

impl LayerConfig {
    pub(crate) fn set_manager(&mut self, manager: LockManager) {
        self.manager = Some(manager);
    }

    pub(crate) fn set_on_reject<F, R>(&mut self, on_reject: F)
    where
        F: Fn(LockRejection) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        self.on_reject = Some(Arc::new(move |rejection| on_reject(rejection).into_response()));
    }

    /// Returns the configured manager or, without one, the manager that the application installed with
    /// [`LocksLayer`](crate::LocksLayer).
    pub(crate) fn manager<'a>(&'a self, extensions: &'a Extensions) -> Option<&'a LockManager> {
        self.manager.as_ref().or_else(|| Installed::manager(extensions))
    }

    pub(crate) fn reject(&self, rejection: LockRejection) -> Response {
        let rejection = rejection.with_log_limit(&self.log_limit);
        match &self.on_reject {
            None => rejection.into_response(),
            Some(on_reject) => rejection.respond_by(|rejection| on_reject(rejection)),
        }
    }
}

impl fmt::Debug for LayerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerConfig")
            .field("manager", &self.manager)
            .field("on_reject", &self.on_reject.is_some())
            .field("extension_values", &self.extension_values)
            .finish_non_exhaustive()
    }
}
