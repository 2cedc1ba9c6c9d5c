//! The keys for whose release somebody waits, as far as a node knows.
//!
//! The script of a release gives readers their turn in the same step. Commands in place of the script leave a moment between
//! the release and the turn, so they are for keys that nobody waits for. A mistake costs only this moment, or the time of a
//! script.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of places for keys. A key may displace another one.
const PLACES: usize = 512;

/// The keys for whose release somebody waits. Needs no memory until there is one.
#[derive(Default)]
pub(super) struct AwaitedKeys(OnceLock<KeyPlaces>);

struct KeyPlaces {
    hasher: ahash::RandomState,
    /// The hash of a key, or 0, at the place that the hash determines.
    places: Box<[AtomicU64]>,
}

impl KeyPlaces {
    fn new() -> Self {
        let places = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { hasher: ahash::RandomState::new(), places }
    }

    /// Returns the hash of a key, and its place.
    fn find(&self, name: &str) -> (u64, &AtomicU64) {
        let hash = self.hasher.hash_one(name).max(1);
        let place = usize::try_from(hash % PLACES as u64).unwrap_or_default();
        (hash, &self.places[place])
    }
}

impl AwaitedKeys {
    /// Returns whether somebody waited for the release of the lock with this name when this node last met it.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.get().is_some_and(|keys| {
            let (hash, place) = keys.find(name);
            place.load(Ordering::Relaxed) == hash
        })
    }

    /// Records whether somebody waits for the release of the lock with this name.
    pub(super) fn record(&self, name: &str, is_awaited: bool) {
        if is_awaited {
            let (hash, place) = self.0.get_or_init(KeyPlaces::new).find(name);
            place.store(hash, Ordering::Relaxed);
        } else if let Some(keys) = self.0.get() {
            let (hash, place) = keys.find(name);
            if place.load(Ordering::Relaxed) == hash {
                place.store(0, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_awaited_until_nobody_waits_for_it() {
        let awaited = AwaitedKeys::default();
        awaited.record("a", false);
        assert!(awaited.0.get().is_none(), "no memory before there is a key");
        awaited.record("a", true);
        assert!(awaited.contains("a") && !awaited.contains("b"));
        awaited.record("b", false);
        assert!(awaited.contains("a"));
        awaited.record("a", false);
        assert!(!awaited.contains("a"));
    }

    /// A service may have more keys than there are places.
    #[test]
    fn a_key_that_displaces_another_one_is_not_taken_for_it() {
        let awaited = AwaitedKeys::default();
        let names: Vec<_> = (0..4 * PLACES).map(|number| number.to_string()).collect();
        for name in &names {
            awaited.record(name, true);
            assert!(awaited.contains(name));
        }
        let known = names.iter().filter(|name| awaited.contains(name)).count();
        assert!((PLACES / 2..=PLACES).contains(&known), "{known}");
    }
}
