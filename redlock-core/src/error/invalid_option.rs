//! The error of an invalid option.

/// The error of an option that is out of its range, or cannot be combined with another option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidOption {
    option: &'static str,
    message: String,
}

impl InvalidOption {
    /// Creates the error of an option that is out of its range, for tests of code that handles it. The
    /// message is `{option} is {value}, but must be {allowed}`.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::{InvalidOption, LockError};
    ///
    /// let error = LockError::from(InvalidOption::new("expire", "5ms", "from 10 ms to 7 days"));
    /// assert_eq!(error.to_string(), "expire is 5ms, but must be from 10 ms to 7 days");
    /// ```
    pub fn new(
        option: &'static str,
        value: impl std::fmt::Display,
        allowed: impl std::fmt::Display,
    ) -> Self {
        Self { option, message: format!("{option} is {value}, but must be {allowed}") }
    }

    /// Makes the error of an option that cannot be combined with another one. `message` names both.
    pub(crate) fn conflict(option: &'static str, message: impl Into<String>) -> Self {
        Self { option, message: message.into() }
    }

    /// Returns the name of the option.
    pub fn option(&self) -> &str {
        self.option
    }
}
