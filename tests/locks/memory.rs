//! What locks allocate. A binary of its own, because it replaces the allocator by one that counts.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../http/allocations.rs"]
mod allocations;
mod floods;
