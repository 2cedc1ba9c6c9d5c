//! The text of an error for the operator, with the key and the votes.

use std::fmt;

use super::{HoldError, LockError, LostError, ReleaseError, RunError, Votes};
use crate::key::LockKey;

/// An error, followed by the key of the lock and the votes of the nodes, where the error has them.
struct WithKeyAndVotes<'a> {
    error: &'a dyn fmt::Display,
    key: Option<&'a LockKey>,
    votes: Option<&'a Votes>,
}

impl fmt::Display for WithKeyAndVotes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        if let Some(key) = self.key {
            write!(f, "; lock {key}")?;
        }
        if let Some(votes) = self.votes {
            write!(f, "; {votes}")?;
        }
        Ok(())
    }
}

/// Writes the method `diagnostics` of an error that has a method `key` and a method `votes`.
macro_rules! diagnostics {
    ($($error:ident: $key:expr, $votes:expr;)+) => {$(
        impl $error {
            /// Returns the error for logs and operators: the message, followed by the key of the lock and the
            /// vote of each node.
            ///
            /// `Display` and [`source`](std::error::Error::source) contain neither the key nor a node, so that
            /// an application may send them to its clients. The diagnostics are not for clients.
            pub fn diagnostics(&self) -> impl fmt::Display {
                let key: fn(&Self) -> Option<&LockKey> = $key;
                let votes: fn(&Self) -> Option<&Votes> = $votes;
                WithKeyAndVotes { error: self, key: key(self), votes: votes(self) }
            }
        }
    )+};
}

diagnostics! {
    LockError: Self::key, Self::votes;
    HoldError: Self::key, Self::votes;
    ReleaseError: |error| Some(error.key()), |error| Some(error.votes());
    LostError: |error| Some(error.key()), |_| None;
    RunError: Self::key, Self::votes;
}
