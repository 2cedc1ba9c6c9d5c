//! A client controls the path, the query and the body of a request. It must neither reach the key
//! of another resource nor bypass a lock. The attribute, the layer and the policies give the same
//! values the same key.
//!
//! The values come from the seed in `tests/seeds.txt`. Fresh values: `REDLOCK_EXPLORE_SECONDS=1`. More of them:
//! `PROPTEST_CASES=100000`.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[allow(unreachable_pub, reason = "the harness exports it")]
#[path = "../../../tests/harness/seeds.rs"]
mod seeds;
#[path = "../support/mod.rs"]
mod support;

mod paths;
mod request_values;
mod requests;
mod same_key;
mod same_texts;
