//! Builds a key of texts and escaped values.

use std::fmt::{Display, Write};

use smol_str::format_smolstr;

use super::part::EMPTY_MARK;
use super::{KeyError, KeyPart, LockKey, RESERVED};

/// Builds the key of a template, in the code of the attribute and in [`KeyTemplate`](super::KeyTemplate). The first
/// mistake is kept until the end. No public API.
#[derive(Debug, Default)]
pub struct KeyBuilder<'a> {
    key: String,
    /// The name of the first value, if the key could begin with `redlock:` because of it.
    first: Option<&'a str>,
    mistake: Option<KeyError>,
}

impl<'a> KeyBuilder<'a> {
    /// Begins a key.
    pub fn new() -> Self {
        Self { key: String::with_capacity(64), ..Self::default() }
    }

    /// Adds a text of the template.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.key.push_str(text);
        self
    }

    /// Adds a constant of the program, which is not escaped.
    #[must_use]
    pub fn constant(mut self, constant: &(impl Display + ?Sized)) -> Self {
        // Writing to a String does not fail, unless the constant's `Display` does.
        let _ = write!(self.key, "{constant}");
        self
    }

    /// Adds the value of the placeholder with this name.
    #[must_use]
    pub fn part(
        mut self,
        name: &'a str,
        kind: PlaceholderKind,
        value: &(impl KeyValue + ?Sized),
    ) -> Self {
        // An escaped value contains no `:`, so only the first one can make the key a reserved one.
        if self.first.is_none() && self.key.len() < RESERVED.len() {
            self.first = Some(name);
        }
        if self.mistake.is_none() {
            self.mistake = kind.push(name, value, &mut self.key).err();
        }
        self
    }

    /// Returns the key.
    ///
    /// # Errors
    ///
    /// * [`KeyError::EmptyPart`] if a value is empty.
    /// * [`KeyError::WrongType`] if a value does not have the type of its placeholder.
    /// * [`KeyError::ReservedPart`] if the key begins with `redlock:` because of a value.
    /// * The errors of [`LockKey::new`].
    pub fn finish(self) -> Result<LockKey, KeyError> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        LockKey::new(self.key).map_err(|error| match (error, self.first) {
            (KeyError::Reserved, Some(first)) => {
                KeyError::ReservedPart { name: Some(first.to_owned()) }
            }
            (error, _) => error,
        })
    }
}

/// A value of a key: every type with a `Display`. No public API.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no text for a lock key, because it does not implement `Display`",
    label = "this value does not implement `Display`",
    note = "write a value that has one, such as `key(\"order:{{}}\", order.id)`",
    note = "a list is locked by one key for each item: `keys(\"seat:{{}}\", seats)`"
)]
pub trait KeyValue: Display {}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> KeyValue for T {}

/// The type of a placeholder. No public API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "no public API")]
pub enum PlaceholderKind {
    /// Any text, percent-encoded.
    Text,
    /// A whole number from 0.
    U64,
    /// A whole number.
    I64,
    /// A UUID.
    Uuid,
    /// A text in lower case, percent-encoded.
    Lower,
}

impl PlaceholderKind {
    pub(super) const NAMES: &'static str = "u64, i64, uuid, lower";

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "u64" => Self::U64,
            "i64" => Self::I64,
            "uuid" => Self::Uuid,
            "lower" => Self::Lower,
            _ => return None,
        })
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Text | Self::Lower => "a text",
            Self::U64 => "a whole number from 0 to 18446744073709551615",
            Self::I64 => "a whole number from -9223372036854775808 to 9223372036854775807",
            Self::Uuid => "a UUID",
        }
    }

    /// Adds the canonical form of the value to the key.
    fn push(
        self,
        name: &str,
        value: &(impl Display + ?Sized),
        key: &mut String,
    ) -> Result<(), KeyError> {
        let start = key.len();
        let written = match self {
            Self::Text => write!(key, "{}", KeyPart(value)).ok(),
            _ => self.write_typed(&format_smolstr!("{value}"), key),
        };
        if &key[start..] == EMPTY_MARK {
            return Err(KeyError::EmptyPart { name: Some(name.to_owned()) });
        }
        written
            .ok_or_else(|| KeyError::WrongType { name: name.to_owned(), expected: self.expected() })
    }

    /// Writes the canonical form of a text. Returns `None` if the text does not have this type.
    fn write_typed(self, value: &str, key: &mut String) -> Option<()> {
        match self {
            _ if value.is_empty() => key.push_str(EMPTY_MARK),
            Self::U64 => return write!(key, "{}", value.parse::<u64>().ok()?).ok(),
            Self::I64 => return write!(key, "{}", value.parse::<i64>().ok()?).ok(),
            Self::Uuid => return write_uuid(value, key),
            Self::Text | Self::Lower => {
                return write!(key, "{}", KeyPart(&value.to_lowercase())).ok();
            }
        }
        Some(())
    }
}

fn write_uuid(value: &str, key: &mut String) -> Option<()> {
    const HYPHENS: [usize; 4] = [8, 13, 18, 23];
    let bytes = value.as_bytes();
    let hyphenated = match bytes.len() {
        32 => false,
        36 if HYPHENS.iter().all(|&index| bytes[index] == b'-') => true,
        _ => return None,
    };
    let digits = bytes
        .iter()
        .enumerate()
        .filter(|(index, _)| !(hyphenated && HYPHENS.contains(index)))
        .map(|(_, byte)| byte);
    for (count, digit) in digits.enumerate() {
        if !digit.is_ascii_hexdigit() {
            return None;
        }
        if matches!(count, 8 | 12 | 16 | 20) {
            key.push('-');
        }
        key.push(char::from(digit.to_ascii_lowercase()));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_built_of_texts_constants_and_escaped_values() {
        let key = KeyBuilder::new()
            .constant("a:b")
            .text(":")
            .part("id", PlaceholderKind::Text, "c:d")
            .text("/")
            .part("n", PlaceholderKind::U64, &format_args!("0{}", 7))
            .finish();
        assert_eq!(key.unwrap().as_str(), "a:b:c%3Ad/7");
    }

    #[test]
    fn the_first_mistake_is_reported() {
        for kind in [PlaceholderKind::Text, PlaceholderKind::U64, PlaceholderKind::Lower] {
            let key = KeyBuilder::new().part("a", kind, "").part("b", PlaceholderKind::U64, "x");
            assert_eq!(key.finish(), Err(KeyError::EmptyPart { name: Some("a".into()) }));
        }
    }

    /// Only a value of the request is the mistake of the client.
    #[test]
    fn a_reserved_key_is_the_mistake_of_the_value_that_made_it() {
        let of_value = KeyBuilder::new().text("red").part("a", PlaceholderKind::Text, "lock");
        let of_constant =
            KeyBuilder::new().constant("redlock:").part("a", PlaceholderKind::Text, "b");
        let by_value = KeyError::ReservedPart { name: Some("a".into()) };
        assert_eq!(of_value.text(":b").finish(), Err(by_value));
        assert_eq!(of_constant.finish(), Err(KeyError::Reserved));
    }
}
