//! The errors of keys.

use crate::validity;

/// The error of creating a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The whole key is empty.
    #[error("the lock key is empty")]
    Empty,
    /// The value of a part of the key is empty. Two resources could share such a key.
    #[error("{} of the lock key is empty", part_name(.name.as_deref()))]
    #[non_exhaustive]
    EmptyPart {
        /// The name of the placeholder, if it is known.
        name: Option<String>,
    },
    /// The key contains a control character. Wrap values in [`KeyPart`](crate::KeyPart).
    #[error("the lock key contains a control character at byte {index}")]
    #[non_exhaustive]
    ControlCharacter {
        /// The position of the control character, in bytes.
        index: usize,
    },
    /// The key begins with `redlock:`, as the names of the library's own keys do.
    #[error("the lock key begins with `redlock:`, which is reserved")]
    Reserved,
    /// The key begins with `redlock:` because of the value of a part.
    #[error("{} makes the lock key begin with `redlock:`, which is reserved", part_name(.name.as_deref()))]
    #[non_exhaustive]
    ReservedPart {
        /// The name of the placeholder, if it is known.
        name: Option<String>,
    },
    /// A placeholder of a template has no value.
    #[error("the placeholder {{{name}}} of the lock key is unknown; available: {}", list(.available))]
    #[non_exhaustive]
    UnknownPlaceholder {
        /// The name of the placeholder.
        name: String,
        /// The names of the given values.
        available: Vec<String>,
    },
    /// A value does not have the type of its placeholder.
    #[error("the part {{{name}}} of the lock key is not {expected}")]
    #[non_exhaustive]
    WrongType {
        /// The name of the placeholder.
        name: String,
        /// A description of the values that the placeholder accepts.
        expected: &'static str,
    },
    /// The list of the keys of a lock is empty. See [`LockManager::lock_all`](crate::LockManager::lock_all).
    #[error("the list of lock keys has 0 keys, but must have {}", validity::allowed_keys!())]
    NoKeys,
    /// The list of the keys of a lock has too many different keys.
    #[error("the list of lock keys has more than {} different keys, but must have {}",
        validity::MAX_KEYS, validity::allowed_keys!())]
    TooManyKeys,
    /// A key of the list is invalid.
    #[error("key {position} of the list: {error}")]
    #[non_exhaustive]
    InList {
        /// The position of the key in the list, from 1 on.
        position: usize,
        /// The error of the key.
        error: Box<KeyError>,
    },
}

impl KeyError {
    /// Makes the error of the key at this index of a list.
    pub(crate) fn in_list(index: usize, error: Self) -> Self {
        Self::InList { position: index + 1, error: Box::new(error) }
    }

    /// Returns the error of the key itself, if the key is a member of a list.
    pub fn of_key(&self) -> &Self {
        match self {
            Self::InList { error, .. } => error,
            error => error,
        }
    }
}

fn part_name(name: Option<&str>) -> String {
    name.map_or_else(|| "a part".to_owned(), |name| format!("the part {{{name}}}"))
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.iter().map(|name| format!("{{{name}}}")).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_part_and_the_available_placeholders() {
        let error = KeyError::UnknownPlaceholder {
            name: "idd".into(),
            available: vec!["id".into(), "sku".into()],
        };
        assert_eq!(
            error.to_string(),
            "the placeholder {idd} of the lock key is unknown; available: {id}, {sku}"
        );
        let error = KeyError::UnknownPlaceholder { name: "id".into(), available: vec![] };
        assert_eq!(
            error.to_string(),
            "the placeholder {id} of the lock key is unknown; available: none"
        );
        assert_eq!(
            KeyError::ReservedPart { name: Some("id".into()) }.to_string(),
            "the part {id} makes the lock key begin with `redlock:`, which is reserved"
        );
        assert_eq!(
            KeyError::EmptyPart { name: Some("id".into()) }.to_string(),
            "the part {id} of the lock key is empty"
        );
    }
}
