//! The HTTP methods that a layer or a policy locks, and those whose requests share the lock.

use std::fmt;
use std::sync::Arc;

use http::Method;

/// A list of HTTP methods. The default is all methods.
#[derive(Debug, Clone, Default)]
pub(crate) struct Methods(Option<Arc<[Method]>>);

impl Methods {
    pub(crate) fn only(methods: impl IntoIterator<Item = Method>) -> Self {
        Self(Some(methods.into_iter().collect()))
    }

    /// Returns whether the list covers a request with this method.
    ///
    /// axum answers HEAD with the handler for GET, so GET covers HEAD: the handler must not
    /// run without its lock.
    pub(crate) fn matches(&self, method: &Method) -> bool {
        self.names_exactly(method) || (method == Method::HEAD && self.names_exactly(&Method::GET))
    }

    /// Returns whether the list names exactly this method, or there is no list.
    pub(crate) fn names_exactly(&self, method: &Method) -> bool {
        self.0.as_ref().is_none_or(|methods| methods.contains(method))
    }

    pub(crate) fn named(&self) -> Option<&[Method]> {
        self.0.as_deref()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_some_and(|methods| methods.is_empty())
    }
}

/// Writes the methods with commas between them.
impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, method) in self.named().unwrap_or_default().iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{method}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_covers_head_because_axum_serves_head_with_it() {
        let methods = Methods::only([Method::GET]);
        assert!(methods.matches(&Method::HEAD));
        assert!(!methods.names_exactly(&Method::HEAD));
        assert!(!methods.matches(&Method::POST));
        assert!(!Methods::only([Method::HEAD]).matches(&Method::GET));
        assert!(Methods::default().matches(&Method::PUT));
    }
}
