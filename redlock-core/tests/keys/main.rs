//! The invariant "different values, different keys". The proof: the values can be read back out of
//! every key. It would not do to compare the keys of random pairs of values: millions of pairs miss
//! the collision of a naive join.
//!
//! The values come from the seed in `tests/seeds.txt`. Fresh values: `REDLOCK_EXPLORE_SECONDS=1`. More of them:
//! `PROPTEST_CASES=100000`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod limits;
mod measured;
mod model;
mod reading_back;
#[allow(unreachable_pub, reason = "the harness exports it")]
#[path = "../../../tests/harness/seeds.rs"]
mod seeds;
mod templates;

/// The fuzz target imports its macro from `libfuzzer_sys`. This alias gives it the macro of
/// [`templates`].
extern crate self as libfuzzer_sys;
