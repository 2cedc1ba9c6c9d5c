//! Reads the values of options from an application's configuration.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};

use super::{OnLost, WaitTime};
use crate::lock::Dialect;
use crate::time_text::{TIME_FORM, parse_time};

/// A value of an option. Each value can be read from a text, because formats such as environment variables have only
/// texts. No public API.
pub trait ConfigValue: Sized {
    /// The form of the value, for error messages.
    const FORM: &str;

    /// Reads a text.
    fn from_text(text: &str) -> Option<Self>;

    /// Reads a whole number.
    fn from_number(_number: u64) -> Option<Self> {
        None
    }

    /// Reads `true` or `false`.
    fn from_bool(_value: bool) -> Option<Self> {
        None
    }
}

/// Reads the value of a field. `null` is the default. No public API.
///
/// # Errors
///
/// Fails if the value does not have its [form](ConfigValue::FORM).
pub fn read_option<'de, T: ConfigValue, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Read<T>>::deserialize(deserializer)?.map(|Read(value)| value))
}

struct Read<T>(T);

impl<'de, T: ConfigValue> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor(PhantomData)).map(Self)
    }
}

struct ValueVisitor<T>(PhantomData<T>);

impl<T: ConfigValue> Visitor<'_> for ValueVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::FORM)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<T, E> {
        T::from_bool(value).ok_or_else(|| E::invalid_type(Unexpected::Bool(value), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        T::from_number(number).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        let value = u64::try_from(number).ok().and_then(T::from_number);
        value.ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

impl ConfigValue for Duration {
    const FORM: &str = TIME_FORM;

    fn from_text(text: &str) -> Option<Self> {
        parse_time(text)
    }

    fn from_number(seconds: u64) -> Option<Self> {
        Some(Self::from_secs(seconds))
    }
}

impl ConfigValue for WaitTime {
    const FORM: &str =
        "a time such as \"500ms\" or \"5s\", or a whole number of seconds, or \"forever\"";

    fn from_text(text: &str) -> Option<Self> {
        if text == "forever" { Some(Self::Forever) } else { parse_time(text).map(Self::UpTo) }
    }

    fn from_number(seconds: u64) -> Option<Self> {
        Duration::from_number(seconds).map(Self::UpTo)
    }
}

impl ConfigValue for bool {
    const FORM: &str = "a boolean";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn from_bool(value: bool) -> Option<Self> {
        Some(value)
    }
}

impl ConfigValue for u32 {
    const FORM: &str = "a whole number";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn from_number(number: u64) -> Option<Self> {
        number.try_into().ok()
    }
}

impl ConfigValue for Dialect {
    const FORM: &str = "`plain` or `redisson`";

    fn from_text(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

impl ConfigValue for OnLost {
    const FORM: &str = "`keep_going` or `abort`";

    fn from_text(text: &str) -> Option<Self> {
        match text {
            "keep_going" => Some(Self::KeepGoing),
            "abort" => Some(Self::Abort),
            _ => None,
        }
    }
}
