//! Metrics and spans that concern the whole process, such as the limit of names. Each test has a part of the process for
//! itself: one the names, the other the subscriber.
#![cfg(feature = "metrics")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod names;
mod spans;
