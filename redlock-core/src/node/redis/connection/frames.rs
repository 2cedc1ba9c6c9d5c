//! Finds the boundaries of replies and messages in the bytes of a server.

/// The line end of every header, and of every bulk string.
const LINE_END: u64 = 2;

/// The replies and messages in the bytes of a connection, which are read in parts of any length.
///
/// Follows only the boundaries of the frames, see the [specification of RESP3]. The redis crate refuses bytes that
/// are no RESP, and ends the connection.
///
/// [specification of RESP3]: https://github.com/redis/redis-specifications/blob/master/protocol/RESP3.md
#[derive(Debug, Default)]
pub(super) struct Frames {
    kind: FrameKind,
    /// The number of elements that the present frame still has.
    elements: u64,
    part: Part,
}

/// The kind of the present frame.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FrameKind {
    /// No frame has begun.
    #[default]
    None,
    /// A push. Its first element is its kind, which was not read yet.
    Push,
    /// A message of a channel: a push of the kind `message`.
    Message,
    /// A reply, or the confirmation of a subscription.
    Reply,
}

/// The part of an element in which the next byte lies.
#[derive(Debug, Default, Clone, Copy)]
enum Part {
    /// The type of an element.
    #[default]
    Type,
    /// The line after the type, which has this number so far.
    Line(u8, u64),
    /// The rest of a bulk string.
    Text(u64),
}

/// The frames in the bytes of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// The number of frames that ended.
    pub(super) ended: usize,
    /// Whether all bytes belong to messages of channels.
    pub(super) only_messages: bool,
}

impl Frames {
    /// Reads the next bytes of the connection.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Found {
        let mut found = Found { ended: 0, only_messages: true };
        while let [first, rest @ ..] = bytes {
            // Most replies are one line, such as `+OK`.
            if self.kind == FrameKind::None
                && !has_number(*first)
                && let Some(line_end) = rest.iter().position(|byte| *byte == b'\n')
            {
                found = Found { ended: found.ended + 1, only_messages: false };
                bytes = &rest[line_end + 1..];
                continue;
            }
            match self.part {
                Part::Type => {
                    if self.kind == FrameKind::None {
                        self.kind = if *first == b'>' { FrameKind::Push } else { FrameKind::Reply };
                        self.elements = 1;
                    }
                    self.part = Part::Line(*first, 0);
                    bytes = rest;
                }
                Part::Line(element, number) => {
                    let line_end = bytes.iter().position(|byte| *byte == b'\n');
                    let (line, rest) = bytes.split_at(line_end.unwrap_or(bytes.len()));
                    let number = if has_number(element) { read_number(number, line) } else { 0 };
                    self.part = Part::Line(element, number);
                    bytes = rest;
                    if line_end.is_some() {
                        self.end_line(element, number);
                        bytes = &rest[1..];
                    }
                }
                Part::Text(left) => {
                    let read = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[read..];
                    let left = left - read as u64;
                    self.part = Part::Text(left);
                    if left == 0 {
                        self.end_element();
                    }
                }
            }
            found.only_messages &= self.kind != FrameKind::Reply;
            if self.elements == 0 {
                self.kind = FrameKind::None;
                found.ended += 1;
            }
        }
        found
    }

    fn end_line(&mut self, element: u8, number: u64) {
        if self.kind == FrameKind::Push && element != b'>' {
            // No other kind of push has seven letters.
            let is_message = element == b'$' && number == "message".len() as u64;
            self.kind = if is_message { FrameKind::Message } else { FrameKind::Reply };
        }
        self.part = Part::Type;
        match element {
            b'$' | b'=' | b'!' if number != NULL => {
                self.part = Part::Text(number.saturating_add(LINE_END));
            }
            b'*' | b'~' | b'>' if number != NULL => {
                self.elements = (self.elements - 1).saturating_add(number);
            }
            b'%' => self.elements = (self.elements - 1).saturating_add(number.saturating_mul(2)),
            // An attribute precedes the element that it describes.
            b'|' => self.elements = self.elements.saturating_add(number.saturating_mul(2)),
            _ => self.end_element(),
        }
    }

    fn end_element(&mut self) {
        self.part = Part::Type;
        self.elements -= 1;
    }
}

