//! Encodes the commands for a server.

use std::time::Duration;

use bb8_redis::redis::{Cmd, cmd};
use smallvec::SmallVec;

use super::script::Script;

/// A command in the protocol of Redis. The commands of most locks need no memory beside this value.
pub(super) type Packed = SmallVec<[u8; 192]>;

/// Encodes a command. Nothing remains of it, because the command has the token.
#[derive(Default)]
pub(super) struct Writer {
    arguments: usize,
    bytes: Packed,
}

impl Writer {
    /// Appends an argument.
    pub(super) fn arg(&mut self, argument: impl AsRef<[u8]>) -> &mut Self {
        let argument = argument.as_ref();
        self.arguments += 1;
        self.bytes.push(b'$');
        self.bytes.extend_from_slice(digits(argument.len() as u64, &mut [0; 20]));
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes.extend_from_slice(argument);
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    /// Appends a number.
    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.arg(digits(number, &mut [0; 20]))
    }

    /// Returns the command.
    pub(super) fn packed(mut self) -> Packed {
        let mut head = SmallVec::<[u8; 24]>::new();
        head.push(b'*');
        head.extend_from_slice(digits(self.arguments as u64, &mut [0; 20]));
        head.extend_from_slice(b"\r\n");
        self.bytes.insert_from_slice(0, &head);
        self.bytes
    }
}

/// Writes the digits of a number at the end of `text`, and returns them.
fn digits(number: u64, text: &mut [u8; 20]) -> &[u8] {
    let (mut rest, mut start) = (number, text.len());
    for digit in text.iter_mut().rev() {
        *digit = b"0123456789"[(rest % 10) as usize]; // a remainder below 10
        (rest, start) = (rest / 10, start - 1);
        if rest == 0 {
            break;
        }
    }
    &text[start..]
}

pub(super) fn packed(command: &Cmd) -> Packed {
    command.get_packed_command().into()
}

pub(super) fn load(script: Script) -> Cmd {
    cmd("SCRIPT").arg("LOAD").arg(script.source()).take()
}

/// Formats a duration in whole milliseconds, rounded up: a server must not forget a lock before its holder
/// does.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The redis crate writes the same bytes.
    #[test]
    fn a_command_has_the_form_of_the_protocol() {
        let long = "a".repeat(300);
        for arguments in [&["PING"][..], &["SET", "", &long], &["1"; 128]] {
            let (mut writer, mut expected) = (Writer::default(), Cmd::new());
            for argument in arguments {
                writer.arg(argument);
                expected.arg(*argument);
            }
            for number in [0, 9, 10, 30_000, u64::MAX] {
                writer.number(number);
                expected.arg(number);
            }
            assert_eq!(*writer.packed(), *expected.get_packed_command());
        }
    }

    #[test]
    fn fractions_of_a_millisecond_are_rounded_up() {
        assert_eq!(millis(Duration::from_micros(10_001)), 11);
        assert_eq!(millis(Duration::from_millis(10)), 10);
    }
}
