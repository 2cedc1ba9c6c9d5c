//! The rows of the table, one module per subject.

pub(crate) mod beside;
pub(crate) mod degraded;
pub(crate) mod hot_key;
pub(crate) mod memory;
pub(crate) mod own_keys;
pub(crate) mod processes;
