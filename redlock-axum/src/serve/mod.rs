//! Runs a handler under its lock, and holds the lock until the end of the response.

pub(crate) mod body;
pub(crate) mod extraction;
mod future;
pub(crate) mod locked;

pub use future::ResponseFuture;
