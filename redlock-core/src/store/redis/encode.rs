//! Encodes the commands for a server.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{Cmd, cmd};

use super::script::Script;
use crate::lock::{Mode, Token};
use crate::node::{Action, Op};

/// The command that a thread has encoded last, and the memory for the next one.
#[derive(Default)]
struct LastEncoded {
    /// The operation that the bytes encode, and its form.
    of: Option<(Token, Mode, Action, CommandForm)>,
    bytes: Arc<[u8]>,
    writer: Writer,
}

/// A command that replaces a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NativeCommand {
    DelIfEq,
    DelEx,
    MSetEx,
}

/// The form of the command of an operation. It depends on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandForm {
    /// The command that every server has.
    Usual,
    /// The script of an extension also reads the keys, which the server tracks.
    Tracked,
    /// The command that a newer server has in place of the script.
    Native(NativeCommand),
}

/// Writes the commands of the operations. The redis crate first collects the arguments: a pair of an acquisition and a release
/// would then cost about 1,000 of 30,000 instructions more.
#[derive(Default)]
pub(super) struct Writer {
    /// The arguments in the form of the protocol, behind a place for their number.
    bytes: Vec<u8>,
    arguments: u64,
    /// The number of arguments of the command before this one.
    before: Option<u64>,
}

/// The greatest length of the number of arguments, with its sign and its line end.
const HEAD: usize = MAX_DIGITS + 3;

/// The digits of the greatest `u64`.
const MAX_DIGITS: usize = 20;

impl Writer {
    /// Begins a command, and forgets the former one.
    fn begin(&mut self) -> &mut Self {
        self.bytes.clear();
        self.bytes.resize(HEAD, 0);
        (self.arguments, self.before) = (0, None);
        self
    }

    /// Adds an argument.
    pub(super) fn arg(&mut self, argument: impl AsRef<[u8]>) -> &mut Self {
        let argument = argument.as_ref();
        let len = argument.len();
        self.bytes.reserve(HEAD + len + 2);
        // Nearly all arguments are short. The general form would cost a pair about 400 of 30,000 instructions more.
        match u8::try_from(len) {
            Ok(len @ ..10) => self.bytes.extend_from_slice(&[b'$', b'0' + len, b'\r', b'\n']),
            Ok(len @ 10..100) => {
                let (tens, ones) = (b'0' + len / 10, b'0' + len % 10);
                self.bytes.extend_from_slice(&[b'$', tens, ones, b'\r', b'\n']);
            }
            _ => {
                let (head, start) = head(b'$', len as u64);
                self.bytes.extend_from_slice(&head[start..]);
            }
        }
        self.bytes.extend_from_slice(argument);
        self.bytes.extend_from_slice(b"\r\n");
        self.arguments += 1;
        self
    }

    /// Adds a number as an argument.
    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        let mut text = [0; MAX_DIGITS];
        let start = write_digits(number, &mut text);
        self.arg(&text[start..])
    }

    /// Begins a second command behind the first one. It has this number of arguments.
    pub(super) fn second(&mut self, arguments: u8) -> &mut Self {
        self.before = Some(self.arguments);
        let (head, start) = head(b'*', arguments.into());
        self.bytes.extend_from_slice(&head[start..]);
        self
    }

    /// Returns the command: the number of its arguments, and the arguments. A second command follows.
    fn command(&mut self) -> Arc<[u8]> {
        let (head, start) = head(b'*', self.before.unwrap_or(self.arguments));
        self.bytes[start..HEAD].copy_from_slice(&head[start..]);
        self.bytes[start..].into()
    }
}

/// Writes a sign, a number and a line end at the end of an array. Returns the array, and the place of the sign.
#[inline]
fn head(sign: u8, number: u64) -> ([u8; HEAD], usize) {
    let mut text = [b'\n'; HEAD];
    text[HEAD - 2] = b'\r';
    let start = write_digits(number, &mut text[..HEAD - 2]) - 1;
    text[start] = sign;
    (text, start)
}

/// Writes a number at the end of `text`, which has at least [`MAX_DIGITS`] bytes. Returns the place of its first digit.
#[inline]
fn write_digits(mut number: u64, text: &mut [u8]) -> usize {
    let mut start = text.len();
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        start -= 1;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    start
}

thread_local! {
    static LAST: RefCell<LastEncoded> = RefCell::default();
}

