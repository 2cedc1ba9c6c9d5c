//! Parses the durations in the attribute: whole numbers in `time_unit`, texts such as `"500ms"`, or constants.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Lit, LitStr};

use crate::duration_text::{self, DurationText, Mistake};
use crate::hygiene::span_at;
use crate::key::ungrouped;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Describes the forms of a duration, for error messages.
const ALLOWED: &str = "a whole number, such as `5`, a text with its unit, such as `\"500ms\"`, `\"2s\"`, \
                       `\"1m 30s\"`, `\"1h\"` or `\"1d\"`, or a constant";

/// The unit of whole numbers, named as in Java's `TimeUnit`. Units below a millisecond are errors.
#[derive(Debug, Clone, Copy)]
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
pub(crate) enum WrittenDuration {
    /// A whole number, whose unit is `time_unit`.
    Number { value: u64, span: Span },
    /// A text with units.
    Text { value: Duration, span: Span },
    /// An expression for a `Duration`, or for a whole number whose unit is `time_unit`.
    Constant(Expr),
}

/// A duration whose unit is known.
pub(crate) enum AttributeTime {
    Literal(Duration),
    Constant { expression: Expr, unit: TimeUnit },
}

impl WrittenDuration {
    pub(crate) fn parse(argument: &str, value: &Expr) -> syn::Result<Self> {
        match ungrouped(value) {
            Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if number.suffix().is_empty() => {
                let value = number.base10_parse().map_err(|_| too_long(number.span()))?;
                Ok(Self::Number { value, span: number.span() })
            }
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Self::text(text),
            Expr::Path(path) if path.path.is_ident("forever") => {
                Err(syn::Error::new_spanned(path, format!("`{argument}` must be {ALLOWED}")))
            }
            constant @ (Expr::Path(_) | Expr::Call(_) | Expr::MethodCall(_)) => {
                Ok(Self::Constant(constant.clone()))
            }
            other => Err(syn::Error::new_spanned(other, format!("`{argument}` must be {ALLOWED}"))),
        }
    }

    fn text(text: &LitStr) -> syn::Result<Self> {
        let span = text.span();
        match duration_text::parse(&text.value()) {
            Ok(DurationText::Number(value)) => Ok(Self::Number { value, span }),
            Ok(DurationText::Sum(value)) => Ok(Self::Text { value, span }),
            Err(Mistake::TooLong) => Err(too_long(span)),
            Err(Mistake::Invalid) => {
                Err(syn::Error::new(span, format!("invalid duration; write {ALLOWED}")))
            }
        }
    }

    /// Returns whether `time_unit` may be the unit of the duration.
    pub(crate) fn has_time_unit(&self) -> bool {
        !matches!(self, Self::Text { .. })
    }

    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Number { span, .. } | Self::Text { span, .. } => *span,
            Self::Constant(expression) => expression.span(),
        }
    }

    pub(crate) fn in_unit(self, unit: TimeUnit) -> syn::Result<AttributeTime> {
        Ok(match self {
            Self::Number { value, span } => {
                let value = value.checked_mul(unit.milliseconds).ok_or_else(|| too_long(span))?;
                AttributeTime::Literal(Duration::from_millis(value))
            }
            Self::Text { value, .. } => AttributeTime::Literal(value),
            Self::Constant(expression) => AttributeTime::Constant { expression, unit },
        })
    }
}

