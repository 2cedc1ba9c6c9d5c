//! Hints that a held lock is gone from a store.

use super::{Notify, Subscription};
use crate::lock::{HolderId, LockSpec, Token};

/// Hints of a store that a held lock may be gone. A node offers them by [`Node::loss_hints`](super::Node::loss_hints).
///
/// A hint decides nothing. The manager then asks all nodes to extend the lock, and their votes decide whether it is lost.
/// Without hints, the holder learns of a loss at its next renewal.
pub trait LossHints: Send + Sync {
    /// Calls `notify` when the store does not have the lock of this token any more, although it had it before, until the
    /// subscription is dropped. The lock is exclusive, and may have several keys.
    ///
    /// A node that learns only that a key has changed compares it with the token by a read of its own, and calls `notify`
    /// only if the key is gone or has another value. It limits these reads, because a store may send changes without end.
    ///
    /// A change by an operation of this process needs no hint. After each [extension](super::Action::Extend), and each
    /// [acquisition](super::Action::Acquire) that sets the lock again, the hints go on. Hints may get lost, for instance
    /// while the store is not connected.
    fn watch(&self, spec: &LockSpec, token: Token, notify: Notify) -> Subscription;

    /// Tells the process of a holder that an operator has [removed](super::Inspection::remove) it, where the store does not
    /// notify the [watching](Self::watch) processes of the removal itself.
    ///
    /// The provided method does nothing.
    fn announce_removal(&self, spec: &LockSpec, holder: HolderId) {
        let _ = (spec, holder);
    }
}
