//! The token that proves the ownership of a lock.
//!
//! # Invariants
//!
//! **Secrets stay in.** No password, token or full key in an HTTP response. No password or token in logs, `Debug` or
//! errors. The last step of `tests/run.sh` searches all output for them.
//!
//! Tests that fail without it, among others: `the_debug_output_does_not_contain_the_token`,
//! `neither_key_nor_nodes_are_in_a_response`, `a_lock_never_prints_its_token_or_the_password`,
//! `a_response_contains_no_key_node_or_secret`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{cmp, fmt, hash, ops};

use rand::RngExt;

use super::holder_id::{HolderId, digest};
use super::{Dialect, OwnerLabel};
use crate::random::with_random;

/// A token: the random value that proves the ownership of a lock, with the [label](OwnerLabel) of its owner and the time of
/// its attempt.
///
/// The random value has 128 bits (122 in a UUID) from a cryptographically secure generator, because a client
/// that guesses the token can release the lock. It is never displayed (secrets stay in). Two tokens are equal if their
/// random values are.
///
/// A node stores and compares the [text](Self::text) of the token as a whole.
#[derive(Clone, Copy)]
pub struct Token {
    random: [u8; 16],
    /// `@`, the label and `/`; empty without a label.
    infix: &'static str,
    /// Seconds since 1970, which suffices until 2106.
    since: u32,
    dialect: Dialect,
}

/// The text of a [`Token`], which a node stores as the owner of a lock. It is a secret.
///
/// In the dialect [`Plain`](Dialect::Plain) it is the random value as 32 hexadecimal digits. With a label, `@`, the label, `/`
/// and the seconds since 1970 in ten digits follow. In the dialect [`Redisson`](Dialect::Redisson) it is the owner of an
/// `RLock`, without a label.
#[derive(Clone, Copy)]
pub struct OwnerText {
    /// ASCII characters, padded with zeros.
    text: [u8; MAX_LEN],
    len: usize,
}

/// The random value of a plain lock, a label with its two separators, and the seconds.
const MAX_LEN: usize = 32 + 1 + OwnerLabel::MAX_LEN + 1 + SECONDS;
/// The digits of the seconds since 1970.
const SECONDS: usize = 10;

impl Token {
    /// Returns a fresh token without a label.
    pub(crate) fn random(dialect: Dialect) -> Self {
        Self { random: with_random(RngExt::random), infix: "", since: 0, dialect }
    }

    /// Adds the label, with `@` before and `/` behind it, and the seconds since 1970.
    pub(super) fn labelled(self, infix: &'static str, since: u32) -> Self {
        Self { infix, since, ..self }
    }

    /// Returns the text that a node stores. It is a secret.
    #[inline]
    pub fn text(&self) -> OwnerText {
        let mut text = OwnerText { text: [0; MAX_LEN], len: 0 };
        match self.dialect {
            Dialect::Plain => text.push(&hex(self.random)),
            Dialect::Redisson => text.push_redisson_owner(self.random),
        }
        if !self.infix.is_empty() {
            text.push(self.infix.as_bytes());
            text.push(&decimal(self.since));
        }
        text
    }

    /// Returns the label of the owner; `None` if it has none.
    pub fn label(&self) -> Option<OwnerLabel> {
        OwnerLabel::read(self.infix.strip_prefix('@')?.strip_suffix('/')?)
    }

    /// Returns when the attempt began, by the wall clock of its process, with an error of up to two seconds; `None` for an owner without a label.
    pub fn since(&self) -> Option<SystemTime> {
        let since = UNIX_EPOCH + Duration::from_secs(self.since.into());
        (!self.infix.is_empty()).then_some(since)
    }

    /// Returns the public id of the holder with this token. A node names it in its refusals.
    pub fn holder_id(&self) -> HolderId {
        HolderId::of_digest(self.digest())
    }

    /// Returns a digest that begins with the [`holder_id`](Self::holder_id). The token does not follow from it.
    pub(crate) fn digest(&self) -> [u8; 16] {
        digest(&self.text())
    }

    /// Returns the digest as hexadecimal digits.
    #[cfg(feature = "postgres")]
    pub(crate) fn digest_text(&self) -> Box<str> {
        String::from_utf8_lossy(&hex(self.digest())).into()
    }
}

impl OwnerText {
    /// Appends the owner of an `RLock`: `<uuid of the client>:<id of the thread>`. Every attempt is a
    /// client of its own with one thread, because Redisson lets the same owner acquire its lock again.
    fn push_redisson_owner(&mut self, mut random: [u8; 16]) {
        // Version 4, variant 1 (RFC 9562), because a Java client may parse the text as a UUID.
        random[6] = (random[6] & 0x0f) | 0x40;
        random[8] = (random[8] & 0x3f) | 0x80;
        let hex = hex(random);
        let mut rest = &hex[..];
        for group in [8, 4, 4, 4, 12] {
            let (digits, others) = rest.split_at(group);
            if self.len > 0 {
                self.push(b"-");
            }
            self.push(digits);
            rest = others;
        }
        self.push(b":1");
    }

    fn push(&mut self, text: &[u8]) {
        let end = self.len + text.len();
        self.text[self.len..end].copy_from_slice(text);
        self.len = end;
    }

    /// Returns the bytes of the text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

impl ops::Deref for OwnerText {
    type Target = str;

