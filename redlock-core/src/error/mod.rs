//! The error types, one file per stage.

mod acquire;
mod config;
mod connect;
mod diagnostics;
mod hold;
mod invalid_option;
mod vote;

pub use acquire::LockError;
pub use config::ConfigError;
pub use connect::ConnectError;
pub(crate) use diagnostics::with_key_and_votes;
pub use hold::{ExtendError, LostError, ReleaseError, RunError};
pub use invalid_option::InvalidOption;
pub use vote::{ForeignKind, NodeError, Vote, Votes};
