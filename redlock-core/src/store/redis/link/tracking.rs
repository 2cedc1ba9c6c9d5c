//! The keys that a server tracks for a link: it says once when one of them has changed.
//!
//! Measured with Redis 6.2.14, 7.0.15 and 8.2.3, and Valkey 9.1.2, all alike:
//!
//! * With `OPTIN`, a server tracks the keys that the one command behind `CLIENT CACHING YES` reads: by `GET`, `TYPE`, `EXISTS`
//!   or `PTTL`, also by reads inside of a script. A key that does not exist is tracked, too.
//! * A change by another client, an eviction and the end of the time to live send one message, `FLUSHALL` one without a
//!   key. A vain `SET NX` and a refused `PEXPIRE .. GT` send none. The database does not matter: a change of a key with the
//!   same name in another database sends a message.
//! * Each change ends the tracking of the key, an own one included, and `NOLOOP` hides just that: after an own `PEXPIRE`, also
//!   inside of a script, a later `DEL` by another client sends nothing. So the link reads the key again behind each own change.
//! * A server whose table of tracked keys is full (`tracking-table-max-keys`) ends the tracking of any key, with a message.
//! * Without `+client|tracking` and `+client|caching`, each of the two commands is refused with `NOPERM`. Without the
//!   first, the second is an error.

use std::sync::Arc;

use parking_lot::Mutex;

/// The command that switches tracking on.
pub(super) const ON: &[u8] =
    b"*5\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$2\r\nON\r\n$5\r\nOPTIN\r\n$6\r\nNOLOOP\r\n";
/// The command in front of a read whose keys the server tracks.
pub(super) const CACHING: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$7\r\nCACHING\r\n$3\r\nYES\r\n";

/// The purpose of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadId {
    /// Compares a key of a lock with the token of a holder.
    Holder {
        /// The watch of the lock.
        watch: u64,
        /// The index of the key.
        key: usize,
    },
    /// Finds out whether the lock with this channel is free.
    Waiter(Arc<str>),
}

/// Whether the server tracks keys for a link.
#[derive(Debug, Default)]
pub(super) struct LinkTracking(Mutex<TrackingState>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum TrackingState {
    /// The server was not asked. A process that needs no hints sends no other commands than without tracking.
    #[default]
    Off,
    On,
    Refused,
}

impl LinkTracking {
    /// Calls `send` with the present state, and switches tracking on if it is off. Meanwhile, no other read is sent.
    pub(super) fn begin(&self, send: impl FnOnce(TrackingState)) {
        let mut state = self.0.lock();
        send(*state);
        if *state == TrackingState::Off {
            *state = TrackingState::On;
        }
    }

    /// Records that the server has refused to track keys. Returns whether this is news.
    pub(super) fn refuse(&self) -> bool {
        std::mem::replace(&mut *self.0.lock(), TrackingState::Refused) != TrackingState::Refused
    }

    /// Returns whether the server has refused to track keys.
    pub(super) fn is_refused(&self) -> bool {
        *self.0.lock() == TrackingState::Refused
    }
}