    fn deref(&self) -> &str {
        // `text` contains only ASCII characters, so the conversion does not fail.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

/// Returns the bytes as hexadecimal digits. Without a table of digits, the compiler handles all bytes at once.
fn hex(bytes: [u8; 16]) -> [u8; 32] {
    let digit = |value: u8| value + if value < 10 { b'0' } else { b'a' - 10 };
    let mut digits = [0; 32];
    for (index, byte) in bytes.into_iter().enumerate() {
        digits[2 * index] = digit(byte >> 4);
        digits[2 * index + 1] = digit(byte & 15);
    }
    digits
}

/// Returns a number as ten decimal digits.
fn decimal(mut number: u32) -> [u8; SECONDS] {
    let mut digits = [b'0'; SECONDS];
    for digit in digits.iter_mut().rev() {
        // One decimal digit fits into a byte.
        *digit += (number % 10) as u8;
        number /= 10;
    }
    digits
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.random == other.random
    }
}

impl Eq for Token {}

impl PartialOrd for Token {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Token {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.random.cmp(&other.random)
    }
}

impl hash::Hash for Token {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.random.hash(state);
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl fmt::Debug for OwnerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerText(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_plain_token_is_hexadecimal() {
        let token = Token::random(Dialect::Plain);
        let text = token.text();
        assert_eq!(text.len(), 32);
        assert!(text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }

    #[test]
    fn an_owner_of_redisson_is_a_uuid_and_a_number() {
        let token = Token::random(Dialect::Redisson);
        let text = token.text();
        let (uuid, thread) = text.split_once(':').unwrap();
        assert_eq!(thread, "1");
        let groups: Vec<&str> = uuid.split('-').collect();
        assert_eq!(groups.iter().map(|group| group.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(groups.concat().bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(groups[2].starts_with('4') && groups[3].starts_with(['8', '9', 'a', 'b']));
    }

    /// The form is final, because other versions and other languages read it.
    #[test]
    fn a_label_and_ten_digits_follow_the_random_value() {
        let token = Token::random(Dialect::Plain);
        let random = token.text();
        for (since, digits) in
            [(0, "0000000000"), (1_795_000_000, "1795000000"), (u32::MAX, "4294967295")]
        {
            let label = OwnerLabel::new(&"#@/".repeat(21)).unwrap();
            let labelled = token.labelled(label.infix(), since);
            assert_eq!(*labelled.text(), *format!("{}@{label}/{digits}", &*random));
            assert_eq!(labelled.label(), Some(label));
            assert_eq!(labelled, token);
        }
        let longest = OwnerLabel::new(&"x".repeat(64)).unwrap();
        assert_eq!(token.labelled(longest.infix(), 0).text().len(), MAX_LEN);
    }

    fn bits(dialect: Dialect) -> u128 {
        let token = Token::random(dialect);
        let hex = token.text().trim_end_matches(":1").replace('-', "");
        u128::from_str_radix(&hex, 16).unwrap()
    }

    /// Returns all bits except the version and the variant of a UUID.
    fn random_bits(dialect: Dialect) -> impl Iterator<Item = u32> {
        let fixed: u128 = match dialect {
            Dialect::Plain => 0,
            Dialect::Redisson => (0xf << 76) | (0b11 << 62),
        };
        (0..128).filter(move |bit| (fixed >> bit) & 1 == 0)
    }

    /// A caller that guesses a token can release the lock. So each bit of a token is set as often
    /// as not, and so is each change of a bit from one token to the next.
    #[test]
    fn each_bit_of_a_token_is_random() {
        const TOKENS: u32 = 10_000;
        for (dialect, count) in [(Dialect::Plain, 128), (Dialect::Redisson, 122)] {
            let tokens: Vec<u128> = (0..TOKENS).map(|_| bits(dialect)).collect();
            let changes: Vec<u128> = tokens.windows(2).map(|pair| pair[0] ^ pair[1]).collect();
            assert_eq!(random_bits(dialect).count(), count);
            for bit in random_bits(dialect) {
                for values in [&tokens, &changes] {
                    let set = values.iter().filter(|value| (*value >> bit) & 1 == 1).count();
                    // Ten standard deviations from the mean.
                    assert!((4500..=5500).contains(&set), "bit {bit}: {set} times of {TOKENS}");
                }
            }
        }
    }

    /// With only 32 random bits, wherever they are, 300,000 tokens would have about ten
    /// repetitions.
    #[test]
    fn no_token_of_many_is_repeated() {
        let tokens: HashSet<_, ahash::RandomState> =
            (0..300_000).map(|_| Token::random(Dialect::Plain)).collect();
        assert_eq!(tokens.len(), 300_000);
    }

    /// A fresh token for every attempt.
    #[test]
    fn no_two_tokens_are_the_same() {
        for dialect in [Dialect::Plain, Dialect::Redisson] {
            assert_ne!(*Token::random(dialect).text(), *Token::random(dialect).text());
        }
    }

    /// Secrets stay in.
    #[test]
    fn the_debug_output_does_not_contain_the_token() {
        for dialect in [Dialect::Plain, Dialect::Redisson] {
            let token = Token::random(dialect);
            let text = token.text();
            assert!(!format!("{token:?}{text:?}").contains(&*text), "{dialect:?}");
        }
    }
}
