//! What a client can do with a path, a query or a body: never get at the key of another resource,
//! never past a lock. And the attribute, the layer and the policies make the same key of the same
//! values.
//!
//! For more cases than there is time for in every run: `PROPTEST_CASES=100000`.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "../support/mod.rs"]
mod support;

mod asking;
mod paths;
mod same_key;
