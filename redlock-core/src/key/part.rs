//! The escaping of values that go into a key.

use std::fmt::{self, Display, Write};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Everything but the unreserved characters of RFC 3986, section 2.3. In particular `:`, `/`, `{`,
/// `}`, `#`, `%` and control characters are encoded, so that a value can neither end its part of
/// the key nor open a hash tag.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Stands for a value that was empty: the control characters "start of text" and "end of text". It
/// cannot come from a value, because control characters are encoded; `LockKey::new` turns it into an
/// error, which a `Display` implementation cannot raise. No single control character is the mark, so
/// that one in the text around the values is reported as what it is.
pub(super) const EMPTY_MARK: &str = "\u{2}\u{3}";

/// Whether no escaped value contains this character, so that it shows where one ends.
pub(super) fn is_separator(character: char) -> bool {
    !(character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_' | '~' | '%'))
}

/// A value inside a key, percent-encoded, so that different values give different keys.
///
/// All but ASCII letters, digits, `-`, `.`, `_` and `~` is encoded (RFC 3986, section 2.3), as
/// UTF-8. An empty value makes [`LockKey::new`](super::LockKey::new) fail with
/// [`KeyError::EmptyPart`](super::KeyError::EmptyPart).
///
/// Put a character between two values that none of them contains, such as `:`; `-` is none.
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
