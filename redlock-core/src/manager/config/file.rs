//! The settings in the configuration of a service: TOML, JSON, RON and the like.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::settings::{SETTINGS, write};
use super::{LockManagerConfig, NodeUrl};

/// The value of a setting in a file. Each kind of value is optional, because `null` is the default, and RON writes
/// `Some`.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Value {
    Text(Option<String>),
    Number(Option<i64>),
    Flag(Option<bool>),
    Texts(Option<Vec<String>>),
    Other(IgnoredAny),
}

impl<'de> Deserialize<'de> for LockManagerConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // RON accepts only maps for `deserialize_map`. `deserialize_struct` would make `serde(flatten)` ignore
        // a misspelt setting.
        deserializer.deserialize_any(ConfigVisitor)
    }
}

struct ConfigVisitor;

impl<'de> Visitor<'de> for ConfigVisitor {
    type Value = LockManagerConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the settings of a lock manager")
    }

    /// The crate `toml` prints the line of an error, and any line may contain a password. An error that is made here
    /// has the line of the table instead (secrets stay in).
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LockManagerConfig, A::Error> {
        let mut config = LockManagerConfig::new();
        let mut seen = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
                let known: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
                return Err(de::Error::custom(format_args!(
                    "unknown field `{name}`, expected one of `{}`",
                    known.join("`, `")
                )));
            };
            if seen.contains(&setting.name) {
                return Err(de::Error::duplicate_field(setting.name));
            }
            seen.push(setting.name);
            let text = match value {
                Value::Text(None) => continue,
                Value::Text(Some(text)) => text,
                Value::Number(Some(number)) if name != "urls" => number.to_string(),
                Value::Flag(Some(flag)) if name == "lock_order" => flag.to_string(),
                Value::Texts(Some(urls)) if name == "urls" => {
                    config.urls = urls.into_iter().map(NodeUrl::from).collect();
                    continue;
                }
                _ => {
                    return Err(de::Error::custom(format_args!("{name} must be {}", setting.form)));
                }
            };
            config.set(setting, &text).map_err(de::Error::custom)?;
        }
        Ok(config)
    }

    fn visit_unit<E: de::Error>(self) -> Result<LockManagerConfig, E> {
        Ok(LockManagerConfig::new())
    }
}

/// Writes the URLs with their passwords.
impl Serialize for LockManagerConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.urls.is_empty() {
            let urls: Vec<&str> = self.urls.iter().map(AsRef::as_ref).collect();
            map.serialize_entry("urls", &urls)?;
        }
        write(self, &mut map)?;
        map.end()
    }
}
