//! The public API as an application sees it, in another crate.

#![allow(clippy::unwrap_used, reason = "tests")]

mod auto_traits;
mod errors;
mod guards;
mod keys;
mod requests;
mod runs;
