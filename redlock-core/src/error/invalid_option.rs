//! The error of an option out of its range.

/// An option whose value is out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{option} is {value}, but must be {allowed}")]
pub struct InvalidOption {
    option: &'static str,
    value: String,
    allowed: String,
}

impl InvalidOption {
    pub(crate) fn new(
        option: &'static str,
        value: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        Self { option, value: value.into(), allowed: allowed.into() }
    }

    /// The option's name.
    pub fn option(&self) -> &str {
        self.option
    }
}
