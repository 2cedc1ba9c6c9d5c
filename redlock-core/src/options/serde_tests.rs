//! Options that are written as a configuration and read back, and other formats than TOML and JSON.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, MapDeserializer};

use super::{LockOptions, WaitTime};
use crate::Dialect;

const SECOND: Duration = Duration::from_secs(1);

const NONE: LockOptions = LockOptions::new();

/// Options with a value for every field.
const ALL: LockOptions = NONE
    .expire(Duration::from_millis(90_500))
    .wait_time(SECOND)
    .renew(true)
    .max_hold(Duration::from_secs(3600))
    .min_hold(Duration::ZERO)
    .keep(false)
    .reentrant(true)
    .shared()
    .permits(3)
    .fair()
    .dialect(Dialect::Redisson);

/// Returns the options after they were written and read in each format.
fn copies(options: &LockOptions) -> [LockOptions; 5] {
    let named = ron::ser::PrettyConfig::new().struct_names(true);
    [
        serde_json::from_str(&serde_json::to_string(options).unwrap()).unwrap(),
        serde_json::from_value(serde_json::to_value(options).unwrap()).unwrap(),
        toml::from_str(&toml::to_string(options).unwrap()).unwrap(),
        ron::from_str(&ron::to_string(options).unwrap()).unwrap(),
        ron::from_str(&ron::ser::to_string_pretty(options, named).unwrap()).unwrap(),
    ]
}

#[test]
fn options_are_written_as_a_configuration_without_the_unset_ones() {
    assert_eq!(
        toml::to_string(&ALL).unwrap(),
        r#"expire = "1m 30s 500ms"
wait_time = "1s"
renew = true
max_hold = "1h"
min_hold = "0s"
keep = false
reentrant = true
shared = true
permits = 3
fair = true
dialect = "redisson"
"#
    );
    let few = NONE.wait_forever().dialect(Dialect::Plain);
    assert_eq!(
        serde_json::to_string(&few).unwrap(),
        r#"{"wait_time":"forever","dialect":"plain"}"#
    );
    assert_eq!(ron::to_string(&few).unwrap(), r#"(wait_time:Some("forever"),dialect:Some(plain))"#);
    assert_eq!(serde_json::to_string(&NONE).unwrap(), "{}");
    assert_eq!(toml::to_string(&NONE).unwrap(), "");
}

#[test]
fn every_field_that_can_be_read_is_written() {
    let written = serde_json::to_value(ALL).unwrap();
    let written: BTreeSet<_> = written.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(written, LockOptions::FIELDS.iter().copied().collect());
}

fn times() -> impl Strategy<Value = Option<Duration>> {
    let time = prop_oneof![
        (0..u64::MAX, 0..1_000_000_000u32)
            .prop_map(|(seconds, nanos)| Duration::new(seconds, nanos)),
        (0..1_000_000u64).prop_map(Duration::from_micros),
        Just(Duration::MAX),
    ];
    proptest::option::of(time)
}

#[test]
fn written_options_are_read_back_unchanged() {
    for options in [NONE, ALL, NONE.wait_forever(), NONE.dialect(Dialect::Plain)] {
        assert_eq!(copies(&options), [(); 5].map(|()| options.clone()));
    }
    let config = ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() };
    proptest!(config, |(
        [expire, wait_time, max_hold, min_hold] in [times(), times(), times(), times()],
        [renew, keep, reentrant, shared, fair] in [(); 5].map(|()| any::<Option<bool>>()),
        permits in any::<Option<u32>>(),
    )| {
        let wait_time = wait_time.map(WaitTime::UpTo);
        let options = LockOptions {
            expire, wait_time, renew, max_hold, min_hold, keep, reentrant, shared, permits,
            fair, dialect: None,
        };
        for copy in copies(&options) {
            prop_assert_eq!(&copy, &options);
        }
    });
}

#[test]
fn ron_is_read_as_a_struct_and_as_a_map() {
    let expected = NONE.expire(5 * SECOND).renew(true).dialect(Dialect::Redisson);
    for text in [
        "(expire: Some(5), renew: Some(true), dialect: Some(redisson))",
        "LockOptions(expire: Some(\"5s\"), keep: None, renew: Some(true), dialect: Some(redisson))",
        "#![enable(implicit_some)] (expire: \"5\", renew: true, dialect: redisson)",
        "{\"expire\": Some(5), \"renew\": Some(true), \"dialect\": Some(redisson)}",
    ] {
        assert_eq!(ron::from_str::<LockOptions>(text).unwrap(), expected, "{text}");
    }
    for text in ["()", "( )", "LockOptions()", "LockOptions", "{}"] {
        assert_eq!(ron::from_str::<LockOptions>(text).unwrap(), NONE, "{text}");
    }
}

#[test]
fn ron_reports_the_same_mistakes() {
    for (text, expected) in [
        ("(expire: Some(5), wait_tmie: Some(2))", "wait_tmie"),
        ("(keep: None, keep: Some(true))", "keep"),
        ("(expire: Some(\"soon\"))", "a time such as \"500ms\""),
        ("(5)", "the options of a lock"),
    ] {
        let error = ron::from_str::<LockOptions>(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

/// Environment variables have only texts.
#[test]
fn texts_are_read_as_numbers_and_switches() {
    let texts = [("expire", "5"), ("wait_time", "02"), ("renew", "true"), ("keep", "false")];
    let options = LockOptions::deserialize(MapDeserializer::<_, Error>::new(
        texts.map(|(name, text)| (name.into_deserializer(), SomeText(text))).into_iter(),
    ));
    let expected = NONE.expire(5 * SECOND).wait_time(2 * SECOND).renew(true).keep(false);
    assert_eq!(options, Ok(expected));

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
