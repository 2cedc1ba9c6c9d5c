//! What `#[redis_lock]` does, on locks in memory.

// Generated code gives the user no warnings.
#![deny(warnings, clippy::all, clippy::pedantic)]

mod fenced;
mod functions;
mod handlers;
mod hygiene;
mod keys;
mod options;
mod release;
#[path = "../support/renewal.rs"]
mod renewal;
mod support;
