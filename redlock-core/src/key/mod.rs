//! Lock keys ([`LockKey`]), the escaping of values ([`KeyPart`]), and key templates ([`KeyTemplate`]).
//!
//! # Invariants
//!
//! **Different values, different keys; one resource, one key.** Values in a template are escaped; typed values have one
//! form.
//!
//! Tests that fail without it, among others: `redlock-core/tests/keys`, `a_long_key_keeps_its_head_and_stays_distinct`.

mod builder;
mod error;
mod part;
mod placeholder;
#[cfg(feature = "serde")]
mod serde;
mod template;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use smol_str::{SmolStr, format_smolstr};

pub use builder::{KeyBuilder, KeyValue, PlaceholderKind};
pub use error::KeyError;
pub use part::KeyPart;
pub use template::{KeyTemplate, TemplateError};

/// Begins the names of the library's own keys, such as the fencing counters (see `wire.md`).
const RESERVED: &str = "redlock:";
/// The length of the longest key that is not shortened, in bytes. See [`LockKey::new`].
const MAX_LEN: usize = 200;
/// The length of the readable part of a shortened key, in bytes.
const HEAD_LEN: usize = 128;
/// Separates the readable part of a shortened key from its digest. In an escaped value every `%` is
/// followed by hexadecimal digits, so no values can build the shortened key of other values (different
/// values, different keys). A `#` alone would not do, because a template may separate two values by it.
const BEFORE_DIGEST: &str = "%#";

/// A lock key: the name of the locked resource.
///
/// One resource must have one key, and different resources different keys. Build keys from typed values:
/// wrap every value from outside in a [`KeyPart`], or use a [`KeyTemplate`], which escapes its values.
///
/// On a server, the lock has the [name](Self::name) that begins with the manager's prefix. Keys are compared, ordered
/// and hashed without this prefix.
///
/// Cloning is cheap.
///
/// # Examples
///
/// ```
/// use redlock_core::{KeyPart, LockKey};
///
/// let sku = "shoe:42";
/// let key = LockKey::new(format!("stock:{}", KeyPart(&sku)))?;
/// assert_eq!(key.as_str(), "stock:shoe%3A42");
/// # Ok::<(), redlock_core::KeyError>(())
/// ```
#[derive(Clone)]
pub struct LockKey {
    name: SmolStr,
    /// The length of the manager's prefix, with which the name begins.
    prefix: usize,
}

impl LockKey {
    /// Creates a key.
    ///
    /// A key of more than 200 bytes is shortened to its first 128 bytes (fewer if that would split a
    /// character), `%#`, and the SHA-256 of the whole key in hexadecimal. Different keys stay different,
    /// and the key on the wire stays short, however long a value from a client is. A [`KeyPart`] never
    /// contains `%#`.
    ///
    /// # Errors
    ///
    /// * [`KeyError::Empty`] for an empty key.
    /// * [`KeyError::EmptyPart`] if the value of a [`KeyPart`] was empty.
    /// * [`KeyError::ControlCharacter`] if the key contains a control character. A [`KeyPart`] encodes
    ///   control characters.
    /// * [`KeyError::Reserved`] if the key begins with `redlock:`.
    pub fn new(key: impl AsRef<str>) -> Result<Self, KeyError> {
        let key = key.as_ref();
        if key.is_empty() {
            return Err(KeyError::Empty);
        }
        // Most keys are printable ASCII. This check is faster than the search below.
        let is_printable = key.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !is_printable && let Some(index) = key.find(char::is_control) {
            return Err(if key[index..].starts_with(part::EMPTY_MARK) {
                KeyError::EmptyPart { name: None }
            } else {
                KeyError::ControlCharacter { index }
            });
        }
        if key.starts_with(RESERVED) {
            return Err(KeyError::Reserved);
        }
        let name = if key.len() <= MAX_LEN { key.into() } else { shortened(key).into() };
        Ok(Self { name, prefix: 0 })
    }

    /// Returns the key with the prefix of the manager that locks it, instead of any earlier prefix.
    pub(crate) fn with_prefix(&self, prefix: &str) -> Self {
        if self.prefix() == prefix {
            return self.clone();
        }
        Self { name: format_smolstr!("{prefix}{self}"), prefix: prefix.len() }
    }

    /// Returns the key without the manager's prefix.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.name[self.prefix..]
    }

    /// Returns the name of the lock on a server: the manager's prefix and the key.
    ///
    /// The keys of guards, of errors and of the operations of a [node](crate::node) have the prefix of their manager.
    /// Other keys have none: their name is the key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the manager's prefix, with which the [name](Self::name) begins.
    pub fn prefix(&self) -> &str {
        &self.name[..self.prefix]
    }

    /// Returns the name for an owner that stores it: cloning it does not copy a long name.
    pub(crate) fn stored_name(&self) -> &SmolStr {
        &self.name
    }
}

impl PartialEq for LockKey {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for LockKey {}

impl Ord for LockKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl PartialOrd for LockKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for LockKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl AsRef<str> for LockKey {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

/// `LockKey` is compared, ordered and hashed like its text.
impl Borrow<str> for LockKey {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl FromStr for LockKey {
    type Err = KeyError;

    fn from_str(key: &str) -> Result<Self, KeyError> {
        Self::new(key)
    }
}

impl TryFrom<&str> for LockKey {
    type Error = KeyError;

