//! Distributed locks on one Redis or, by Redlock, on a majority of several.

mod error;
mod key;

pub use error::{
    ConnectError, ExtendError, ForeignKind, InvalidOption, LockError, NodeError, ReleaseError, Vote,
    Votes,
};
pub use key::{KeyError, KeyPart, KeyTemplate, LockKey, TemplateError};
