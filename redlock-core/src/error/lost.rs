//! The loss of a lock.

use std::fmt;

use super::Votes;
use crate::key::LockKey;

/// The loss of a lock: its holder may no longer rely on it, and another caller may hold it. The guarded work must stop.
///
/// Every error that can report a loss contains it, as the variant `Lost`:
///
/// | error | the loss was found |
/// |---|---|
/// | [`LockError::Lost`](crate::LockError::Lost) | before the work under the lock began |
/// | [`RunError::Lost`](crate::RunError::Lost) | while the work was running, and the work was stopped |
/// | [`HoldError::Lost`](crate::HoldError::Lost) | by an extension or a downgrade |
/// | [`ReleaseError::Lost`](crate::ReleaseError::Lost) | by the release |
///
/// A holder that asks for no change learns of the loss by [`LockHandle::lost`](crate::LockHandle::lost), and by
/// [`LockState::Lost`](crate::LockState::Lost).
///
/// # Examples
///
/// ```
/// use redlock_core::{HoldError, LockKey, LossCause, LostError, Votes};
///
/// /// Returns the text for the log of an import that could not extend its lock.
/// fn report(error: &HoldError) -> String {
///     match error {
///         HoldError::Lost(lost) if lost.cause() == LossCause::LeaseEnded => {
///             format!("the import was too slow: {}", lost.diagnostics())
///         }
///         error => error.diagnostics().to_string(),
///     }
/// }
///
/// let lost = LostError::new(LockKey::new("import")?, LossCause::LeaseEnded, Votes::default());
/// let text = report(&lost.into());
/// assert_eq!(text, "the import was too slow: the lock was lost: its lease ended; lock import");
/// # Ok::<(), redlock_core::KeyError>(())
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[error("the lock was lost: {cause}")]
pub struct LostError {
    key: LockKey,
    cause: LossCause,
    pub(crate) votes: Votes,
}

/// The cause of a [loss](LostError).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// The lease ended before it was extended: the work was too slow, or too few nodes confirmed the renewals.
    LeaseEnded,
    /// A quorum of nodes reports that another holder has the lock, or that it is free: the nodes have forgotten it, its
    /// lease has run out on them, or an operator has deleted it.
    NotOnNodes,
    /// The manager was shut down, or its Tokio runtime has ended.
    ManagerEnded,
    /// The holder itself has released the lock, and has used it afterwards.
    Released,
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeaseEnded => "its lease ended",
            Self::NotOnNodes => "a quorum of nodes no longer holds it",
            Self::ManagerEnded => "its manager has ended",
            Self::Released => "it was released before",
        })
    }
}

impl LostError {
    /// Creates the loss of the lock of this key, for tests of code that handles it. `votes` have denied the lock, or are the
    /// votes on the last extension that has failed; `Votes::default()` if no extension has failed.
    pub fn new(key: LockKey, cause: LossCause, votes: Votes) -> Self {
        Self { key, cause, votes }
    }

    /// Returns the key of the lock.
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// Returns the cause of the loss.
    pub fn cause(&self) -> LossCause {
        self.cause
    }

    /// Returns the vote of each node: by which the nodes have denied the lock, or on the last extension that has failed.
    /// `None` if no extension has failed: the lease ran out, or the manager was shut down.
    pub fn votes(&self) -> Option<&Votes> {
        (!self.votes.is_empty()).then_some(&self.votes)
    }

    /// Returns the same loss with the cause that this process knows.
    pub(crate) fn with_cause(self, cause: LossCause) -> Self {
        Self { cause, ..self }
    }
}
