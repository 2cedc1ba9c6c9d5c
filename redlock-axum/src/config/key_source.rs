//! The way in which a layer or a policy makes the key of a request.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use redlock_core::{IntoLockKey, KeyError, KeyTemplate, LockKey};

type KeyFunction = Arc<dyn Fn(&Parts) -> Result<LockKey, KeyError> + Send + Sync>;

/// The template or the function that makes the key.
#[derive(Clone)]
pub(crate) enum KeySource {
    Template(KeyTemplate),
    Function(KeyFunction),
}

impl KeySource {
    pub(crate) fn from_fn<F, K>(key: F) -> Self
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoLockKey,
    {
        Self::Function(Arc::new(move |parts| key(parts).into_lock_key()))
    }

    /// Returns the placeholders of the template. A function has none.
    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &str> {
        let template = match self {
            Self::Template(template) => Some(template),
            Self::Function(_) => None,
        };
        template.into_iter().flat_map(KeyTemplate::placeholders)
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Template(template) => f.debug_tuple("Template").field(template).finish(),
            Self::Function(_) => f.write_str("Function"),
        }
    }
}
