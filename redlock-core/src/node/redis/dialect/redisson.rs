//! The lock of Redisson's `RLock`: a hash that maps the owner to its hold count.
//!
//! The hold count that this library writes is always 1, because it counts re-entries in this process.

use std::sync::Arc;

use crate::lock::LockName;

/// Returns the channel of the releases. It contains the name of the lock in braces, so that it lies in the
/// same slot of a cluster as the key. A name with an opening brace gets no further braces.
pub(crate) fn channel(name: &LockName) -> Arc<str> {
    let name = name.as_str();
    if name.contains('{') {
        format!("redisson_lock__channel:{name}").into()
    } else {
        format!("redisson_lock__channel:{{{name}}}").into()
    }
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
            assert_eq!(&*channel(&LockName::new("shop:", &key)), expected);
        }
    }
}
