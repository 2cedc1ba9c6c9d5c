//! Lists of HTTP methods.

use std::fmt;
use std::sync::Arc;

use http::Method;
use redlock_core::InvalidOption;

/// The methods that a policy locks, or whose requests share its lock.
#[derive(Debug, Clone)]
pub(crate) struct Methods(Arc<[Method]>);

impl Methods {
    pub(crate) fn new(methods: impl IntoIterator<Item = Method>) -> Self {
        Self(methods.into_iter().collect())
    }

    /// Returns whether the list covers a request with this method.
    ///
    /// axum answers HEAD with the handler for GET, so GET covers HEAD: the handler must not
    /// run without its lock.
    pub(crate) fn cover(&self, method: &Method) -> bool {
        self.0.contains(method) || (method == Method::HEAD && self.0.contains(&Method::GET))
    }

    pub(crate) fn named(&self) -> &[Method] {
        &self.0
    }

    /// Checks that the list, the value of `option`, has at least one method, and each method once.
    pub(crate) fn check(&self, option: &'static str) -> Result<(), InvalidOption> {
        if self.0.is_empty() {
            let allowed = "at least one method; leave it out for the default";
            return Err(InvalidOption::new(option, "an empty list", allowed));
        }
        let repeated = (1..self.0.len()).find(|&index| self.0[..index].contains(&self.0[index]));
        repeated.map_or(Ok(()), |index| {
            let allowed = format!("a list that has {} once", self.0[index]);
            Err(InvalidOption::new(option, self, allowed))
        })
    }
}

/// Writes the methods with commas between them.
impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, method) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{method}")?;
        }
        Ok(())
    }
}
