//! Deserializes the settings from the configuration of a service.

use std::fmt;

use serde::de::{
    self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};

use super::LockManagerConfig;
use super::suggestion::suggestion;
use super::urls::split;

const URLS: &str = "urls";

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

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LockManagerConfig, A::Error> {
        let mut config = LockManagerConfig::new();
        let mut seen = Vec::new();
        while let Some(name) = map.next_key()? {
            let field = match name {
                FieldName::Known(field) => field,
                FieldName::Unknown(name) => return Err(unknown(&name)),
            };
            if seen.contains(&field) {
                return Err(de::Error::duplicate_field(field));
            }
            seen.push(field);
            if field == URLS {
                // The crate `toml` prints the line of an error, and this line may contain passwords. An error
                // that is made here has the line of the table (secrets stay in).
                let Urls(urls) = map.next_value().map_err(|_| {
                    de::Error::custom(
                        "urls must be a list of URLs, or a text with commas between the URLs",
                    )
                })?;
                config.urls = urls;
            } else {
                config.read_field(field, &mut map)?;
            }
        }
        Ok(config)
    }

    fn visit_unit<E: de::Error>(self) -> Result<LockManagerConfig, E> {
        Ok(LockManagerConfig::new())
    }

    /// RON passes a struct without fields, `LockManagerConfig()`, as an empty sequence.
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LockManagerConfig, A::Error> {
        match seq.next_element::<IgnoredAny>()? {
            None => self.visit_unit(),
            Some(_) => Err(de::Error::invalid_type(Unexpected::Seq, &self)),
        }
    }
}

fn unknown<E: de::Error>(name: &str) -> E {
    match suggestion(name) {
        Some(field) => E::custom(format_args!(
            "unknown field `{name}` (did you mean `{field}`?), expected one of `{}`",
            LockManagerConfig::FIELDS.join("`, `")
        )),
        None => E::unknown_field(name, LockManagerConfig::FIELDS),
    }
}

/// The name of a field. A misspelt name is an error, which the reader reports with the line and the column of
/// the name. If the value may contain URLs, the name is returned instead, and the error has the line of the
/// table (secrets stay in).
enum FieldName {
    Known(&'static str),
    Unknown(String),
}

impl<'de> Deserialize<'de> for FieldName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if let Some(field) = LockManagerConfig::FIELDS.iter().find(|field| **field == name) {
            return Ok(Self::Known(field));
        }
        match suggestion(&name) {
            None | Some(URLS) => Ok(Self::Unknown(name)),
            Some(_) => Err(unknown(&name)),
        }
    }
}

/// A list of URLs, or a text with commas between the URLs.
struct Urls(Vec<String>);

impl<'de> Deserialize<'de> for Urls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UrlsVisitor;

        impl<'de> Visitor<'de> for UrlsVisitor {
            type Value = Urls;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of URLs")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Urls, E> {
                Ok(Urls(split(text).into_iter().map(str::to_owned).collect()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Urls, A::Error> {
                let mut urls = Vec::new();
                while let Some(url) = seq.next_element()? {
                    urls.push(url);
                }
                Ok(Urls(urls))
            }

            fn visit_unit<E: de::Error>(self) -> Result<Urls, E> {
                Ok(Urls(Vec::new()))
            }

            fn visit_none<E: de::Error>(self) -> Result<Urls, E> {
                self.visit_unit()
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Urls, D::Error> {
                deserializer.deserialize_any(self)
            }
        }

        deserializer.deserialize_any(UrlsVisitor)
    }
}
