//! Load on locked services: bursts of requests, and long runs whose Redis servers are killed.
//!
//! * The program `burst` sends many requests at once to a service that runs already, and counts the
//!   answers. [`Burst`] is the same for tests.
//! * The program `soak` runs two copies of the program `load-service` on five Redis servers, kills the
//!   servers one after another, and watches from outside that no two handlers work on one key at
//!   once. [`Soak`] is the same for tests.
//! * [`Throttle`] leaves a running process a fifth of a core.
//! * [`Markers`] finds two handlers that work on one key at once. It uses files and not the library.
//!
//! The HTTP client is a small one of this package, so that it costs little next to the service that
//! is measured on the same machine.

#![allow(clippy::expect_used, reason = "a failure of the harness fails the test")]

mod answers;
mod arguments;
mod burst;
mod client;
mod descriptors;
mod markers;
mod memory;
mod soak;
mod throttle;

pub use answers::{Answer, Answers};
pub use arguments::Arguments;
pub use burst::{Burst, Keys, OpenBurst, Outcome};
pub use client::{Connection, resolve};
pub use descriptors::{raise_limit, raise_limit_of};
pub use markers::{Inside, Markers, Overlap};
pub use memory::{Memory, resident};
pub use soak::{Report, Soak};
pub use throttle::{Throttle, ThrottleBy};
