//! A client controls the path, the query and the body of a request. It must neither reach the key
//! of another resource nor bypass a lock. The attribute, the layer and the policies give the same
//! values the same key.
//!
//! To run more cases: `PROPTEST_CASES=100000`.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "../support/mod.rs"]
mod support;

mod paths;
mod request_values;
mod requests;
mod same_key;
