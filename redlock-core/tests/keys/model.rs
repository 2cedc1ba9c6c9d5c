//! An independent implementation of the format of keys, which the library is compared with.

use std::fmt;

use redlock_core::{KeyError, KeyTemplate, LockKey};
use sha2::{Digest, Sha256};

pub(crate) fn is_unreserved(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-._~".contains(character)
}

/// Percent-encodes a value as RFC 3986 says.
pub(crate) fn encode(value: &str) -> String {
    let encode = |byte: &u8| match char::from(*byte) {
        character if is_unreserved(character) => character.to_string(),
        _ => format!("%{byte:02X}"),
    };
    value.as_bytes().iter().map(encode).collect()
}

/// Decodes a value. Returns `None` for a text that `encode` never produces.
pub(crate) fn decode(encoded: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = encoded;
    while let Some(character) = rest.chars().next() {
        let length = if character == '%' {
            let digits = rest.get(1..3)?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            3
        } else {
            bytes.push(u8::try_from(character).ok().filter(|_| is_unreserved(character))?);
            1
        };
        rest = &rest[length..];
    }
    String::from_utf8(bytes).ok().filter(|decoded| encode(decoded) == encoded)
}

/// Returns the short form of a key of more than 200 bytes.
pub(crate) fn shortened(long: &str) -> String {
    let head = (0..=128).rev().find(|&length| long.is_char_boundary(length)).unwrap();
    let digest: Vec<_> = Sha256::digest(long).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}%#{}", &long[..head], digest.concat())
}

/// Writes its value in several pieces, as many `Display` implementations do.
pub(crate) struct InPieces<'a>(pub(crate) &'a str);

impl fmt::Display for InPieces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| write!(f, "{character}"))
    }
}

/// Renders the template with these values.
pub(crate) fn render(template: &str, values: &[(&str, &str)]) -> Result<LockKey, KeyError> {
    KeyTemplate::new(template).unwrap().render(values.iter().copied())
}
