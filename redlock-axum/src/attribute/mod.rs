//! The parts of a function with `#[redis_lock]` that need no generated code.

pub(crate) mod argument;
pub(crate) mod deferred;
pub(crate) mod function;
pub(crate) mod handler;
pub(crate) mod last;
pub(crate) mod lock_parameter;
pub(crate) mod options;
pub(crate) mod refusal;