    fn try_from(key: &str) -> Result<Self, KeyError> {
        Self::new(key)
    }
}

impl TryFrom<String> for LockKey {
    type Error = KeyError;

    fn try_from(key: String) -> Result<Self, KeyError> {
        Self::new(key)
    }
}

impl From<LockKey> for Arc<str> {
    fn from(key: LockKey) -> Self {
        key.as_str().into()
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

fn shortened(key: &str) -> String {
    use fmt::Write;

    let head_len = (0..=HEAD_LEN).rev().find(|&len| key.is_char_boundary(len)).unwrap_or(0);
    let head = &key[..head_len];
    let mut short = String::with_capacity(head.len() + BEFORE_DIGEST.len() + 64);
    short.push_str(head);
    short.push_str(BEFORE_DIGEST);
    for byte in Sha256::digest(key) {
        // Writing to a String does not fail.
        let _ = write!(short, "{byte:02x}");
    }
    short
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_short_key_is_used_as_it_is() {
        assert_eq!(LockKey::new("order:42").unwrap().as_str(), "order:42");
        assert_eq!(LockKey::new("заказ:42").unwrap().as_str(), "заказ:42");
        assert_eq!(LockKey::new("x".repeat(200)).unwrap().as_str().len(), 200);
    }

    #[test]
    fn the_prefix_stands_before_the_key() {
        let key = LockKey::new("order:42").unwrap();
        assert_eq!((key.name(), key.prefix()), ("order:42", ""));
        let of_shop = key.with_prefix("shop:");
        assert_eq!((of_shop.name(), of_shop.prefix()), ("shop:order:42", "shop:"));
        assert_eq!((of_shop.as_str(), of_shop.to_string()), ("order:42", "order:42".to_owned()));
        assert_eq!(&*Arc::<str>::from(of_shop), "order:42");
    }

    /// The key of a guard may be locked by another manager.
    #[test]
    fn a_prefix_replaces_an_earlier_one() {
        let of_shop = LockKey::new("order:42").unwrap().with_prefix("shop:");
        for (prefix, name) in
            [("shop:", "shop:order:42"), ("bank:", "bank:order:42"), ("", "order:42")]
        {
            let key = of_shop.with_prefix(prefix);
            assert_eq!((key.name(), key.prefix()), (name, prefix));
        }
    }

    #[test]
    fn keys_are_compared_and_hashed_without_their_prefix() {
        let key = |prefix, key| LockKey::new(key).unwrap().with_prefix(prefix);
        let one = key("shop:", "order:42");
        assert_eq!(one, key("", "order:42"));
        assert_ne!(one, key("", "shop:order:42"), "their names are equal");
        assert!(one < key("bank:", "order:43"));
        let map = HashMap::from([(one, 1)]);
        assert_eq!((map.get("order:42"), map.get("shop:order:42")), (Some(&1), None));
        assert_eq!(map.get(&key("bank:", "order:42")), Some(&1));
    }

    #[test]
    fn an_empty_key_and_control_characters_are_refused() {
        assert_eq!(LockKey::new(""), Err(KeyError::Empty));
        assert_eq!(LockKey::new("a\nb"), Err(KeyError::ControlCharacter { index: 1 }));
        for code in (0..0x20).chain(0x7f..0xa0) {
            let key = format!("ab{}c", char::from_u32(code).unwrap());
            assert_eq!(LockKey::new(key), Err(KeyError::ControlCharacter { index: 2 }), "{code}");
        }
    }

    /// Otherwise a lock could occupy the key of a fencing counter.
    #[test]
    fn the_names_of_the_librarys_own_keys_are_reserved() {
        for key in ["redlock:fencing:{9208}", "redlock:", "redlock:orders"] {
            assert_eq!(LockKey::new(key), Err(KeyError::Reserved), "{key}");
        }
        for key in ["redlock", "redlock_lock", "my:redlock:lock", "Redlock:a"] {
            assert!(LockKey::new(key).is_ok(), "{key}");
        }
    }

    #[test]
    fn a_long_key_keeps_its_head_and_stays_distinct() {
        let one = LockKey::new(format!("{}1", "я".repeat(10_000))).unwrap();
        let two = LockKey::new(format!("{}2", "я".repeat(10_000))).unwrap();
        assert_ne!(one, two);
        assert!(one.as_str().len() <= MAX_LEN);
        assert!(one.as_str().starts_with("яяя"));
        assert_eq!(one, LockKey::new(format!("{}1", "я".repeat(10_000))).unwrap());
    }

    /// An attacker might send the head and the digest of a shortened key as short values.
    #[test]
    fn no_values_give_the_shortened_key_of_other_values() {
        for (template, before) in [("{a}#{b}", 0), ("{a}/{b}", 0), ("{{{a}#{b}", 1)] {
            let template = KeyTemplate::new(template).unwrap();
            let key = |a: &str, b: &str| template.render([("a", a), ("b", b)]).unwrap();
            let victim = key(&"a".repeat(300), "b");
            let (head, digest) = victim.as_str().rsplit_once('#').unwrap();
            for head in [head, head.trim_end_matches('%')] {
                assert_ne!(key(&head[before..], digest), victim, "{template}");
            }
        }
    }
}
