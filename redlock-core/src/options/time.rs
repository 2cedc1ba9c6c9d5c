//! Times that are written as a text.

use std::time::Duration;

/// The texts and numbers that are times, for error messages.
pub(crate) const TIME_FORM: &str =
    "a time such as \"500ms\" or \"5s\", or a whole number of seconds";

/// The most digits in a text. `humantime` panics for some times close to 2^64 s, which have more digits.
const MAX_DIGITS: usize = 12;

/// Parses a time: `500ms`, `1m 30s`, or a whole number of seconds. Every other time has a unit, so a number
/// alone has one meaning.
///
/// The attribute of `redlock-macros` parses texts by the same rules.
pub(crate) fn parse_time(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let digits = text.chars().filter(char::is_ascii_digit).count();
    if digits > MAX_DIGITS { None } else { humantime::parse_duration(text).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_of_seconds_or_a_text_with_units() {
        for (text, millis) in [("5", 5000), ("500ms", 500), ("1m 30s", 90_000), ("1m30s", 90_000)] {
            assert_eq!(parse_time(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-5s", "5 parsecs", "1m s"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_of_too_many_digits_is_no_time() {
        for text in ["18446744073709551615s 1000ms", "0000000000001s"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
        assert!(parse_time("18446744073709551615").is_some());
        assert!(parse_time("999999999999ms").is_some());
    }
}