impl AttributeTime {
    /// Returns a constant expression for the `Duration`, where `private` is `redlock_axum::__private`.
    pub(crate) fn expression(&self, private: &TokenStream) -> TokenStream {
        match self {
            Self::Literal(time) => {
                let (seconds, nanos) = (time.as_secs(), time.subsec_nanos());
                quote!(::core::time::Duration::new(#seconds, #nanos))
            }
            Self::Constant { expression, unit: TimeUnit { milliseconds } } => {
                quote_spanned! {span_at(expression)=>
                    #private::TimeConstant(#expression).in_unit(#milliseconds)
                }
            }
        }
    }
}

fn too_long(span: Span) -> syn::Error {
    syn::Error::new(span, "this duration is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str, unit: TimeUnit) -> Result<Duration, String> {
        let value = syn::parse_str(text).unwrap();
        let time = WrittenDuration::parse("expire", &value)
            .and_then(|written| written.in_unit(unit))
            .map_err(|error| error.to_string())?;
        match time {
            AttributeTime::Literal(time) => Ok(time),
            AttributeTime::Constant { .. } => panic!("{text} is a constant"),
        }
    }

    fn millis(value: u64) -> Duration {
        Duration::from_millis(value)
    }

    #[test]
    fn a_number_has_the_given_unit() {
        assert_eq!(time("5", TimeUnit::SECONDS), Ok(millis(5_000)));
        assert_eq!(time("\"5\"", TimeUnit::SECONDS), Ok(millis(5_000)));
        for (unit, expected) in [
            ("milliseconds", 2),
            ("SECONDS", 2_000),
            ("Minutes", 120_000),
            ("hours", 7_200_000),
            ("days", 172_800_000),
        ] {
            let unit = TimeUnit::parse(&LitStr::new(unit, Span::call_site())).unwrap();
            assert_eq!(time("2", unit), Ok(millis(expected)));
        }
    }

    #[test]
    fn a_unit_is_a_name_of_java_from_a_millisecond_up() {
        for (unit, start) in [
            ("fortnights", "unknown time unit; the units are"),
            ("Microseconds", "Redis counts leases in milliseconds; microseconds are too fine"),
            ("nanoseconds", "Redis counts leases in milliseconds; nanoseconds are too fine"),
        ] {
            let error = TimeUnit::parse(&LitStr::new(unit, Span::call_site())).unwrap_err();
            assert!(error.to_string().starts_with(start), "{error}");
        }
    }

    #[test]
    fn a_text_has_its_own_units() {
        let hours = TimeUnit { milliseconds: HOUR };
        for (text, expected) in [
            ("\"500ms\"", 500),
            ("\"2s\"", 2_000),
            ("\"2 s\"", 2_000),
            ("\"1m\"", 60_000),
            ("\"1h\"", 3_600_000),
            ("\"1d\"", 86_400_000),
            ("\"5m 30s\"", 330_000),
            ("\"1min30sec\"", 90_000),
        ] {
            assert_eq!(time(text, hours), Ok(millis(expected)), "{text}");
        }
    }

    #[test]
    fn the_message_for_an_invalid_duration_shows_a_valid_one() {
        for text in ["\"\"", "\"ms\"", "\"-5s\"", "\"5 parsecs\"", "\"1m s\""] {
            let message = time(text, TimeUnit::SECONDS).unwrap_err();
            assert!(message.starts_with("invalid duration; write a whole number"), "{text}");
        }
        for text in ["-5", "0.5", "5u64", "true", "2 * 3"] {
            let message = time(text, TimeUnit::SECONDS).unwrap_err();
            assert!(message.starts_with("`expire` must be a whole number"), "{text}");
        }
    }

    #[test]
    fn an_overflow_is_an_error() {
        for text in [
            "99999999999999999999",
            "18446744073709551615",
            "\"18446744073709551615d\"",
            "\"18446744073709551615s 1000ms\"",
            "\"18446744 073709551 615s 1000ms\"",
        ] {
            assert_eq!(time(text, TimeUnit::SECONDS), Err("this duration is too long".to_owned()));
        }
    }

    #[test]
    fn a_constant_is_converted_by_the_compiler() {
        let minutes = TimeUnit { milliseconds: MINUTE };
        for text in ["LEASE", "Self::LEASE", "Duration::from_secs(5)", "LEASE.saturating_mul(2)"] {
            let value = syn::parse_str(text).unwrap();
            let written = WrittenDuration::parse("expire", &value).unwrap();
            let time = written.in_unit(minutes).unwrap();
            let expected: TokenStream =
                format!("private :: TimeConstant ({text}) . in_unit (60000u64)").parse().unwrap();
            let expression = time.expression(&quote!(private));
            assert_eq!(expression.to_string(), expected.to_string());
        }
    }
}
