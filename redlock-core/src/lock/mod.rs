//! The lock as the nodes see it: its names, its mode and its dialect, and the token of an attempt.

mod dialect;
mod mode;
mod name;
mod spec;
mod token;

pub use dialect::Dialect;
pub use mode::{Mark, Mode};
pub use name::LockName;
pub use spec::LockSpec;
pub(crate) use spec::QueueKey;
pub use token::Token;
