//! Serializes options as an application's configuration, in the form that [`de`](super::de) reads.

use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::{LockOptions, WaitTime};
use crate::lock::Dialect;

/// The value of an option that is set.
#[derive(Debug, serde::Serialize)]
#[serde(untagged)]
enum Value {
    #[serde(serialize_with = "serialize_time")]
    Time(Duration),
    WaitTime(WaitTime),
    Switch(bool),
    Dialect(Dialect),
}

impl LockOptions {
    /// Returns the names and the values of the options that are set.
    pub(super) fn set_fields(&self) -> Vec<(&'static str, impl Serialize + use<>)> {
        let Self { expire, wait_time, renew, max_hold, min_hold, keep, reentrant, dialect } = self;
        let fields = [
            ("expire", expire.map(Value::Time)),
            ("wait_time", wait_time.map(Value::WaitTime)),
            ("renew", renew.map(Value::Switch)),
            ("max_hold", max_hold.map(Value::Time)),
            ("min_hold", min_hold.map(Value::Time)),
            ("keep", keep.map(Value::Switch)),
            ("reentrant", reentrant.map(Value::Switch)),
            ("dialect", dialect.map(Value::Dialect)),
        ];
        // The values stay in a `Some`, which some formats write, and expect, around an optional value.
        fields.into_iter().filter(|(_, value)| value.is_some()).collect()
    }
}

impl Serialize for LockOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.set_fields();
        let mut options = serializer.serialize_struct("LockOptions", fields.len())?;
        for (name, value) in &fields {
            options.serialize_field(name, value)?;
        }
        options.end()
    }
}

impl Serialize for WaitTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::UpTo(time) => serialize_time(time, serializer),
            Self::Forever => serializer.serialize_str("forever"),
        }
    }
}

fn serialize_time<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*time))
}
