//! The functions that take a part of a key from an extension of the request.

use std::any::type_name;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::Arc;

use http::Extensions;

use super::KeySource;
use crate::error::SetupError;
use crate::value_source::ValueSource;

type ValueFunction = Arc<dyn Fn(&Extensions) -> Option<String> + Send + Sync>;

/// A function that an application has registered for `{ext(name)}`.
#[derive(Clone)]
pub(crate) struct ExtensionFunction {
    /// The type of the extension, for the log.
    pub(crate) type_name: &'static str,
    value: ValueFunction,
}

impl ExtensionFunction {
    /// Returns the value, or `None` if the request does not have the extension.
    pub(crate) fn value(&self, extensions: &Extensions) -> Option<String> {
        (self.value)(extensions)
    }
}

/// The registered functions, by their names.
#[derive(Clone, Default)]
pub(crate) struct ExtensionValues(BTreeMap<String, ExtensionFunction>);

impl ExtensionValues {
    pub(crate) fn register<T, V, F>(&mut self, name: &str, value: F)
    where
        F: Fn(&T) -> V + Send + Sync + 'static,
        T: Send + Sync + 'static,
        V: Display,
    {
        let value = move |extensions: &Extensions| Some(value(extensions.get::<T>()?).to_string());
        let function = ExtensionFunction { type_name: type_name::<T>(), value: Arc::new(value) };
        self.0.insert(name.to_owned(), function);
    }

    pub(crate) fn get(&self, name: &str) -> Result<&ExtensionFunction, SetupError> {
        self.0.get(name).ok_or_else(|| SetupError::UnregisteredExtension { name: name.to_owned() })
    }

    /// Checks that each placeholder `{ext(name)}` has a function.
    pub(crate) fn check(&self, key: &KeySource) -> Result<(), SetupError> {
        for placeholder in key.placeholders() {
            if let ValueSource::Extension(name) = ValueSource::of(placeholder) {
                self.get(name)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ExtensionValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
