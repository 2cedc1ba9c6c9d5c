//! What a node is asked about.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::key::LockKey;

/// One attempt to hold one key: made anew for every attempt, so that its token is never used again
/// (invariant 3).
#[derive(Debug)]
pub(crate) struct Claim {
    key: LockKey,
    name: Arc<str>,
    token: Token,
    listeners: AtomicUsize,
    /// How long it stays on the nodes at least, whenever it is released.
    at_least: Option<AtLeast>,
    given_up: AtomicBool,
    /// The nodes that were asked to set it, a bit for each.
    asked: AtomicU64,
}

#[derive(Debug)]
struct AtLeast {
    clock: Arc<dyn Clock>,
    until: Moment,
}

impl Claim {
    pub(crate) fn new(prefix: &str, key: LockKey) -> Self {
        let name =
            if prefix.is_empty() { key.clone().into() } else { format!("{prefix}{key}").into() };
        Self {
            key,
            name,
            token: Token::random(),
            listeners: AtomicUsize::new(0),
            at_least: None,
            given_up: AtomicBool::new(false),
            asked: AtomicU64::new(0),
        }
    }

    /// Lets the claim stay on the nodes for `at_least` from now, however early it is released.
    pub(crate) fn hold_at_least(mut self, at_least: Duration, clock: &Arc<dyn Clock>) -> Self {
        let until = clock.now().after(at_least);
        self.at_least = Some(AtLeast { clock: Arc::clone(clock), until });
        self
    }

    /// How much longer the claim has to stay although it is released.
    pub(crate) fn stays_for(&self) -> Option<Duration> {
        let AtLeast { clock, until } = self.at_least.as_ref()?;
        let left = clock.now().until(*until);
        (!left.is_zero()).then_some(left)
    }

    /// Notes that a node is asked to set the lock.
    pub(crate) fn note_asked(&self, node: usize) {
        self.asked.fetch_or(1 << node, Ordering::SeqCst);
    }

    /// Whether a node may have the lock set: one that was never asked has nothing to release.
    pub(crate) fn was_asked(&self, node: usize) -> bool {
        self.asked.load(Ordering::SeqCst) & (1 << node) != 0
    }

    /// Notes that nobody wants the claim any more; nodes are about to be asked to release it.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::SeqCst)
    }

    /// What a key is called on the nodes: the prefix and the key.
    pub(crate) fn name_of(prefix: &str, key: &LockKey) -> Arc<str> {
        if prefix.is_empty() { key.clone().into() } else { format!("{prefix}{key}").into() }
    }

    /// What the caller locks.
    pub(crate) fn key(&self) -> &LockKey {
        &self.key
    }

    /// What it is called on the nodes: the prefix and the key.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Notes that a node has announced the release to so many listeners.
    pub(crate) fn note_listeners(&self, listeners: usize) {
        self.listeners.fetch_max(listeners, Ordering::Relaxed);
    }

    /// How many listened for the release, on the node with the most.
    pub(crate) fn listeners(&self) -> usize {
        self.listeners.load(Ordering::Relaxed)
    }

    /// What proves the ownership.
    pub(crate) fn token(&self) -> &str {
        self.token.as_str()
    }
}

/// 128 random bits in hexadecimal.
///
/// From a cryptographically secure generator, because who can guess a token can release a lock.
/// Never displayed (invariant 12).
struct Token([u8; 32]);

impl Token {
    fn random() -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let random: [u8; 16] = rand::random();
        let mut digits = [0; 32];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(random) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        Self(digits)
    }

    fn as_str(&self) -> &str {
        // It holds ASCII digits only.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_has_a_token_of_its_own() {
        let key = LockKey::new("order:42").unwrap();
        let one = Claim::new("", key.clone());
        let two = Claim::new("", key);
        assert_eq!(one.token().len(), 32);
        assert_ne!(one.token(), two.token());
        assert!(one.token().bytes().all(|b| b.is_ascii_hexdigit()));
    }

    #[test]
    fn the_prefix_stands_before_the_key() {
        let claim = Claim::new("shop:", LockKey::new("order:42").unwrap());
        assert_eq!(&**claim.name(), "shop:order:42");
        assert_eq!(claim.key().as_str(), "order:42");
    }

    #[test]
    fn the_token_is_not_shown() {
        let claim = Claim::new("", LockKey::new("order:42").unwrap());
        assert!(!format!("{claim:?}").contains(claim.token()));
    }
}
