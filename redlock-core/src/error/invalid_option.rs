//! The error of an option that cannot be used.

/// An option that is out of its range, or does not go together with another option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidOption {
    option: &'static str,
    message: String,
}

impl InvalidOption {
    /// An option that is out of its range.
    pub(crate) fn new(
        option: &'static str,
        value: impl std::fmt::Display,
        allowed: impl std::fmt::Display,
    ) -> Self {
        Self { option, message: format!("{option} is {value}, but must be {allowed}") }
    }

    /// An option that does not go together with another one. The message names both.
    pub(crate) fn conflict(option: &'static str, message: impl Into<String>) -> Self {
        Self { option, message: message.into() }
    }

    /// The option's name.
    pub fn option(&self) -> &str {
        self.option
    }
}
