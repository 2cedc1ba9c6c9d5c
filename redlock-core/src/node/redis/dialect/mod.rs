//! How each dialect writes an operation down, and what the replies to it mean.

pub(crate) mod plain;
pub(crate) mod redisson;
pub(crate) mod scripted;
