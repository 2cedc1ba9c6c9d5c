//! Deserializes options from an application's configuration.

use std::fmt;
use std::time::Duration;

use serde::de::{
    self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};

use super::time::{TIME_FORM, parse_time};
use super::{LockOptions, WaitTime};

impl<'de> Deserialize<'de> for LockOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OptionsVisitor;

        impl<'de> Visitor<'de> for OptionsVisitor {
            type Value = LockOptions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the options of a lock")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LockOptions, A::Error> {
                let mut options = LockOptions::new();
                let mut seen = Vec::new();
                while let Some(OptionName(name)) = map.next_key()? {
                    if seen.contains(&name) {
                        return Err(de::Error::duplicate_field(name));
                    }
                    seen.push(name);
                    options.read_field(name, &mut map)?;
                }
                Ok(options)
            }

            fn visit_unit<E: de::Error>(self) -> Result<LockOptions, E> {
                Ok(LockOptions::new())
            }

            /// RON passes a struct without fields, `LockOptions()`, as an empty sequence.
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LockOptions, A::Error> {
                match seq.next_element::<IgnoredAny>()? {
                    None => self.visit_unit(),
                    Some(_) => Err(de::Error::invalid_type(Unexpected::Seq, &self)),
                }
            }
        }

        // RON accepts only maps for `deserialize_map`. `deserialize_struct` would make `serde(flatten)` ignore
        // a misspelt option.
        deserializer.deserialize_any(OptionsVisitor)
    }
}

/// The name of an option. Any other name is an error, which a configuration's reader reports with the line
/// and column of the name.
struct OptionName(&'static str);

impl<'de> Deserialize<'de> for OptionName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let known = LockOptions::FIELDS.iter().find(|known| **known == name);
        known
            .map(|known| Self(known))
            .ok_or_else(|| de::Error::unknown_field(&name, LockOptions::FIELDS))
    }
}

/// `true` or `false`. Formats that have only texts, such as environment variables, may give the text. No
/// public API.
#[derive(Debug)]
pub struct Switch(pub bool);

impl From<Switch> for bool {
    fn from(switch: Switch) -> Self {
        switch.0
    }
}

impl From<bool> for Switch {
    fn from(switch: bool) -> Self {
        Self(switch)
    }
}

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SwitchVisitor;

        impl Visitor<'_> for SwitchVisitor {
            type Value = Switch;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a boolean")
            }

            fn visit_bool<E: de::Error>(self, switch: bool) -> Result<Switch, E> {
                Ok(Switch(switch))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Switch, E> {
                let switch =
                    text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))?;
                self.visit_bool(switch)
            }
        }

        deserializer.deserialize_bool(SwitchVisitor)
    }
}

/// A number. Formats that have only texts, such as environment variables, may give the text. No public API.
#[derive(Debug)]
pub struct WholeNumber(pub u32);

impl From<WholeNumber> for u32 {
    fn from(count: WholeNumber) -> Self {
        count.0
    }
}

impl From<u32> for WholeNumber {
    fn from(count: u32) -> Self {
        Self(count)
    }
}

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeNumberVisitor;

        impl Visitor<'_> for WholeNumberVisitor {
            type Value = WholeNumber;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_u64<E: de::Error>(self, count: u64) -> Result<WholeNumber, E> {
                let invalid = |_| E::invalid_value(Unexpected::Unsigned(count), &self);
                u32::try_from(count).map(WholeNumber).map_err(invalid)
            }

            fn visit_i64<E: de::Error>(self, count: i64) -> Result<WholeNumber, E> {
                let invalid = |_| E::invalid_value(Unexpected::Signed(count), &self);
                u32::try_from(count).map(WholeNumber).map_err(invalid)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<WholeNumber, E> {
                let invalid = |_| E::invalid_value(Unexpected::Str(text), &self);
                text.parse().map(WholeNumber).map_err(invalid)
            }
        }

        deserializer.deserialize_u32(WholeNumberVisitor)
    }
}

/// A duration: `"500ms"`, `"1m 30s"`, or a whole number of seconds, also as text. No public API.
#[derive(Debug)]
pub struct Time(pub Duration);

impl From<Time> for Duration {
    fn from(time: Time) -> Self {
        time.0
    }
}

impl From<Duration> for Time {
    fn from(time: Duration) -> Self {
        Self(time)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeVisitor { or: "" }).map(Self)
    }
}

impl<'de> Deserialize<'de> for WaitTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WaitTimeVisitor(TimeVisitor);

        impl Visitor<'_> for WaitTimeVisitor {
            type Value = WaitTime;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.expecting(f)
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<WaitTime, E> {
                self.0.visit_u64(seconds).map(WaitTime::UpTo)
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<WaitTime, E> {
                self.0.visit_i64(seconds).map(WaitTime::UpTo)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<WaitTime, E> {
                match text {
                    "forever" => Ok(WaitTime::Forever),
                    text => self.0.visit_str(text).map(WaitTime::UpTo),
                }
            }
        }

        deserializer.deserialize_any(WaitTimeVisitor(TimeVisitor { or: ", or \"forever\"" }))
    }
}

struct TimeVisitor {
    /// Another accepted value, for error messages.
    or: &'static str,
}

impl Visitor<'_> for TimeVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { or } = self;
        write!(f, "{TIME_FORM}{or}")
    }

    fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Duration, E> {
        Ok(Duration::from_secs(seconds))
    }

    fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Duration, E> {
        match u64::try_from(seconds) {
            Ok(seconds) => self.visit_u64(seconds),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(seconds), &self)),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        parse_time(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}
