//! The name of a lock on the nodes.

use std::fmt;

use smol_str::{SmolStr, format_smolstr};

use crate::key::LockKey;

/// The name of a lock on the nodes: the manager's prefix and the key.
///
/// Cloning is cheap. Two names are equal if their texts are equal, even if their prefixes differ.
#[derive(Clone)]
pub struct LockName {
    text: SmolStr,
    prefix: usize,
}

impl LockName {
    pub(crate) fn new(prefix: &str, key: &LockKey) -> Self {
        let text =
            if prefix.is_empty() { key.text().clone() } else { format_smolstr!("{prefix}{key}") };
        Self { text, prefix: prefix.len() }
    }

    /// Returns the whole name.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the manager's prefix, with which the name begins.
    pub fn prefix(&self) -> &str {
        &self.text[..self.prefix]
    }
}

impl PartialEq for LockName {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for LockName {}

impl std::hash::Hash for LockName {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl std::borrow::Borrow<str> for LockName {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_stands_before_the_key() {
        let key = LockKey::new("order:42").unwrap();
        let name = LockName::new("shop:", &key);
        assert_eq!((name.as_str(), name.prefix()), ("shop:order:42", "shop:"));
        let name = LockName::new("", &key);
        assert_eq!((name.as_str(), name.prefix()), ("order:42", ""));
    }

    #[test]
    fn names_of_one_text_are_equal() {
        let name = |prefix, key| LockName::new(prefix, &LockKey::new(key).unwrap());
        assert_eq!(name("shop:", "order:42"), name("", "shop:order:42"));
        assert_ne!(name("shop:", "order:42"), name("", "order:42"));
    }
}
