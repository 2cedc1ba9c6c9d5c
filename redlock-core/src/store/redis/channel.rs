//! The names of the channels on which the releases of locks are published.

use std::sync::Arc;

use crate::lock::{Dialect, LockSpec};

/// Returns the channel on which the releases of a lock are published.
pub(super) fn of(spec: &LockSpec) -> Arc<str> {
    of_name(spec.dialect(), spec.name())
}

/// Returns the channel on which the releases of the lock with this name are published.
pub(super) fn of_name(dialect: Dialect, name: &str) -> Arc<str> {
    match dialect {
        Dialect::Plain => name.into(),
        Dialect::Redisson => redisson_channel(name),
    }
}

/// Returns the channel of the releases of a Redisson lock. It contains the name of the lock in braces, so that it lies in
/// the same slot of a cluster as the key. A name with an opening brace gets no further braces.
fn redisson_channel(name: &str) -> Arc<str> {
    if name.contains('{') {
        format!("redisson_lock__channel:{name}").into()
    } else {
        format!("redisson_lock__channel:{{{name}}}").into()
    }
}

/// Returns the channel to which callers subscribe that ask for a turn of the shared holders.
pub(super) fn of_turns(spec: &LockSpec) -> Arc<str> {
    format!("{}:readers", spec.name()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::LockKey;

    /// The name that Redisson 3.50 uses, as `MONITOR` shows it.
    #[test]
    fn the_channel_is_that_of_redisson() {
        for (key, expected) in [
            ("order:42", "redisson_lock__channel:{shop:order:42}"),
            ("a{b}c", "redisson_lock__channel:shop:a{b}c"),
            ("a{b", "redisson_lock__channel:shop:a{b"),
        ] {
            let key = LockKey::new(key).unwrap();
            assert_eq!(&*redisson_channel(key.with_prefix("shop:").name()), expected);
        }
    }
}
