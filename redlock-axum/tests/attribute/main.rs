//! What `#[redis_lock]` does, on locks in memory.

// Generated code gives the user no warnings.
#![deny(warnings, clippy::all, clippy::pedantic)]

mod fenced;
mod function_locks;
mod functions;
mod handlers;
mod hygiene;
mod keys;
#[path = "../support/mod.rs"]
mod support;
