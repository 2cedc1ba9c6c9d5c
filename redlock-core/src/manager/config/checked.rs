//! Deserializes a setting together with the check of its range.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, DeserializeSeed, Deserializer, Visitor};

use super::setting::Setting;
use crate::error::InvalidOption;

/// Reads an optional value and checks its range, so that the reader reports the line and the column of the
/// value.
pub(super) struct Checked<T, F> {
    name: &'static str,
    check: F,
    value: PhantomData<T>,
}

impl<T, F: FnOnce(&T) -> Result<(), InvalidOption>> Checked<T, F> {
    pub(super) fn new(name: &'static str, check: F) -> Self {
        Self { name, check, value: PhantomData }
    }
}

impl<'de, T, F> DeserializeSeed<'de> for Checked<T, F>
where
    T: Setting,
    F: FnOnce(&T) -> Result<(), InvalidOption>,
{
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, T, F> Visitor<'de> for Checked<T, F>
where
    T: Setting,
    F: FnOnce(&T) -> Result<(), InvalidOption>,
{
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", T::FORM, self.name)
    }

    fn visit_none<E: de::Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        let value = T::read(self.name, deserializer)?;
        (self.check)(&value).map_err(de::Error::custom)?;
        Ok(Some(value))
    }
}
