//! Different values give different keys (invariant 10), proven the long way round: whatever values
//! went into a key can be read back out of it. Random pairs of values would not do: they miss the
//! collision of a naive join in millions of tries.
//!
//! For more cases than there is time for in every run: `PROPTEST_CASES=100000`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod limits;
mod model;
mod reading_back;
mod templates;

/// The fuzz target asks libFuzzer for its macro, and finds that of [`templates`].
extern crate self as libfuzzer_sys;