/// Returns the command of an operation. A round sends it to one server after another on the same thread, so the call for
/// the first server encodes it for all. A pair of an acquisition and a release on five servers would otherwise cost a sixth
/// more instructions. `form` is a part of what is encoded.
pub(super) fn last_or_new(op: &Op, form: CommandForm, encode: impl Fn(&mut Writer)) -> Arc<[u8]> {
    let known = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        let of = Some((op.token, op.spec.mode(), op.action, form));
        if last.of != of {
            encode(last.writer.begin());
            last.bytes = last.writer.command();
            last.of = of;
        }
        Arc::clone(&last.bytes)
    });
    known.unwrap_or_else(|_| {
        // A guard may be dropped while its thread ends. Its memory is gone then.
        let mut writer = Writer::default();
        encode(writer.begin());
        writer.command()
    })
}

pub(super) fn packed(command: &Cmd) -> Arc<[u8]> {
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
    use crate::key::LockKey;
    use crate::lock::{Dialect, LockSpec, Mode};

    fn op(lease_secs: u64) -> Op {
        let key = LockKey::new("order:42").unwrap();
        let spec = LockSpec::new(key, Mode::Exclusive, Dialect::Plain);
        let lease = Duration::from_secs(lease_secs);
        Op::new(&spec, Token::random(Dialect::Plain), Action::Extend { lease })
    }

    fn encoded(op: &Op, text: &'static str) -> Arc<[u8]> {
        last_or_new(op, CommandForm::Usual, |command| {
            command.arg(text);
        })
    }

    #[test]
    fn an_operation_is_encoded_once_for_all_servers() {
        let first_op = op(1);
        let first = encoded(&first_op, "first");
        assert!(Arc::ptr_eq(&first, &encoded(&first_op, "again")));
        let lease = Duration::from_secs(2);
        let others = [Op { action: Action::Extend { lease }, ..first_op.clone() }, op(1)];
        for other in others.map(|op| encoded(&op, "other")) {
            assert_eq!(*other, *b"*1\r\n$5\r\nother\r\n");
        }
        assert_eq!(*first, *b"*1\r\n$5\r\nfirst\r\n");
    }

    /// Not every server tracks the keys of a lock for the same holder.
    #[test]
    fn a_command_is_not_used_for_a_server_that_tracks_the_keys() {
        let op = op(1);
        encoded(&op, "untracked");
        let tracked = last_or_new(&op, CommandForm::Tracked, |command| _ = command.arg("tracked"));
        assert_eq!(*tracked, *b"*1\r\n$7\r\ntracked\r\n");
    }

    /// After a change of the mode, the same token and action need another script.
    #[test]
    fn a_command_is_not_used_for_the_same_operation_in_another_mode() {
        let exclusive = op(1);
        encoded(&exclusive, "exclusive");
        let reader = Op { spec: exclusive.spec.with_mode(Mode::SHARED), ..exclusive.clone() };
        assert_eq!(*encoded(&reader, "shared"), *b"*1\r\n$6\r\nshared\r\n");
    }

    /// A guard in a thread-local variable is dropped after the thread's commands, and releases its lock.
    #[test]
    fn a_command_is_encoded_even_while_its_thread_ends() {
        struct AtExit(Op, std::sync::mpsc::Sender<Arc<[u8]>>);

        impl Drop for AtExit {
            fn drop(&mut self) {
                let _ = self.1.send(encoded(&self.0, "late"));
            }
        }

        thread_local! {
            static AT_EXIT: RefCell<Option<AtExit>> = const { RefCell::new(None) };
        }

        let (sender, packed) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            AT_EXIT.set(Some(AtExit(op(1), sender)));
            drop(encoded(&op(1), "early"));
        });
        thread.join().unwrap();
        assert_eq!(*packed.recv().unwrap(), *b"*1\r\n$4\r\nlate\r\n");
    }

    #[test]
    fn a_command_has_the_form_of_the_redis_crate() {
        let (long, mut writer) = ("a".repeat(300), Writer::default());
        for arguments in [&["PING"][..], &["SET", "", &long], &["1"; 128]] {
            let numbers = [0, 9, 10, 30_000, u64::MAX];
            writer.begin();
            for argument in arguments {
                writer.arg(argument);
            }
            for number in numbers {
                writer.number(number);
            }
            let ours = writer.command();
            let mut theirs = Cmd::new();
            theirs.arg(arguments).arg(&numbers);
            assert_eq!(*ours, *theirs.get_packed_command());
        }
        assert_eq!(*writer.begin().command(), *b"*0\r\n");
    }

    #[test]
    fn fractions_of_a_millisecond_are_rounded_up() {
        assert_eq!(millis(Duration::from_micros(10_001)), 11);
        assert_eq!(millis(Duration::from_millis(10)), 10);
    }
}
