//! The table of the settings: the name of each, its type, and its range.

use std::time::Duration;

use super::LockManagerConfig;
use crate::context::check_expire;
use crate::error::InvalidOption;
use crate::lock::Dialect;
use crate::manager::builder::LockManagerBuilder;
use crate::manager::check::{check_max_waiters, check_outage_grace, check_prefix, check_timeout};
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
    fn read<'de, D: serde::Deserializer<'de>>(
        name: &'static str,
        deserializer: D,
    ) -> Result<Self, D::Error> {
        super::de::read(name, deserializer)
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
    fn read<'de, D: serde::Deserializer<'de>>(
        _: &'static str,
        deserializer: D,
    ) -> Result<Self, D::Error> {
        serde::Deserialize::deserialize(deserializer)
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

macro_rules! fields {
    ($($name:ident: $value:ty, $check:expr;)*) => {
        impl LockManagerConfig {
            /// The names of all settings.
            pub(super) const FIELDS: &[&str] = &["urls", $(stringify!($name)),*];

            /// Reads the text of a setting other than the URLs.
            pub(super) fn read_text(&mut self, field: &str, text: &str) -> Result<(), InvalidOption> {
                match field {
                    $(stringify!($name) => {
                        let value = parse::<$value>(stringify!($name), text)?;
                        checked(&value, $check)?;
                        self.$name = Some(value);
                    })*
                    _ => {}
                }
                Ok(())
            }

            /// Sets every setting that has a value, except the URLs.
            pub(super) fn apply(&self, mut builder: LockManagerBuilder) -> LockManagerBuilder {
                let Self { urls: _, $($name),* } = self.clone();
                $(if let Some(value) = $name {
                    builder = builder.$name(value);
                })*
                builder
            }

            /// Reads the value of a setting other than the URLs.
            #[cfg(feature = "serde")]
            pub(super) fn read_field<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                field: &str,
                map: &mut A,
            ) -> Result<(), A::Error> {
                match field {
                    $(stringify!($name) => {
                        let check = |value: &$value| checked(value, $check);
                        let value = super::de::Checked::new(stringify!($name), check);
                        self.$name = map.next_value_seed(value)?;
                    })*
                    _ => {}
                }
                Ok(())
            }

            /// Writes every setting that has a value.
            #[cfg(feature = "serde")]
            pub(super) fn write<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;

                let Self { urls, $($name),* } = self.clone();
                let are_set = [!urls.is_empty(), $($name.is_some()),*];
                let length = are_set.into_iter().filter(|is_set| *is_set).count();
                let mut settings = serializer.serialize_struct("LockManagerConfig", length)?;
                if !urls.is_empty() {
                    settings.serialize_field("urls", &urls)?;
                }
                $(if $name.is_some() {
                    // Some formats write, and expect, the `Some`.
                    let value = $name.map(<$value as Setting>::Written::from);
                    settings.serialize_field(stringify!($name), &value)?;
                })*
                settings.end()
            }
        }
    };
}

// The names of the settings besides the URLs, each with its type and the check of its range. The builder has a
// method of the same name.
fields! {
    prefix: String, |prefix| check_prefix(prefix);
    dialect: Dialect, |_| Ok(());
    expire: Duration, |expire| check_expire("expire", *expire);
    node_timeout: Duration, |timeout| check_timeout("node_timeout", *timeout);
    connect_timeout: Duration, |timeout| check_timeout("connect_timeout", *timeout);
    max_waiters: usize, |max_waiters| check_max_waiters(*max_waiters);
    outage_grace: Duration, |grace| check_outage_grace(*grace);
    restart_guard: Duration, |longest| check_expire("restart_guard", *longest);
}

fn checked<T>(
    value: &T,
    check: impl FnOnce(&T) -> Result<(), InvalidOption>,
) -> Result<(), InvalidOption> {
    check(value)
}

fn parse<T: Setting>(name: &'static str, text: &str) -> Result<T, InvalidOption> {
    T::from_text(text).ok_or_else(|| InvalidOption::new(name, format!("{text:?}"), T::FORM))
}
