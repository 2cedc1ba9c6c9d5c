//! Distributed locks on one Redis or, by Redlock, on a majority of several.

mod ballot;
mod clock;
mod error;
mod guard;
mod key;
mod lease;
mod manager;
mod node;
mod queue;
mod request;

pub use error::{
    ConnectError, ExtendError, ForeignKind, InvalidOption, LockError, NodeError, ReleaseError,
    Vote, Votes,
};
pub use guard::{Lease, LockGuard};
pub use key::{KeyError, KeyPart, KeyTemplate, LockKey, TemplateError};
pub use manager::{LockManager, LockManagerBuilder};
pub use node::memory::MemoryNode;
pub use request::LockRequest;
