//! The parts of the attribute that ordinary code can do. The generated code reaches them by `__private`.

pub(crate) mod constants;
pub(crate) mod handler;
pub(crate) mod refusal;
