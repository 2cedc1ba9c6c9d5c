//! What a lock is called.

use std::sync::Arc;

use super::Dialect;
use crate::key::LockKey;

/// What a lock is called on the nodes, together with its kind.
///
/// Locks of two kinds are two locks, although they cannot be held at once where their names are the
/// same: one is not handed over as the other, and is announced elsewhere. Those above the nodes only
/// compare it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LockName {
    name: Arc<str>,
    dialect: Dialect,
}

impl LockName {
    /// The prefix and the key.
    pub(crate) fn new(prefix: &str, key: &LockKey, dialect: Dialect) -> Self {
        let name =
            if prefix.is_empty() { key.clone().into() } else { format!("{prefix}{key}").into() };
        Self { name, dialect }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }

    pub(crate) fn as_shared(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_stands_before_the_key() {
        let key = LockKey::new("order:42").unwrap();
        assert_eq!(LockName::new("shop:", &key, Dialect::Plain).as_str(), "shop:order:42");
        assert_eq!(LockName::new("", &key, Dialect::Plain).as_str(), "order:42");
    }
}
