//! Options in a configuration of other formats than TOML and JSON.

use std::time::Duration;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, MapDeserializer};

use super::{LockOptions, OnLost};
use crate::Dialect;

const SECOND: Duration = Duration::from_secs(1);

const NONE: LockOptions = LockOptions::new();

#[test]
fn every_option_is_a_field() {
    let texts = [
        ("expire", "1m 30s"),
        ("wait_time", "2s"),
        ("renew", "true"),
        ("max_hold", "1h"),
        ("min_hold", "0"),
        ("keep", "false"),
        ("reentrant", "true"),
        ("shared", "true"),
        ("permits", "3"),
        ("fair", "true"),
        ("dialect", "redisson"),
        ("fenced", "true"),
        ("on_lost", "abort"),
    ];
    assert_eq!(texts.map(|(name, _)| name), *LockOptions::NAMES);
    let expected = NONE
        .expire(90 * SECOND)
        .wait_time(2 * SECOND)
        .renew(true)
        .max_hold(3600 * SECOND)
        .min_hold(Duration::ZERO)
        .keep(false)
        .reentrant(true)
        .shared(true)
        .permits(3)
        .fair(true)
        .dialect(Dialect::Redisson)
        .fenced(true)
        .on_lost(OnLost::Abort);
    let json: serde_json::Map<_, _> =
        texts.into_iter().map(|(name, text)| (name.to_owned(), text.into())).collect();
    assert_eq!(serde_json::from_value::<LockOptions>(json.into()).unwrap(), expected);
    assert_eq!(of_texts(texts), Ok(expected));
}

#[test]
fn ron_is_read_as_a_struct() {
    let expected = NONE.expire(5 * SECOND).renew(true).dialect(Dialect::Redisson);
    for text in [
        "(expire: Some(5), renew: Some(true), dialect: Some(\"redisson\"))",
        "LockOptions(expire: Some(\"5s\"), keep: None, renew: Some(true), dialect: Some(\"redisson\"))",
        "#![enable(implicit_some)] (expire: \"5\", renew: true, dialect: \"redisson\")",
    ] {
        assert_eq!(ron::from_str::<LockOptions>(text).unwrap(), expected, "{text}");
    }
    for text in ["()", "LockOptions()"] {
        assert_eq!(ron::from_str::<LockOptions>(text).unwrap(), NONE, "{text}");
    }
}

fn of_texts<const N: usize>(
    texts: [(&'static str, &'static str); N],
) -> Result<LockOptions, Error> {
    LockOptions::deserialize(MapDeserializer::new(
        texts.map(|(name, text)| (name.into_deserializer(), SomeText(text))).into_iter(),
    ))
}

/// Environment variables have only texts.
#[test]
fn texts_are_read_as_numbers_and_switches() {
    let texts = [("expire", "5"), ("wait_time", "02"), ("renew", "true"), ("keep", "false")];
    let expected = NONE.expire(5 * SECOND).wait_time(2 * SECOND).renew(true).keep(false);
    assert_eq!(of_texts(texts), Ok(expected));

    let toml = |text| toml::from_str::<LockOptions>(text);
    assert_eq!(toml("expire = '5'"), toml("expire = 5"));
    assert_eq!(toml("wait_time = '0'"), toml("wait_time = 0"));
    for wrong in ["expire = '-5'", "expire = '5.5'", "expire = ''", "renew = '1'", "keep = 'yes'"] {
        assert!(toml(wrong).is_err(), "{wrong}");
    }
}

/// A text that is also a value for `Option`, as the readers of environment variables have it.
#[derive(Clone, Copy)]
struct SomeText(&'static str);

impl IntoDeserializer<'_, Error> for SomeText {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> serde::Deserializer<'de> for SomeText {
    type Error = Error;

    fn deserialize_any<V: serde::de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.0)
    }

    fn deserialize_option<V: serde::de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
