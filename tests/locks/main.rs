//! Promises of a lock to its callers.

#![allow(clippy::unwrap_used, reason = "tests")]

mod cancellation;
mod conformance;
mod fair;
mod fencing;
mod holding;
mod keeping;
mod labels;
mod operators;
mod runtime;
mod sets_of_many_processes;
mod several_keys;
mod shared;
mod slow_release;
mod split;
mod split_cases {
    mod thorough;
}
mod starvation;
mod turns;
mod waiting;
