//! The types of the settings, and the texts and numbers that are their values.

#[cfg(feature = "serde")]
use std::fmt;
#[cfg(feature = "serde")]
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "serde")]
use serde::de::{self, Deserialize, Deserializer, Visitor};

#[cfg(feature = "serde")]
use crate::error::InvalidOption;
use crate::lock::Dialect;
use crate::options::{TIME_FORM, parse_time};

/// A value of a setting, also as a text.
pub(super) trait Setting: Clone {
    /// The allowed values, for error messages.
    const FORM: &str;

    /// Returns the value of a text.
    fn from_text(text: &str) -> Option<Self>;

    /// Returns the value of a number.
    #[cfg(feature = "serde")]
    fn from_number(number: u64) -> Option<Self>;

    /// Deserializes the value of the setting `name`.
    #[cfg(feature = "serde")]
    fn read<'de, D: Deserializer<'de>>(
        name: &'static str,
        deserializer: D,
    ) -> Result<Self, D::Error> {
        read(name, deserializer)
    }

    /// The type by which serde writes the value.
    #[cfg(feature = "serde")]
    type Written: serde::Serialize + From<Self>;
}

impl Setting for String {
    const FORM: &str = "a text";

    fn from_text(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }

    #[cfg(feature = "serde")]
    fn from_number(_: u64) -> Option<Self> {
        None
    }

    #[cfg(feature = "serde")]
    type Written = Self;
}

impl Setting for PathBuf {
    const FORM: &str = "the path of a file";

    fn from_text(text: &str) -> Option<Self> {
        Some(text.trim().into())
    }

    #[cfg(feature = "serde")]
    fn from_number(_: u64) -> Option<Self> {
        None
    }

    #[cfg(feature = "serde")]
    type Written = Self;
}

impl Setting for Dialect {
    const FORM: &str = "plain or redisson";

    fn from_text(text: &str) -> Option<Self> {
        match text.trim() {
            "plain" => Some(Self::Plain),
            "redisson" => Some(Self::Redisson),
            _ => None,
        }
    }

    #[cfg(feature = "serde")]
    fn from_number(_: u64) -> Option<Self> {
        None
    }

    /// RON does not write it as a text.
    #[cfg(feature = "serde")]
    fn read<'de, D: Deserializer<'de>>(_: &'static str, deserializer: D) -> Result<Self, D::Error> {
        Deserialize::deserialize(deserializer)
    }

    #[cfg(feature = "serde")]
    type Written = Self;
}

impl Setting for Duration {
    const FORM: &str = TIME_FORM;

    fn from_text(text: &str) -> Option<Self> {
        parse_time(text.trim())
    }

    #[cfg(feature = "serde")]
    fn from_number(seconds: u64) -> Option<Self> {
        Some(Self::from_secs(seconds))
    }

    #[cfg(feature = "serde")]
    type Written = crate::options::Time;
}

impl Setting for usize {
    const FORM: &str = "a whole number";

    fn from_text(text: &str) -> Option<Self> {
        text.trim().parse().ok()
    }

    #[cfg(feature = "serde")]
    fn from_number(number: u64) -> Option<Self> {
        number.try_into().ok()
    }

    #[cfg(feature = "serde")]
    type Written = Self;
}

/// Reads a value that is a number or a text.
#[cfg(feature = "serde")]
fn read<'de, T: Setting, D: Deserializer<'de>>(
    name: &'static str,
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(SettingVisitor { name, value: PhantomData })
}

#[cfg(feature = "serde")]
struct SettingVisitor<T> {
    name: &'static str,
    value: PhantomData<T>,
}

#[cfg(feature = "serde")]
impl<T: Setting> Visitor<'_> for SettingVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", T::FORM, self.name)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        T::from_number(number)
            .ok_or_else(|| E::custom(InvalidOption::new(self.name, number, T::FORM)))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::custom(InvalidOption::new(self.name, number, T::FORM))),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).ok_or_else(|| {
            E::custom(InvalidOption::new(self.name, format_args!("{text:?}"), T::FORM))
        })
    }
}
