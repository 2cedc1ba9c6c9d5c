//! The lock as the nodes see it: its keys, its mode and its dialect, and the token of an attempt.

mod dialect;
mod keys;
mod mode;
mod spec;
mod token;

pub(crate) use dialect::ByDialect;
pub use dialect::Dialect;
pub use keys::Keys;
pub use mode::{Mark, Mode};
pub use spec::LockSpec;
pub use token::Token;
