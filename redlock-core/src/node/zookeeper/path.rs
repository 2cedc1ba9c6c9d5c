//! The paths of locks, and the names of the nodes in their queues.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::lock::Token;

/// The end of the names of the lock recipe, before their number (Curator's `InterProcessMutex`).
const LOCK: &str = "-lock-";

/// Returns the name of a lock as one segment of a path.
///
/// ZooKeeper forbids control characters, and the UTF-16 units from `D800` to `F8FF` and from `FFF0`, which include emoji
/// ("Data Model" in the ZooKeeper Programmer's Guide). Like `%` and `/`, they are escaped as the bytes of UTF-8. In the names
/// `.`, `..` and `zookeeper`, which ZooKeeper reserves, the first character is escaped.
pub(super) fn segment(name: &str) -> String {
    let is_reserved = matches!(name, "." | ".." | "zookeeper");
    let mut segment = String::with_capacity(name.len());
    for (index, char) in name.chars().enumerate() {
        match char {
            _ if is_reserved && index == 0 => escape(&mut segment, char),
            '%'
            | '/'
            | '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{e000}'..='\u{f8ff}'
            | '\u{fff0}'.. => {
                escape(&mut segment, char);
            }
            _ => segment.push(char),
        }
    }
    segment
}

fn escape(segment: &mut String, char: char) {
    for byte in char.encode_utf8(&mut [0; 4]).bytes() {
        // Writing to a string does not fail.
        let _ = write!(segment, "%{byte:02X}");
    }
}

/// Returns the beginning of the name of the node that this token makes in the queue of a lock. The token is a secret, and does not
/// follow from it.
pub(super) fn prefix(token: Token) -> String {
    let digest = Sha256::digest(token.as_str());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    prefix_of(bytes)
}

/// Returns a prefix in the form of Curator's protected mode, `_c_<UUID>-lock-`.
pub(super) fn prefix_of(bytes: [u8; 16]) -> String {
    let mut prefix = String::from("_c_");
    for (index, byte) in bytes.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            prefix.push('-');
        }
        // Writing to a string does not fail.
        let _ = write!(prefix, "{byte:02x}");
    }
    prefix + LOCK
}

/// The nodes in the queue of a lock, in the order of their numbers. The first one holds the lock.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Queue(Vec<String>);

impl Queue {
    /// Sorts the nodes.
    pub(super) fn of(mut names: Vec<String>) -> Result<Self, QueueError> {
        if !names.iter().all(|name| name.contains(LOCK)) {
            return Err(QueueError::ForeignChild);
        }
        if names.iter().any(|name| number(name).starts_with('-')) {
            return Err(QueueError::Overflow);
        }
        names.sort_unstable_by(|one, other| number(one).cmp(number(other)));
        Ok(Self(names))
    }

    pub(super) fn first(&self) -> Option<&str> {
        self.0.first().map(String::as_str)
    }

    /// Returns how many nodes are behind the first one.
    pub(super) fn others(&self) -> usize {
        self.0.len().saturating_sub(1)
    }

    /// Returns the position of the node whose name begins with `prefix`, and the name of the node in front of it.
    pub(super) fn position(&self, prefix: &str) -> Option<(usize, Option<&str>)> {
        let index = self.0.iter().position(|name| name.starts_with(prefix))?;
        Some((index, index.checked_sub(1).map(|front| self.0[front].as_str())))
    }
}

/// The reason why the order of a queue is not known.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QueueError {
    /// A node does not belong to the lock recipe.
    ForeignChild,
    /// The servers number the nodes with 32 bits, and go on below zero. A new node would come before the holder.
    Overflow,
}

/// Returns the number of a node. Its digits are compared as text, as Curator compares them.
fn number(name: &str) -> &str {
    name.rsplit_once(LOCK).map_or("", |(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Dialect;

    /// The limits are those of `PathUtils.validatePath` of ZooKeeper.
    #[test]
    fn a_segment_has_no_forbidden_character() {
        for (name, expected) in [
            ("order:42", "order:42"),
            ("a/b%c", "a%2Fb%25c"),
            ("\0\t\x1f \x7f\u{80}\u{9f}\u{a0}", "%00%09%1F %7F%C2%80%C2%9F\u{a0}"),
            ("\u{d7ff}\u{e000}\u{f8ff}\u{f900}", "\u{d7ff}%EE%80%80%EF%A3%BF\u{f900}"),
            ("\u{ffef}\u{fff0}\u{1f512}", "\u{ffef}%EF%BF%B0%F0%9F%94%92"),
            (".", "%2E"),
            ("..", "%2E."),
            ("zookeeper", "%7Aookeeper"),
            ("...", "..."),
            ("zookeeper:1", "zookeeper:1"),
            ("\u{e9}e\u{301}", "\u{e9}e\u{301}"),
        ] {
            assert_eq!(segment(name), expected, "{name:?}");
        }
    }

    #[test]
    fn a_prefix_has_the_form_of_curator_and_hides_the_token() {
        let token = Token::random(Dialect::Plain);
        let name = prefix(token);
        assert_eq!(name, prefix(token));
        assert_ne!(name, prefix(Token::random(Dialect::Plain)));
        let uuid = name.strip_prefix("_c_").unwrap().strip_suffix("-lock-").unwrap();
        let groups: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12]);
        assert!(!token.as_str().contains(&uuid[..8]));
    }

    #[test]
    fn a_queue_is_in_the_order_of_the_numbers() {
        let names = ["_c_f-lock-0000000009", "_c_a-lock-0000000010", "x-lock-0000000002"];
        let queue = Queue::of(names.map(Into::into).into()).unwrap();
        assert_eq!(queue.first(), Some("x-lock-0000000002"));
        assert_eq!(queue.position("_c_a"), Some((2, Some("_c_f-lock-0000000009"))));
        assert_eq!(queue.position("x-"), Some((0, None)));
        assert_eq!(queue.position("_c_b"), None);
        assert_eq!(Queue::of(Vec::new()).unwrap().first(), None);
        for foreign in ["9d0e__lock__0000000001", "_c_f-__READ__0000000001"] {
            let names = [names[0], foreign].map(Into::into).into();
            assert_eq!(Queue::of(names), Err(QueueError::ForeignChild), "{foreign}");
        }
        let names = ["_c_f-lock-2147483647", "_c_a-lock--2147483648"].map(Into::into).into();
        assert_eq!(Queue::of(names), Err(QueueError::Overflow));
    }
}
