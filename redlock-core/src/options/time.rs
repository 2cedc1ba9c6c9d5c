//! Times that are written as a text.

use std::time::Duration;

/// The texts and numbers that are times, for error messages.
pub(crate) const TIME_FORM: &str =
    "a time such as \"500ms\" or \"5s\", or a whole number of seconds";

/// Parses a time: `500ms`, `1m 30s`, or a whole number of seconds. Every other time has a unit, so a number
/// alone has one meaning.
///
/// The attribute of `redlock-macros` parses texts by the same rules.
pub(crate) fn parse_time(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    sum(text)
}

/// Parses each number with its unit, and returns their sum. `humantime` panics for some sums close to 2^64 s.
fn sum(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let unit = rest.find(char::is_alphabetic)?;
        let next = rest[unit..].find(|c: char| c.is_ascii_digit());
        let (time, others) = rest.split_at(next.map_or(rest.len(), |next| unit + next));
        total = total.checked_add(humantime::parse_duration(time).ok()?)?;
        rest = others;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_of_seconds_or_a_text_with_units() {
        for (text, millis) in [("5", 5000), ("500ms", 500), ("1m 30s", 90_000), ("1m30s", 90_000)] {
            assert_eq!(parse_time(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", " ", "s", "-5s", "5 parsecs", "1m s", "1m 5"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn a_sum_that_is_too_long_is_no_time() {
        for text in
            ["18446744073709551615s 1000ms", "18446744 073709551 615s 1000ms", "1s 1000000000000y"]
        {
            assert_eq!(parse_time(text), None, "{text}");
        }
        let longest = Duration::new(u64::MAX, 999_000_000);
        assert_eq!(parse_time("18446744073709551615s 999ms"), Some(longest));
    }
}
