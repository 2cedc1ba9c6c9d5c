//! Reads the header `Idempotency-Key`.

use http::{HeaderMap, HeaderName};

/// The header with the key.
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The longest key in bytes.
const MAX_LENGTH: usize = 255;

/// Reads the key of a request; `None` without the header. The error says what is wrong, for the client.
///
/// The draft defines the header as a string of structured fields (RFC 9651), in quotes. Many clients send the bare text, so that
/// a token of visible ASCII is a key too. Both forms of a text are one key.
pub(super) fn read(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err("the header idempotency-key occurs more than once");
    }
    let key = match value.as_bytes().trim_ascii() {
        [b'"', inner @ ..] => quoted(inner),
        token => token.iter().all(|byte| is_token(*byte)).then(|| token.to_vec()),
    };
    let key = key.and_then(|key| String::from_utf8(key).ok());
    let key = key.ok_or(
        "the header idempotency-key is neither a quoted string nor a token of visible ASCII characters",
    )?;
    match key.len() {
        0 => Err("the header idempotency-key is empty"),
        1..=MAX_LENGTH => Ok(Some(key)),
        _ => Err("the header idempotency-key has more than 255 bytes"),
    }
}

/// Returns whether a key without quotes may have this byte. A comma may come from a proxy that has joined two headers, and a
/// semicolon begins a parameter.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',' | b';')
}

/// Reads the rest of a quoted string.
fn quoted(inner: &[u8]) -> Option<Vec<u8>> {
    let inner = inner.strip_suffix(b"\"")?;
    let mut key = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next() {
                Some(&escaped @ (b'"' | b'\\')) => key.push(escaped),
                _ => return None,
            },
            b'"' => return None,
            b' '..=b'~' => key.push(byte),
            _ => return None,
        }
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn key(values: &[&[u8]]) -> Result<Option<String>, &'static str> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(value).unwrap());
        }
        read(&headers)
    }

    #[test]
    fn a_quoted_string_and_a_token_are_the_same_key() {
        for (value, expected) in [
            ("\"8e03978e-40d5\"", "8e03978e-40d5"),
            ("8e03978e-40d5", "8e03978e-40d5"),
            (" x ", "x"),
            (r#""a \"b\" \\c""#, r#"a "b" \c"#),
            ("a/b+c==:{}", "a/b+c==:{}"),
        ] {
            assert_eq!(key(&[value.as_bytes()]).unwrap().as_deref(), Some(expected), "{value}");
        }
        assert_eq!(key(&[]), Ok(None));
        assert_eq!(key(&[&[b'k'; 255]]).unwrap().unwrap().len(), 255);
    }

    #[test]
    fn every_other_header_is_refused() {
        for value in [
            "",
            "\"\"",
            "\"",
            "\"a",
            "a\"",
            "\"a\"b\"",
            "\"a\";x=1",
            "a;x=1",
            "\"a\", \"b\"",
            "a,b",
            "a b",
            r#""\a""#,
            r#""a\"#,
            "a\\b",
            "é",
            "\"é\"",
            "a\tb",
        ] {
            assert!(key(&[value.as_bytes()]).is_err(), "{value}");
        }
        assert!(key(&[&[b'k'; 256]]).is_err());
        assert!(key(&[b"a", b"a"]).is_err(), "two headers");
        assert!(key(&[b"\"a\x80\""]).is_err());
    }
}