/// The length `-1` of an element without a value.
const NULL: u64 = u64::MAX;

fn has_number(element: u8) -> bool {
    matches!(element, b'$' | b'=' | b'!' | b'*' | b'~' | b'>' | b'%' | b'|')
}

/// Returns the number after further digits.
fn read_number(number: u64, digits: &[u8]) -> u64 {
    digits.iter().fold(number, |number, byte| match byte {
        b'0'..=b'9' => number.saturating_mul(10).saturating_add(u64::from(byte - b'0')),
        b'-' => NULL,
        _ => number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = ">3\r\n$7\r\nmessage\r\n$6\r\nl:{42}\r\n$1\r\n0\r\n";

    /// A channel and a payload that look like the beginning of a message and like replies.
    const HOSTILE: &str = ">3\r\n$7\r\nmessage\r\n$3\r\na>b\r\n$38\r\n+OK\r\n>3\r\n$7\r\nmessage\r\n$1\r\na\r\n$999999\r\n\r\n";

    const OTHERS: [&str; 12] = [
        "+OK\r\n",
        ":1\r\n",
        "-ERR >3\r\n",
        "_\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "$5\r\n>\r\n>3\r\n",
        ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n",
        "*3\r\n:1\r\n*2\r\n$0\r\n\r\n*0\r\n+a\r\n",
        "%2\r\n+a\r\n:1\r\n+b\r\n~2\r\n#t\r\n,1.5\r\n",
        "|1\r\n+ttl\r\n:1\r\n*1\r\n(12345678901234567890\r\n",
        "=7\r\ntxt:a\r\n\r\n",
    ];

    /// Reads the text in parts of this length. Returns the number of frames, and whether each part has only messages.
    fn read(text: &str, length: usize) -> (usize, Vec<bool>) {
        let mut frames = Frames::default();
        let found: Vec<_> = text.as_bytes().chunks(length).map(|part| frames.read(part)).collect();
        assert_eq!(
            (frames.kind, frames.elements),
            (FrameKind::None, 0),
            "{text:?} is not at its end"
        );
        let ended = found.iter().map(|found| found.ended).sum();
        (ended, found.iter().map(|found| found.only_messages).collect())
    }

    #[test]
    fn messages_are_recognized_in_parts_of_any_length() {
        for message in [MESSAGE, HOSTILE] {
            let text = message.repeat(3);
            for length in 1..=text.len() {
                let (ended, only_messages) = read(&text, length);
                assert!(ended == 3 && only_messages.iter().all(|only| *only), "parts of {length}");
            }
        }
    }

    #[test]
    fn a_part_with_a_byte_of_a_reply_has_not_only_messages() {
        for other in OTHERS {
            for message in [MESSAGE, HOSTILE] {
                let text = [message, other, message, other].concat();
                let end = message.len() + other.len();
                for length in 1..=text.len() {
                    let (ended, only_messages) = read(&text, length);
                    assert_eq!(ended, 4, "{text:?} in parts of {length}");
                    let first_end = (message.len() / length).min(only_messages.len());
                    assert!(
                        only_messages[..first_end].iter().all(|only| *only),
                        "{other:?} {length}"
                    );
                    // The part in which the reply ends.
                    assert!(!only_messages[(end - 1) / length], "{other:?} in parts of {length}");
                    assert!(!only_messages.last().unwrap(), "{other:?} in parts of {length}");
                }
            }
        }
    }

    #[test]
    fn every_frame_is_counted_once() {
        let text = OTHERS.concat();
        for length in 1..=text.len() {
            assert_eq!(read(&text, length).0, OTHERS.len(), "parts of {length}");
        }
    }

    #[test]
    fn absurd_numbers_do_no_harm() {
        for text in [
            "*99999999999999999999\r\n+a\r\n",
            "$99999999999999999999\r\na",
            "%18446744073709551615\r\n",
            ">0\r\n",
        ] {
            Frames::default().read(text.as_bytes());
        }
    }
}
