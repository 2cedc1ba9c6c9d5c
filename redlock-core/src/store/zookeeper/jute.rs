//! Jute, the encoding of ZooKeeper: big-endian numbers, and byte strings that follow their lengths.

use bytes::Buf;

/// Encodes values.
#[derive(Default)]
pub(super) struct JuteWriter(pub(super) Vec<u8>);

impl JuteWriter {
    pub(super) fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn boolean(&mut self, value: bool) -> &mut Self {
        self.0.push(value.into());
        self
    }

    pub(super) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        // The server refuses a longer frame: its limit is below 2^31.
        self.int(i32::try_from(value.len()).unwrap_or(i32::MAX));
        self.0.extend(value);
        self
    }

    pub(super) fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }
}

/// Decodes values. Each method returns `None` if the bytes are not such a value.
pub(super) struct JuteReader<'a>(pub(super) &'a [u8]);

impl<'a> JuteReader<'a> {
    pub(super) fn int(&mut self) -> Option<i32> {
        self.0.try_get_i32().ok()
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        self.0.try_get_i64().ok()
    }

    /// Returns no bytes for the length -1, which stands for `null`.
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        self.skip(length)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(super) fn texts(&mut self) -> Option<Vec<String>> {
        let count = self.length()?;
        // The list grows with the bytes that are there: a false count allocates nothing.
        let mut texts = Vec::new();
        for _ in 0..count {
            texts.push(self.text()?.to_owned());
        }
        Some(texts)
    }

    /// Returns the skipped bytes.
    pub(super) fn skip(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn length(&mut self) -> Option<usize> {
        match self.int()? {
            -1 => Some(0),
            length => usize::try_from(length).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_survive_a_round_trip(
            int: i32, long: i64, bytes: Vec<u8>, texts: Vec<String>
        ) {
            let mut writer = JuteWriter::default();
            writer.int(int).long(long).boolean(true).bytes(&bytes);
            writer.int(i32::try_from(texts.len()).unwrap());
            for text in &texts {
                writer.text(text);
            }
            let mut reader = JuteReader(&writer.0);
            prop_assert_eq!(reader.int(), Some(int));
            prop_assert_eq!(reader.long(), Some(long));
            prop_assert_eq!(reader.skip(1), Some(&[1_u8][..]));
            prop_assert_eq!(reader.bytes(), Some(&bytes[..]));
            prop_assert_eq!(reader.texts(), Some(texts));
            prop_assert_eq!(reader.0, b"");
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            JuteReader(&bytes).int();
            JuteReader(&bytes).long();
            JuteReader(&bytes).bytes();
            JuteReader(&bytes).text();
            JuteReader(&bytes).texts();
        }
    }

    #[test]
    fn a_false_length_is_an_error() {
        let length = |length: i32| length.to_be_bytes();
        assert_eq!(JuteReader(&length(-1)).bytes(), Some(&b""[..]));
        assert_eq!(JuteReader(&length(-2)).bytes(), None);
        assert_eq!(JuteReader(&length(1)).bytes(), None);
        assert_eq!(JuteReader(&length(i32::MAX)).texts(), None);
        assert_eq!(JuteReader(b"\0\0\0\x01\xff").text(), None);
    }
}
