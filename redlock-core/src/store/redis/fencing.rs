//! The names of the fencing counters.
//!
//! A counter must lie in the slot of the lock that it numbers, because a script may only use keys of one
//! slot (Redis Cluster specification, "Hash tags"). A counter per lock would have to stay for ever, and
//! the number of locks has no bound. So each slot has one counter, with a generated hash tag: at most
//! 16,384 for each prefix. If the prefix itself has a hash tag, all of its keys lie in one slot, and share
//! one counter.
//!
//! The names are part of the wire format: they must not change.

use std::sync::LazyLock;

use crate::key::LockKey;

/// The number of slots of a Redis Cluster.
pub(super) const SLOTS: usize = 16_384;

/// For each slot the smallest number whose decimal text lies in the slot.
static TAGS: LazyLock<Box<[u32]>> = LazyLock::new(|| {
    let mut tags = vec![u32::MAX; SLOTS].into_boxed_slice();
    let (mut missing, mut number) = (SLOTS, 0_u32);
    while missing > 0 {
        let tag = &mut tags[slot_of(number.to_string().as_bytes())];
        if *tag == u32::MAX {
            *tag = number;
            missing -= 1;
        }
        number += 1;
    }
    tags
});

/// Returns a name in the slot of a lock that begins with the prefix of the lock.
pub(super) fn beside(key: &LockKey, kind: &str) -> String {
    let prefix = key.prefix();
    if hash_tag(prefix).is_some() {
        format!("{prefix}redlock:{kind}")
    } else {
        format!("{prefix}redlock:{kind}:{{{}}}", TAGS[slot(key.name())])
    }
}

/// Returns the names of the counters that number the holders of a lock of several keys, each once.
pub(super) fn counters(keys: &[LockKey]) -> Vec<String> {
    let mut counters: Vec<String> = keys.iter().map(|key| beside(key, "fencing")).collect();
    counters.sort_unstable();
    counters.dedup();
    counters
}

/// Returns the slot of a key.
pub(super) fn slot(key: &str) -> usize {
    slot_of(hash_tag(key).unwrap_or(key).as_bytes())
}

/// Returns the hash tag, which alone determines the slot of a key: the text between the first `{` and the
/// next `}`, unless that text is empty.
pub(super) fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

fn slot_of(text: &[u8]) -> usize {
    usize::from(crc16(text)) % SLOTS
}

/// Computes CRC-16/XMODEM: polynomial 0x1021, initial value 0.
fn crc16(text: &[u8]) -> u16 {
    text.iter().fold(0, |crc: u16, byte| {
        let index = usize::from((crc >> 8) as u8 ^ byte);
        (crc << 8) ^ TABLE[index]
    })
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn counter(key: &LockKey) -> String {
        counters(std::slice::from_ref(key)).remove(0)
    }

    fn key(prefix: &str, key: &str) -> LockKey {
        LockKey::new(key).unwrap().with_prefix(prefix)
    }

    /// The figures of the Redis Cluster specification, and of `CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, expected) in [
            ("foo", 12_182),
            ("{user1000}.following", 3443),
            ("{user1000}.followers", 3443),
            ("foo{}{bar}", 8363),
            ("foo{{bar}}zap", 4015),
            ("foo{bar}{zap}", 5061),
        ] {
            assert_eq!(slot(key), expected, "{key}");
        }
    }

    #[test]
    fn a_counter_lies_in_the_slot_of_its_lock() {
        for (prefix, locks) in
            [("", 200_000), ("shop:", 5000), ("shop}", 5000), ("{locks}:", 100), ("a{b}c{d}", 100)]
        {
            let (mut counters, mut slots) = (HashSet::new(), HashSet::new());
            for number in 0..locks {
                let lock = key(prefix, &format!("order:{number}"));
                let counter = counter(&lock);
                assert_eq!(slot(&counter), slot(lock.name()), "{lock} {counter}");
                slots.insert(slot(&counter));
                counters.insert(counter);
            }
            assert_eq!(counters.len(), slots.len(), "{prefix}");
            match prefix {
                "" => assert_eq!(slots.len(), SLOTS),
                _ => assert_eq!(slots.len() == 1, hash_tag(prefix).is_some(), "{prefix}"),
            }
        }
    }

    #[test]
    fn a_key_with_a_hash_tag_shares_the_counter_of_its_slot() {
        let tagged = key("shop:", "{order:42}:pay");
        assert_eq!(slot(tagged.name()), slot("order:42"));
        assert_eq!(slot(&counter(&tagged)), slot("order:42"));
    }

    /// Existing deployments have these names on their servers.
    #[test]
    fn the_names_of_counters_do_not_change() {
        assert_eq!(counter(&key("shop:", "order:42")), "shop:redlock:fencing:{9208}");
        assert_eq!(counter(&key("{locks}:", "order:42")), "{locks}:redlock:fencing");
    }
}
