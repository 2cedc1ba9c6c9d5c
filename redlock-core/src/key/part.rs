//! The escaping of values in keys.

use std::fmt::{self, Display, Write};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All characters except the unreserved ones of RFC 3986, section 2.3. In particular `:`, `/`, `{`, `}`,
/// `#`, `%` and control characters are encoded, so that a value can neither end its part of the key nor
/// open a hash tag.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Marks an empty value: the control characters "start of text" and "end of text".
///
/// No value can produce the mark, because control characters are encoded. `LockKey::new` turns the mark
/// into an error, because a `Display` implementation cannot return one. The mark has two characters, so
/// that a single control character in the text around the values is reported as a control character.
pub(super) const EMPTY_MARK: &str = "\u{2}\u{3}";

/// Returns whether no escaped value contains this character, so that it separates two values.
pub(super) fn is_separator(character: char) -> bool {
    !(character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_' | '~' | '%'))
}

/// A value inside a key. Its `Display` percent-encodes the value, so that different values give
/// different keys.
///
/// All characters except ASCII letters, digits, `-`, `.`, `_` and `~` are encoded as UTF-8 (RFC 3986,
/// section 2.3). An empty value makes [`LockKey::new`](super::LockKey::new) fail with
/// [`KeyError::EmptyPart`](super::KeyError::EmptyPart).
///
/// Separate two values by a character that no encoded value contains, such as `:`. A `-` does not
/// separate values.
///
/// # Examples
///
/// ```
/// use redlock_core::KeyPart;
///
/// assert_eq!(format!("{}:{}", KeyPart("a:b"), KeyPart(&7)), "a%3Ab:7");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct KeyPart<'a, T: ?Sized>(pub &'a T);

impl<T: Display + ?Sized> Display for KeyPart<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut encoder = Encoder { f, empty: true };
        write!(encoder, "{}", self.0)?;
        if encoder.empty { f.write_str(EMPTY_MARK) } else { Ok(()) }
    }
}

struct Encoder<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    empty: bool,
}

impl Write for Encoder<'_, '_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.empty &= s.is_empty();
        for chunk in utf8_percent_encode(s, ENCODED) {
            self.f.write_str(chunk)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use percent_encoding::percent_decode_str;

    use super::super::{KeyError, LockKey};
    use super::*;

    #[test]
    fn decoding_restores_the_value() {
        for value in ["a", ":", "%3A", "{x}", "a/b c", "日本", "\u{0}\n", "é", "a#b"] {
            let encoded = KeyPart(value).to_string();
            assert_eq!(percent_decode_str(&encoded).decode_utf8().unwrap(), value);
            assert!(!encoded.contains([':', '{', '}', '#']), "{encoded}");
            assert!(!encoded.contains(char::is_control), "{encoded}");
        }
    }

    #[test]
    fn a_value_may_be_written_in_pieces() {
        for (pieces, whole) in [(["a", ""], "a"), (["", "a"], "a"), (["a", ":"], "a%3A")] {
            let [one, other] = pieces;
            assert_eq!(KeyPart(&format_args!("{one}{other}")).to_string(), whole);
        }
        let nothing = KeyPart(&format_args!("{}{}", "", "")).to_string();
        assert_eq!(nothing, KeyPart("").to_string());
    }

    #[test]
    fn a_separator_inside_a_value_does_not_move_the_border() {
        let one = format!("{}:{}", KeyPart("a:b"), KeyPart("c"));
        let two = format!("{}:{}", KeyPart("a"), KeyPart("b:c"));
        assert_ne!(one, two);
    }

    #[test]
    fn an_empty_value_is_an_error_of_the_key() {
        let key = format!("order:{}", KeyPart(""));
        assert_eq!(LockKey::new(key), Err(KeyError::EmptyPart { name: None }));
    }
}
