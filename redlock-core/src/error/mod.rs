//! The error types, one file per stage, and their text for the operator.
//!
//! # Invariants
//!
//! **Contended, unavailable, misconfigured, invalid are four different errors.** Each error of a ballot has the vote of
//! each node. Split votes are a fifth one: nobody has the lock.
//!
//! Tests that fail without it, among others: `held_and_unavailable_are_distinguished`,
//! `silent_nodes_cost_the_timeout_and_no_more`, `a_refusal_reports_the_remaining_lease_and_each_vote`,
//! `without_a_quorum_the_error_has_the_reason_of_each_node`, `redlock-axum/tests/rejection.rs`.

mod acquire;
mod config;
mod hold;
mod legible;
mod lost;
mod vote;

use std::fmt;

use crate::key::LockKey;
use crate::lock::OwnerLabel;

pub use acquire::LockError;
pub use config::{ConfigError, ConnectError, InvalidOption};
pub use hold::{HoldError, ReleaseError, RunError};
pub(crate) use legible::legible;
pub use lost::{LossCause, LostError};
pub use vote::{ForeignKind, NodeError, Vote, Votes};

/// An error, followed by the key of the lock, its holder and the votes of the nodes, where the error has them.
struct WithKeyAndVotes<'a> {
    error: &'a dyn fmt::Display,
    key: Option<&'a LockKey>,
    /// The holder of a lock for which no node was asked. The votes name it otherwise.
    holder: Option<&'a OwnerLabel>,
    votes: Option<&'a Votes>,
}

impl fmt::Display for WithKeyAndVotes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        if let Some(key) = self.key {
            write!(f, "; lock {key}")?;
        }
        if let Some(holder) = self.holder {
            write!(f, "; held by {holder}")?;
        }
        if let Some(votes) = self.votes {
            write!(f, "; {votes}")?;
        }
        Ok(())
    }
}

/// Returns an error with the key of the lock and the votes of the nodes, for logs.
pub(crate) fn with_key_and_votes<'a>(
    error: &'a dyn fmt::Display,
    key: Option<&'a LockKey>,
    votes: Option<&'a Votes>,
) -> impl fmt::Display + 'a {
    WithKeyAndVotes { error, key, holder: None, votes }
}

/// Writes the method `diagnostics` of an error that has a method `key` and a method `votes`.
macro_rules! diagnostics {
    ($($error:ident: |$this:ident| $key:expr, $holder:expr, $votes:expr;)+) => {$(
        impl $error {
            /// Returns the error for logs and operators: the message, followed by the key of the lock and the
            /// vote of each node. A vote names the [owner](crate::OwnerLabel) that holds the lock.
            ///
            /// `Display` and [`source`](std::error::Error::source) contain neither the key nor a node nor an owner, so that
            /// an application may send them to its clients. The diagnostics are not for clients.
            pub fn diagnostics(&self) -> impl fmt::Display {
                let $this = self;
                WithKeyAndVotes { error: $this, key: $key, holder: $holder, votes: $votes }
            }
        }
    )+};
}

diagnostics! {
    LockError: |error| error.key(), error.unasked_holder(), error.votes();
    HoldError: |error| error.key(), None, error.votes();
    ReleaseError: |error| Some(error.key()), None, error.votes();
    LostError: |error| Some(error.key()), None, error.votes();
    RunError: |error| error.key(), error.unasked_holder(), error.votes();
}
