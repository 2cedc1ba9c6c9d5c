//! Reads a text as a duration, by the rules of `redlock-core` for configurations. A test of `redlock-axum` compares the two.

use std::time::Duration;

use humantime::DurationError;

/// A duration that was written as a text.
pub(crate) enum DurationText {
    /// A whole number without a unit.
    Number(u64),
    /// Numbers with units.
    Sum(Duration),
}

/// The reason why a text is no duration.
pub(crate) enum Mistake {
    TooLong,
    Invalid,
}

/// Parses the text in the quotation marks.
pub(crate) fn parse(text: &str) -> Result<DurationText, Mistake> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    if !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()) {
        return digits.parse().map(DurationText::Number).map_err(|_| Mistake::TooLong);
    }
    match sum(text) {
        Ok(Some(sum)) => Ok(DurationText::Sum(sum)),
        Ok(None) => Err(Mistake::TooLong),
        Err(_) => Err(Mistake::Invalid),
    }
}

/// Parses each number with its unit, and returns their sum, or `None` if it is too long. `humantime` panics for
/// some sums close to 2^64 s.
fn sum(text: &str) -> Result<Option<Duration>, DurationError> {
    let mut total = Some(Duration::ZERO);
    let mut rest = text;
    loop {
        let unit = rest.find(char::is_alphabetic).ok_or(DurationError::Empty)?;
        let next = rest[unit..].find(|c: char| c.is_ascii_digit());
        let (time, others) = rest.split_at(next.map_or(rest.len(), |next| unit + next));
        let time = match humantime::parse_duration(time) {
            Err(DurationError::NumberOverflow) => None,
            time => Some(time?),
        };
        total = total.zip(time).and_then(|(total, time)| total.checked_add(time));
        rest = others;
        if rest.is_empty() {
            return Ok(total);
        }
    }
}
