//! The paths of locks, and the names of the nodes in their queues.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::lock::Token;

/// The end of the names of the lock recipe, before their number (Curator's `InterProcessMutex`).
const LOCK: &str = "-lock-";

/// The greatest number of a child. From ZooKeeper 3.6 on, all further children have the same number; in 3.5, they have numbers
/// below zero. So the first child with this number has no certain place in the order.
pub(super) const LAST_NUMBER: i32 = i32::MAX;

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
    let digest = Sha256::digest(token.text().as_bytes());
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
    pub(super) fn of(names: Vec<String>) -> Result<Self, QueueError> {
        let mut numbered = Vec::with_capacity(names.len());
        for name in names {
            match number(&name) {
                Some(number) if (0..LAST_NUMBER).contains(&number) => numbered.push((number, name)),
                Some(_) => return Err(QueueError::Overflow),
                None => return Err(QueueError::ForeignChild),
            }
        }
        numbered.sort_unstable();
        match numbered.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(QueueError::EqualNumbers(pair[0].0)),
            None => Ok(Self(numbered.into_iter().map(|(_, name)| name).collect())),
        }
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
    /// A node has the [`LAST_NUMBER`], or one below zero. A new node would have the same number, or come before the holder.
    Overflow,
    /// Two nodes have this number, so that each could be the first one.
    EqualNumbers(i32),
}

/// Returns the number of a node; `None` if the node does not belong to the lock recipe.
pub(super) fn number(name: &str) -> Option<i32> {
    name.rsplit_once(LOCK)?.1.parse().ok()
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
        assert!(!token.text().contains(&uuid[..8]));
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
        for foreign in
            ["9d0e__lock__0000000001", "_c_f-__READ__0000000001", "_c_f-lock-", "-lock-x"]
        {
            let names = [names[0], foreign].map(Into::into).into();
            assert_eq!(Queue::of(names), Err(QueueError::ForeignChild), "{foreign}");
        }
    }

    /// ZooKeeper 3.6 to 3.9 repeat the last number, and 3.5 goes on below zero.
    #[test]
    fn a_queue_whose_numbers_have_no_order_is_an_error() {
        let of = |numbers: &[&str]| {
            let names = numbers.iter().enumerate();
            Queue::of(names.map(|(index, number)| format!("_c_{index}-lock-{number}")).collect())
        };
        assert!(of(&["2147483645", "2147483646"]).is_ok());
        for numbers in [
            &["2147483647"][..],
            &["2147483646", "2147483647"],
            &["2147483647", "2147483647"],
            &["2147483646", "-2147483648"],
            &["-000000001"],
        ] {
            assert_eq!(of(numbers), Err(QueueError::Overflow), "{numbers:?}");
        }
        let equal = of(&["0000000003", "0000000007", "0000000003"]);
        assert_eq!(equal, Err(QueueError::EqualNumbers(3)));
    }
}
