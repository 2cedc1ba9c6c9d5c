//! Times that are written as a text. The compiler reads those of an attribute, so the functions are `const`.

use std::time::Duration;

/// The texts and numbers that are times, for error messages.
pub(crate) const TIME_FORM: &str =
    "a time such as \"500ms\" or \"5s\", or a whole number of seconds";

/// The meaning of a text. No public API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "no public API")]
pub enum TimeText {
    /// A time with its units: `500ms`, `1m 30s`.
    Time(Duration),
    /// A whole number, whose unit the caller knows.
    Number(u64),
    /// The time or the number is too great.
    TooLong,
    /// The text is no time.
    Invalid,
}

/// Reads a whole number, or numbers with their units: `ms`, `s`, `m`, `h` and `d`. The time is their sum. No public API.
pub const fn read_time(text: &str) -> TimeText {
    let whole = skip_blanks(text.as_bytes());
    let mut rest = whole;
    let mut sum: u64 = 0;
    loop {
        let (number, after_number) = match digits(rest) {
            Ok(number) => number,
            Err(mistake) => return mistake,
        };
        if after_number.is_empty() && rest.len() == whole.len() {
            return TimeText::Number(number);
        }
        let (milliseconds, after_unit): (u64, _) = match skip_blanks(after_number) {
            [b'm', b's', rest @ ..] => (1, rest),
            [b's', rest @ ..] => (1_000, rest),
            [b'm', rest @ ..] => (60_000, rest),
            [b'h', rest @ ..] => (3_600_000, rest),
            [b'd', rest @ ..] => (86_400_000, rest),
            _ => return TimeText::Invalid,
        };
        sum = match number.checked_mul(milliseconds) {
            Some(time) if time <= u64::MAX - sum => sum + time,
            _ => return TimeText::TooLong,
        };
        rest = skip_blanks(after_unit);
        if rest.is_empty() {
            return TimeText::Time(Duration::from_millis(sum));
        }
    }
}

/// Reads a time, or a whole number of seconds.
pub(crate) fn parse_time(text: &str) -> Option<Duration> {
    match read_time(text) {
        TimeText::Time(time) => Some(time),
        TimeText::Number(seconds) => Some(Duration::from_secs(seconds)),
        TimeText::TooLong | TimeText::Invalid => None,
    }
}

/// Reads the number at the beginning of the text. Returns it with the text after it.
const fn digits(text: &[u8]) -> Result<(u64, &[u8]), TimeText> {
    let (mut number, mut rest) = (Some(0_u64), text);
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        number = match number {
            Some(number) => match number.checked_mul(10) {
                Some(tens) => tens.checked_add((*digit - b'0') as u64),
                None => None,
            },
            None => None,
        };
        rest = after;
    }
    match number {
        _ if rest.len() == text.len() => Err(TimeText::Invalid),
        Some(number) => Ok((number, rest)),
        None => Err(TimeText::TooLong),
    }
}

const fn skip_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_units_is_a_time() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("2s", 2_000),
            ("2 s", 2_000),
            ("1m", 60_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("1m 30s", 90_000),
            ("1m30s", 90_000),
            ("1s 5ms", 1_005),
            ("007s", 7_000),
            ("18446744073709551615ms", u64::MAX),
        ] {
            let time = Duration::from_millis(milliseconds);
            assert_eq!(read_time(text), TimeText::Time(time), "{text}");
        }
    }

    #[test]
    fn a_number_alone_has_the_unit_of_its_reader() {
        assert_eq!(read_time("5"), TimeText::Number(5));
        assert_eq!(read_time("18446744073709551615"), TimeText::Number(u64::MAX));
        assert_eq!(parse_time("5"), Some(Duration::from_secs(5)));
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            " ",
            "s",
            "-5s",
            "+5",
            "0.5s",
            "5 parsecs",
            "5sec",
            "1min",
            "1us",
            "1w",
            "1m s",
            "1m 5",
            "5 0s",
            "5_000",
            "1mss",
            "٥s",
        ] {
            assert_eq!(read_time(text), TimeText::Invalid, "{text}");
            assert_eq!(parse_time(text), None, "{text}");
        }
        for text in [
            "18446744073709551616",
            "18446744073709551616ms",
            "18446744073709551615s",
            "18446744073709551615ms 1ms",
            "99999999999999999999d",
        ] {
            assert_eq!(read_time(text), TimeText::TooLong, "{text}");
        }
    }
}
