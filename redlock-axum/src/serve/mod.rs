//! Runs a handler under its lock, from the request's body to the end of the response.

pub(crate) mod body;
pub(crate) mod buffered;
pub(crate) mod extraction;
mod future;
pub(crate) mod locked;
pub(crate) mod streamed;
pub(crate) mod unread;
mod wrap;

pub(crate) use future::BoxedResponse;
pub use future::ResponseFuture;
