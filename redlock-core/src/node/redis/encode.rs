//! Encodes the commands for a server.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bb8_redis::redis::Cmd;

use super::script::Script;
use crate::lock::{Mode, Token};
use crate::node::{Action, Op};

/// The command of an operation.
#[derive(Clone)]
struct EncodedCommand {
    token: Token,
    mode: Mode,
    action: Action,
    command: Cmd,
}

/// The shared commands of one thread.
struct SharedCommands {
    /// The command that was encoded last.
    last: Weak<EncodedCommand>,
    /// Commands that no server needs any more. The next commands use their memory.
    spare: Vec<Arc<EncodedCommand>>,
}

/// The highest number of spare commands of a thread.
const MAX_SPARE: usize = 64;

thread_local! {
    static SHARED: RefCell<SharedCommands> =
        const { RefCell::new(SharedCommands { last: Weak::new(), spare: Vec::new() }) };
}

impl SharedCommands {
    /// Returns the command that was encoded last if it has the token, the mode and the action of this operation. Otherwise
    /// returns the memory of a spare command, if there is one.
    fn take(&mut self, op: &Op) -> Result<Arc<EncodedCommand>, Option<Arc<EncodedCommand>>> {
        let matches = |encoded: &Arc<EncodedCommand>| {
            encoded.token == op.token
                && encoded.mode == op.spec.mode()
                && encoded.action == op.action
        };
        if let Some(encoded) = self.last.upgrade().filter(matches) {
            return Ok(encoded);
        }
        // The weak reference would keep the spare command from being changed in its place.
        self.last = Weak::new();
        Err(self.spare.pop())
    }
}

/// Returns the command of an operation, for several servers. A round sends it to one server after another on the
/// same thread, so the call for the first server encodes it for all.
pub(super) fn shared(op: &Op, encode: impl FnOnce(&mut Cmd)) -> SharedCommand {
    // A guard may be dropped while its thread ends. There are no shared commands any more then.
    let taken = SHARED.try_with(|shared| shared.borrow_mut().take(op)).unwrap_or(Err(None));
    let mut encoded = match taken {
        Ok(encoded) => return SharedCommand(encoded),
        Err(Some(spare)) => spare,
        Err(None) => {
            let command = Cmd::with_capacity(8, 256);
            Arc::new(EncodedCommand {
                token: op.token,
                mode: op.spec.mode(),
                action: op.action,
                command,
            })
        }
    };
    let changed = Arc::make_mut(&mut encoded);
    (changed.token, changed.mode, changed.action) = (op.token, op.spec.mode(), op.action);
    changed.command.clear();
    encode(&mut changed.command);
    let _ = SHARED.try_with(|shared| shared.borrow_mut().last = Arc::downgrade(&encoded));
    SharedCommand(encoded)
}

/// A command for several servers.
pub(super) struct SharedCommand(Arc<EncodedCommand>);

impl Deref for SharedCommand {
    type Target = Cmd;

    fn deref(&self) -> &Cmd {
        &self.0.command
    }
}

impl Drop for SharedCommand {
    fn drop(&mut self) {
        if Arc::strong_count(&self.0) > 1 {
            return;
        }
        // At the end of a thread there are no spare commands any more.
        let _ = SHARED.try_with(|shared| {
            let spare = &mut shared.borrow_mut().spare;
            if spare.len() < MAX_SPARE {
                spare.push(Arc::clone(&self.0));
            }
        });
    }
}

pub(super) fn load(script: Script) -> Cmd {
    let mut command = Cmd::new();
    command.arg("SCRIPT").arg("LOAD").arg(script.source());
    command
}

/// Encodes `TIME`, which returns the time on the server's wall clock.
pub(super) fn time() -> Cmd {
    let mut command = Cmd::new();
    command.arg("TIME");
    command
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

    fn encoded(op: &Op, text: &'static str) -> SharedCommand {
        shared(op, |command| {
            command.arg(text);
        })
    }

    #[test]
    fn an_operation_is_encoded_once_for_all_servers() {
        let first_op = op(1);
        let first = encoded(&first_op, "first");
        assert!(Arc::ptr_eq(&first.0, &encoded(&first_op, "again").0));
        let lease = Duration::from_secs(2);
        let others = [Op { action: Action::Extend { lease }, ..first_op.clone() }, op(1)];
        for other in others.map(|op| encoded(&op, "other")) {
            assert_eq!(other.get_packed_command(), b"*1\r\n$5\r\nother\r\n");
        }
        assert_eq!(first.get_packed_command(), b"*1\r\n$5\r\nfirst\r\n");
    }

    /// After a change of the mode, the same token and action need another script.
    #[test]
    fn a_command_is_not_used_for_the_same_operation_in_another_mode() {
        let exclusive = op(1);
        let first = encoded(&exclusive, "exclusive");
        let shared = Op { spec: exclusive.spec.with_mode(Mode::SHARED), ..exclusive.clone() };
        assert_eq!(encoded(&shared, "shared").get_packed_command(), b"*1\r\n$6\r\nshared\r\n");
        drop(first);
    }

    /// The memory of a command serves a later one only if no server needs the command any more.
    #[test]
    fn a_command_in_use_is_not_overwritten() {
        let (first, second) = (encoded(&op(1), "first"), encoded(&op(1), "second"));
        let memory = Arc::as_ptr(&first.0);
        drop(first);
        let third = encoded(&op(1), "third");
        assert_eq!(Arc::as_ptr(&third.0), memory, "the memory is not used again");
        let commands = [&second, &third].map(|command| command.get_packed_command());
        assert_eq!(
            commands,
            [b"*1\r\n$6\r\nsecond\r\n".to_vec(), b"*1\r\n$5\r\nthird\r\n".to_vec()]
        );
    }

    /// The first server of a round is done, so the command is spare. The second server then gets the same command,
    /// and sends it later than another operation is encoded.
    #[test]
    fn a_spare_command_that_is_in_use_again_is_not_overwritten() {
        let first_op = op(1);
        drop(encoded(&first_op, "first"));
        let again = encoded(&first_op, "again");
        let other = encoded(&op(1), "other");
        assert_eq!(again.get_packed_command(), b"*1\r\n$5\r\nfirst\r\n");
        assert_eq!(other.get_packed_command(), b"*1\r\n$5\r\nother\r\n");
    }

    /// A guard in a thread-local variable is dropped after the shared commands, and releases its lock.
    #[test]
    fn a_command_is_encoded_even_while_its_thread_ends() {
        struct AtExit(Op, std::sync::mpsc::Sender<Vec<u8>>);

        impl Drop for AtExit {
            fn drop(&mut self) {
                let _ = self.1.send(encoded(&self.0, "late").get_packed_command());
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
        assert_eq!(packed.recv().unwrap(), b"*1\r\n$4\r\nlate\r\n");
    }

    #[test]
    fn fractions_of_a_millisecond_are_rounded_up() {
        assert_eq!(millis(Duration::from_micros(10_001)), 11);
        assert_eq!(millis(Duration::from_millis(10)), 10);
    }
}
