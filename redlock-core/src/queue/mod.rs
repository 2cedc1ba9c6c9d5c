//! What happens while a lock is waited for.

mod backoff;

pub(crate) use backoff::Backoff;
