//! The keys of a lock.

use std::slice;
use std::sync::Arc;

use crate::key::{KeyError, LockKey};
use crate::validity::MAX_KEYS;

/// The keys of a lock: at least one, sorted and different. Most locks have one key, which is stored without an
/// allocation. Cloning is cheap. No public API.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keys {
    /// One key.
    One(LockKey),
    /// A list of at least one key. The number of its keys is that of one request, so a list of one key is a list, too.
    List(Arc<[LockKey]>),
}

impl Keys {
    /// Collects keys, sorts them and removes the duplicates. Stops at the first invalid key, and at the key
    /// that is one too many.
    ///
    /// # Errors
    ///
    /// The error of the first invalid key, with its position; [`KeyError::NoKeys`] and
    /// [`KeyError::TooManyKeys`].
    pub fn collect(
        keys: impl IntoIterator<Item = Result<LockKey, KeyError>>,
    ) -> Result<Self, KeyError> {
        let mut all: Vec<LockKey> = Vec::new();
        for (index, key) in keys.into_iter().enumerate() {
            let key = key.map_err(|error| KeyError::in_list(index, error))?;
            let Err(place) = all.binary_search(&key) else { continue };
            if all.len() == MAX_KEYS {
                return Err(KeyError::TooManyKeys);
            }
            all.insert(place, key);
        }
        if all.is_empty() { Err(KeyError::NoKeys) } else { Ok(Self::List(all.into())) }
    }

    pub(crate) fn as_slice(&self) -> &[LockKey] {
        match self {
            Self::One(key) => slice::from_ref(key),
            Self::List(keys) => keys,
        }
    }

    pub(crate) fn first(&self) -> &LockKey {
        &self.as_slice()[0]
    }
}

impl From<LockKey> for Keys {
    fn from(key: LockKey) -> Self {
        Self::One(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(keys: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Keys, KeyError> {
        Keys::collect(keys.into_iter().map(LockKey::new))
    }

    #[test]
    fn keys_are_sorted_and_different() {
        let keys = collect(["b", "c", "a", "b"]).unwrap();
        let texts: Vec<_> = keys.as_slice().iter().map(LockKey::as_str).collect();
        assert_eq!(texts, ["a", "b", "c"]);
        assert_eq!(keys.first().as_str(), "a");
        assert_eq!(collect(["a", "a"]).unwrap(), collect(["a"]).unwrap());
    }

    #[test]
    fn a_list_has_from_1_to_64_different_keys() {
        let error = collect([""; 0]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the list of lock keys has 0 keys, but must have from 1 to 64 different keys"
        );
        let keys = |count: usize| (0..count).map(|number| format!("key:{number}"));
        let twice = keys(MAX_KEYS).chain(keys(MAX_KEYS));
        assert_eq!(collect(twice).unwrap().as_slice().len(), MAX_KEYS);
        let error = collect(keys(MAX_KEYS + 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the list of lock keys has more than 64 different keys, but must have from 1 to 64 different keys"
        );
        // A list without an end is not read without an end.
        let endless = (0..).map(|number: u64| format!("key:{number}"));
        assert_eq!(collect(endless), Err(KeyError::TooManyKeys));
    }

    #[test]
    fn an_invalid_member_is_named_by_its_position() {
        let error = collect(["a", "redlock:b", "c"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "key 2 of the list: the lock key begins with `redlock:`, which is reserved"
        );
        let error = collect(["a", "b", ""]).unwrap_err();
        assert_eq!(error.to_string(), "key 3 of the list: the lock key is empty");
    }
}
