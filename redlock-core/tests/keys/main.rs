//! The invariant "different values, different keys". The proof: the values can be read back out of
//! every key. It would not do to compare the keys of random pairs of values: millions of pairs miss
//! the collision of a naive join.
//!
//! To run more cases: `PROPTEST_CASES=100000`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod limits;
mod model;
mod reading_back;
mod templates;

/// The fuzz target imports its macro from `libfuzzer_sys`. This alias gives it the macro of
/// [`templates`].
extern crate self as libfuzzer_sys;
