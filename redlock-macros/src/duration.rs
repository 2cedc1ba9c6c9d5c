//! Parses the durations in the attribute: whole numbers in `time_unit`, or texts such as `"500ms"`.

use proc_macro2::Span;
use syn::{Expr, ExprLit, Lit, LitInt, LitStr};

use crate::key::ungrouped;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Describes the two forms of a duration, for error messages.
const ALLOWED: &str = "a whole number, such as `5`, or a text with its unit, such as `\"500ms\"`, \
                       `\"2s\"`, `\"1m\"`, `\"1h\"` or `\"1d\"`";

/// The unit of whole numbers, named as in Java's `TimeUnit`. Units below a millisecond are errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeUnit {
    milliseconds: u64,
}

impl TimeUnit {
    pub(crate) const SECONDS: Self = Self { milliseconds: SECOND };

    pub(crate) fn parse(name: &LitStr) -> syn::Result<Self> {
        let milliseconds = match name.value().to_ascii_lowercase().as_str() {
            "milliseconds" => 1,
            "seconds" => SECOND,
            "minutes" => MINUTE,
            "hours" => HOUR,
            "days" => DAY,
            finer @ ("microseconds" | "nanoseconds") => {
                return Err(syn::Error::new(
                    name.span(),
                    format!("Redis counts leases in milliseconds; {finer} are too fine"),
                ));
            }
            _ => {
                return Err(syn::Error::new(
                    name.span(),
                    "unknown time unit; the units are \"milliseconds\", \"seconds\", \"minutes\", \
                     \"hours\" and \"days\"",
                ));
            }
        };
        Ok(Self { milliseconds })
    }
}

/// A duration as it was written.
#[derive(Debug)]
pub(crate) enum DurationLiteral {
    /// A whole number, whose unit is `time_unit`.
    Number { value: u64, span: Span },
    /// A text with a unit.
    Text { milliseconds: u64, span: Span },
}

impl DurationLiteral {
    pub(crate) fn parse(argument: &str, value: &Expr) -> syn::Result<Self> {
        match ungrouped(value) {
            Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if number.suffix().is_empty() => {
                Self::number(number)
            }
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Self::text(text),
            other => Err(syn::Error::new_spanned(other, format!("`{argument}` must be {ALLOWED}"))),
        }
    }

    fn number(number: &LitInt) -> syn::Result<Self> {
        let value = number.base10_parse().map_err(|_| too_large(number.span()))?;
        Ok(Self::Number { value, span: number.span() })
    }

    fn text(text: &LitStr) -> syn::Result<Self> {
        let value = text.value();
        let digits = value.len() - value.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = value.split_at(digits);
        let milliseconds = match unit {
            "ms" => 1,
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            "d" => DAY,
            _ => return Err(not_a_duration(text)),
        };
        if number.is_empty() {
            return Err(not_a_duration(text));
        }
        let milliseconds = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(milliseconds))
            .ok_or_else(|| too_large(text.span()))?;
        Ok(Self::Text { milliseconds, span: text.span() })
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Self::Number { .. })
    }

    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Number { span, .. } | Self::Text { span, .. } => *span,
        }
    }

    /// Returns the duration in milliseconds.
    pub(crate) fn milliseconds(&self, unit: TimeUnit) -> syn::Result<u64> {
        match self {
            Self::Number { value, span } => {
                value.checked_mul(unit.milliseconds).ok_or_else(|| too_large(*span))
            }
            Self::Text { milliseconds, .. } => Ok(*milliseconds),
        }
    }
}

fn not_a_duration(text: &LitStr) -> syn::Error {
    syn::Error::new(text.span(), format!("invalid duration; write {ALLOWED}"))
}

fn too_large(span: Span) -> syn::Error {
    syn::Error::new(span, "this duration is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(text: &str, unit: TimeUnit) -> Result<u64, String> {
        let value = syn::parse_str(text).unwrap();
        DurationLiteral::parse("expire", &value)
            .and_then(|written| written.milliseconds(unit))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_number_has_the_given_unit() {
        assert_eq!(milliseconds("5", TimeUnit::SECONDS), Ok(5_000));
        for (unit, expected) in [
            ("milliseconds", 2),
            ("SECONDS", 2_000),
            ("Minutes", 120_000),
            ("hours", 7_200_000),
            ("days", 172_800_000),
        ] {
            let unit = TimeUnit::parse(&LitStr::new(unit, Span::call_site())).unwrap();
            assert_eq!(milliseconds("2", unit), Ok(expected));
        }
    }

    #[test]
    fn a_text_has_its_own_unit() {
        let hours = TimeUnit { milliseconds: HOUR };
        for (text, expected) in [
            ("\"500ms\"", 500),
            ("\"2s\"", 2_000),
            ("\"1m\"", 60_000),
            ("\"1h\"", 3_600_000),
            ("\"1d\"", 86_400_000),
        ] {
            assert_eq!(milliseconds(text, hours), Ok(expected));
        }
    }

    #[test]
    fn the_message_for_an_invalid_duration_shows_a_valid_one() {
        for text in ["\"\"", "\"ms\"", "\"5\"", "\"5 s\"", "\"-5s\"", "\"0.5s\"", "\"5sec\""] {
            let message = milliseconds(text, TimeUnit::SECONDS).unwrap_err();
            assert!(message.starts_with("invalid duration; write a whole number"), "{text}");
        }
        for text in ["-5", "0.5", "5u64", "Duration::from_secs(5)"] {
            let message = milliseconds(text, TimeUnit::SECONDS).unwrap_err();
            assert!(message.starts_with("`expire` must be a whole number"), "{text}");
        }
    }

    #[test]
    fn an_overflow_is_an_error() {
        for text in ["99999999999999999999", "18446744073709551615", "\"18446744073709551615d\""] {
            assert_eq!(
                milliseconds(text, TimeUnit::SECONDS),
                Err("this duration is too long".to_owned())
            );
        }
    }
}
