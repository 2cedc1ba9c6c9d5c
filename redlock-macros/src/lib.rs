//! The attribute `#[redis_lock]`.
