//! The lock as the nodes see it: its keys, its mode and its dialect, the token of an attempt, and the label of its owner.

mod holder_id;
mod keys;
mod mode;
mod name;
mod owner;
pub(crate) mod owner_label;
mod token;

use crate::key::LockKey;

pub use holder_id::{HolderId, HolderIdError};
pub use keys::Keys;
pub(crate) use mode::ByDialect;
pub use mode::{Dialect, Mark, Mode};
pub(crate) use name::ALLOWED_NAMES;
pub use name::LockName;
pub(crate) use owner::LockOwner;
pub use owner_label::{OwnerLabel, OwnerLabelError};
pub use token::{OwnerText, Token};

/// The specification of a lock: its keys, its mode, and its dialect.
///
/// A lock of several keys is held on all of them or on none. Its keys are sorted and different.
///
/// Cloning is cheap.
///
/// Two specs with a common [name](LockKey::name) conflict, whatever their modes are. Locks in two dialects with equal
/// names cannot be held at the same time either, but each is foreign to the other: neither waits for the
/// other, and their releases are published on different channels.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockSpec {
    keys: Keys,
    mode: Mode,
    dialect: Dialect,
}

impl LockSpec {
    pub(crate) fn new(keys: impl Into<Keys>, mode: Mode, dialect: Dialect) -> Self {
        Self { keys: keys.into(), mode, dialect }
    }

    /// Creates the spec of a lock whose manager has this prefix.
    pub(crate) fn with_prefix(prefix: &str, keys: &Keys, mode: Mode, dialect: Dialect) -> Self {
        let keys = match keys {
            Keys::One(key) => Keys::One(key.with_prefix(prefix)),
            Keys::List(keys) => {
                Keys::List(keys.iter().map(|key| key.with_prefix(prefix)).collect())
            }
        };
        Self { keys, mode, dialect }
    }

    /// Returns the spec of the lock of one of the keys alone.
    pub(crate) fn of_key(&self, key: &LockKey) -> Self {
        Self::new(key.clone(), self.mode, self.dialect)
    }

    /// Returns the same lock in another mode.
    pub(crate) fn with_mode(&self, mode: Mode) -> Self {
        Self { mode, ..self.clone() }
    }

    /// Returns the name of the lock on a server, which begins with the manager's prefix. A lock of several keys has several
    /// names; this is the first.
    pub fn name(&self) -> &str {
        self.key().name()
    }

    /// Returns the first key.
    pub fn key(&self) -> &LockKey {
        self.keys.first()
    }

    /// Returns the keys: at least one, sorted and different. The lock has the [name](LockKey::name) of each of them.
    pub fn keys(&self) -> &[LockKey] {
        self.keys.as_slice()
    }

    /// Returns the names of the lock on a server, one for each key.
    #[cfg(feature = "redis")]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.keys().iter().map(LockKey::name)
    }

    /// Returns whether the lock has several keys.
    pub(crate) fn has_several_keys(&self) -> bool {
        self.keys().len() > 1
    }

    /// Returns whether the caller has given a list of keys, of any length.
    pub(crate) fn has_list_of_keys(&self) -> bool {
        matches!(self.keys, Keys::List(_))
    }

    /// Returns the key at this index, or the first key if there is none.
    pub(crate) fn key_at(&self, index: usize) -> &LockKey {
        self.keys().get(index).unwrap_or(self.key())
    }

    /// Returns the index of a key; 0 if the lock does not have it.
    pub(crate) fn index_of(&self, key: &LockKey) -> usize {
        self.keys().binary_search(key).unwrap_or_default()
    }

    /// Returns the index of the first key that both locks of one manager have in the same dialect.
    pub(crate) fn common_key(&self, other: &Self) -> Option<usize> {
        if self.dialect != other.dialect {
            return None;
        }
        self.keys().iter().position(|key| other.keys().contains(key))
    }

    /// Returns the mode of the lock.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the dialect of the lock.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(keys: &[&str]) -> LockSpec {
        LockSpec::new(
            Keys::collect(keys.iter().map(LockKey::new)).unwrap(),
            Mode::Exclusive,
            Dialect::Plain,
        )
    }

    /// The spec is copied for each operation on each node.
    #[test]
    fn the_place_for_one_key_is_not_larger_because_there_may_be_several() {
        assert_eq!(size_of::<Keys>(), size_of::<LockKey>());
        assert!(!spec(&["a"]).has_several_keys() && spec(&["a"]).has_list_of_keys());
        assert!(spec(&["a", "b"]).has_several_keys());
    }

    #[test]
    fn each_key_gets_the_prefix() {
        let with_prefix = |keys: &[&str]| {
            let unnamed = spec(keys);
            let LockSpec { keys, mode, dialect } = &unnamed;
            let named = LockSpec::with_prefix("shop:", keys, *mode, *dialect);
            assert_eq!(named.keys(), unnamed.keys(), "the prefix is no part of the keys");
            assert_eq!(named.has_list_of_keys(), unnamed.has_list_of_keys());
            named.keys().iter().map(|key| key.name().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(with_prefix(&["a"]), ["shop:a"]);
        assert_eq!(with_prefix(&["b", "a"]), ["shop:a", "shop:b"]);
        let one = Keys::from(LockKey::new("a").unwrap());
        let one = LockSpec::with_prefix("shop:", &one, Mode::Exclusive, Dialect::Plain);
        assert_eq!((one.name(), one.key().as_str()), ("shop:a", "a"));
        assert!(!one.has_list_of_keys());
    }

    #[test]
    fn locks_conflict_at_their_first_common_key() {
        let (one, several) = (spec(&["b"]), spec(&["a", "b", "c"]));
        assert_eq!(one.common_key(&one), Some(0));
        assert_eq!(one.common_key(&several), Some(0));
        assert_eq!(several.common_key(&one), Some(1));
        assert_eq!(several.common_key(&spec(&["b", "c", "d"])), Some(1));
        assert_eq!(several.common_key(&spec(&["d", "e"])), None);
        assert_eq!(one.common_key(&spec(&["a"])), None);
        let redisson = LockSpec { dialect: Dialect::Redisson, ..one.clone() };
        assert_eq!(one.common_key(&redisson), None);
        assert_eq!(redisson.common_key(&redisson), Some(0));
    }
}
