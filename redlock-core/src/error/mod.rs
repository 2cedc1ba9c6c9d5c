//! The error types, one file per stage.

mod acquire;
mod config;
mod connect;
mod diagnostics;
mod hold;
mod vote;

pub use acquire::LockError;
pub use config::{ConfigError, InvalidOption};
pub use connect::ConnectError;
pub use hold::{HoldError, LostError, ReleaseError, RunError};
pub use vote::{ForeignKind, NodeError, Vote, Votes};
