//! The public API as an application sees it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod auto_traits;
mod fenced_lock;
mod services;
#[path = "../support/mod.rs"]
mod support;
