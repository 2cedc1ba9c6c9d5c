//! The errors of options, and of a configuration in environment variables.

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

/// The error of [`LockManagerConfig::from_env`](crate::LockManagerConfig::from_env). It names the environment
/// variable. It never contains a URL, because a URL may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The prefix of the environment variables is empty, so that every variable would be a setting.
    #[error("the prefix of the environment variables is empty")]
    EmptyPrefix,
    /// An environment variable begins with the prefix, but is no setting.
    #[error("the environment variable {variable} is unknown{}; known are {}; if the service has settings with this prefix, give its locks a longer one", perhaps(.suggestion.as_deref()), .known.join(", "))]
    #[non_exhaustive]
    UnknownVariable {
        /// The name of the variable.
        variable: String,
        /// The variable that was probably meant.
        suggestion: Option<String>,
        /// All variables that are settings.
        known: Vec<String>,
    },
    /// The value of an environment variable is not Unicode.
    #[error("the value of the environment variable {variable} is not Unicode")]
    #[non_exhaustive]
    NotUnicode {
        /// The name of the variable.
        variable: String,
    },
    /// The value of an environment variable has the wrong form, or is out of its range.
    #[error("the environment variable {variable} is invalid: {reason}")]
    #[non_exhaustive]
    InvalidValue {
        /// The name of the variable.
        variable: String,
        /// The value, and the allowed values.
        reason: InvalidOption,
    },
    /// A URL is invalid.
    #[error("URL {position} in the environment variable {variable} is invalid: {reason}")]
    #[non_exhaustive]
    InvalidUrl {
        /// The name of the variable.
        variable: String,
        /// The position of the URL in the value, counted from 1.
        position: usize,
        /// The mistake in the URL, and the allowed form.
        reason: String,
    },
}

fn perhaps(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |name| format!(" (did you mean {name}?)"))
}
