//! The attribute `#[redis_lock]`, on in-memory nodes.

// Generated code must not cause warnings in the code of the user.
#![deny(warnings, clippy::all, clippy::pedantic)]

mod blanket_errors;
mod constants;
mod direct_calls;
mod end_of_body;
mod fenced;
mod function_locks;
mod functions;
mod future_sizes;
mod handlers;
mod hygiene;
mod keys;
mod methods;
mod one_holder;
mod outputs;
mod parameters;
mod refusals;
mod returned_futures;
mod several_keys;
mod skip;
#[cfg(feature = "test-util")]
mod under_lock;
