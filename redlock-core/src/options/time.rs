//! Times that are written as a text.

use std::time::Duration;

/// The texts and numbers that are times, for error messages.
pub(crate) const TIME_FORM: &str =
    "a time such as \"500ms\" or \"5s\", or a whole number of seconds";

/// Parses a time: `500ms`, `1m 30s`, or a whole number of seconds. Every other time has a unit, so a number
/// alone has one meaning.
pub(crate) fn parse_time(text: &str) -> Option<Duration> {
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => humantime::parse_duration(text).ok(),
    }
}
