//! Serializes the values of options, in the form that [`de`](super::de) reads.

use serde::ser::{Serialize, Serializer};

use super::WaitTime;
use super::de::{Switch, Time, WholeNumber};

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}

impl Serialize for WaitTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::UpTo(time) => Time(time).serialize(serializer),
            Self::Forever => serializer.serialize_str("forever"),
        }
    }
}

impl Serialize for Switch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(self.0)
    }
}

impl Serialize for WholeNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}
