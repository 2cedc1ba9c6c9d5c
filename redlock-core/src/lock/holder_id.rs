//! The public id of a holder.

use std::fmt;
use std::str::FromStr;

use sha1_smol::Sha1;

/// The public id of the holder of a lock: 16 hexadecimal digits.
///
/// The id is the beginning of a digest of the holder's [token](crate::node::Token), so that it may be shown to everybody: the
/// token, which is enough to release the lock, does not follow from it. All nodes have the same id for the same holder. The id
/// stays the same while the lock is held, also over renewals and after a hand-over to the next waiter of the same process.
/// Each acquisition has a new one.
///
/// A refusal names the holder by this id, see [`Vote::Held`](crate::Vote::Held).
///
/// # Other programs
///
/// A script on a Redis server gets the id of an exclusive lock by `string.sub(redis.sha1hex(value), 1, 16)`. The value is the
/// whole text at the key, whichever library has written it, or the only field of the hash of a
/// [Redisson](crate::Dialect::Redisson) lock.
///
/// # Examples
///
/// ```
/// use redlock_core::HolderId;
///
/// let id: HolderId = "3f786850e387550f".parse()?;
/// assert_eq!(id, HolderId::of("a\n"));
/// assert_eq!(id.to_string(), "3f786850e387550f");
/// # Ok::<(), redlock_core::HolderIdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(u64);

/// The error of a text that is not a [`HolderId`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the id of a holder has 16 lower-case hexadecimal digits")]
pub struct HolderIdError;

impl HolderId {
    /// Returns the id of the holder that has stored this text. A [node](crate::node::Node) stores the
    /// [token](crate::node::Token), or [names the holder](crate::node::Token::holder_id) beside it.
    pub fn of(stored: &str) -> Self {
        Self::of_digest(digest(stored))
    }

    /// Returns the id at the beginning of a digest.
    #[allow(clippy::cast_possible_truncation, reason = "the shift leaves 64 bits")]
    pub(super) const fn of_digest(digest: [u8; 16]) -> Self {
        // The digits are the first ones of the digest.
        Self((u128::from_be_bytes(digest) >> 64) as u64)
    }
}

/// Returns the first bytes of the SHA-1 of a text, the only digest that scripts on a Redis server have.
pub(super) fn digest(text: &str) -> [u8; 16] {
    let mut digest = [0; 16];
    digest.copy_from_slice(&Sha1::from(text).digest().bytes()[..16]);
    digest
}

impl FromStr for HolderId {
    type Err = HolderIdError;

    fn from_str(text: &str) -> Result<Self, HolderIdError> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 16 || !text.bytes().all(is_digit) {
            return Err(HolderIdError);
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_| HolderIdError)
    }
}

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HolderId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Dialect, Token};

    /// The digest is that of `redis.sha1hex`: FIPS 180-2 has it for `abc`.
    #[test]
    fn an_id_is_the_beginning_of_the_sha_1_of_the_stored_text() {
        assert_eq!(HolderId::of("abc").to_string(), "a9993e364706816a");
        for dialect in [Dialect::Plain, Dialect::Redisson] {
            let token = Token::random(dialect);
            assert_eq!(token.holder_id(), HolderId::of(&token.text()));
            assert_ne!(token.holder_id(), Token::random(dialect).holder_id());
        }
    }

    #[test]
    fn an_id_has_one_form() {
        let id = HolderId(0xab);
        assert_eq!(id.to_string(), "00000000000000ab");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in [
            "",
            "ab",
            "00000000000000AB",
            "+0000000000000ab",
            "00000000000000ab0",
            "0000000000000\u{e9}b",
        ] {
            assert_eq!(text.parse::<HolderId>(), Err(HolderIdError), "{text}");
        }
    }
}
