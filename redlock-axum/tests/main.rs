//! The tests of the front ends in one program: each program takes seconds to link.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may")]

mod api;
mod attribute;
mod bodies;
mod commit_under_lock;
mod front_ends;
mod hold_until;
mod layer;
mod lock_order;
mod names;
#[cfg(any(feature = "aide", feature = "utoipa"))]
mod openapi;
mod policies;
#[cfg(feature = "test-util")]
mod recipes;
mod rejection;
mod scope_layer;
mod support;
#[cfg(feature = "test-util")]
mod test_util;
