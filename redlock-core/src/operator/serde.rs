//! The status of a lock and the result of a break as JSON and other formats. The names and the values are stable.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::snapshot::form::{as_millis, as_seconds};
use super::{Broken, Holder, KeyState, LockStatus, NodeAnswer};
use crate::node::FoundKind;

/// Times are seconds since 1970, and fields whose names end in `_ms` are milliseconds. `key_on_nodes`
/// has the prefix of the manager.
impl Serialize for LockStatus {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("key", self.key().as_str())?;
        map.serialize_entry("key_on_nodes", self.key().name())?;
        map.serialize_entry("state", &self.state())?;
        map.serialize_entry("holders", self.holders())?;
        map.serialize_entry("waiting", &self.waiting_writers())?;
        map.serialize_entry("local_waiters", &self.local_waiters())?;
        map.serialize_entry("longest_wait_ms", &self.longest_wait().map(as_millis))?;
        map.serialize_entry("nodes", self.nodes())?;
        map.end()
    }
}

/// As one word, such as `free`.
impl Serialize for KeyState {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(match self {
            Self::Free => "free",
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Split => "split",
            Self::Foreign => "foreign",
        })
    }
}

/// As a part of a [`LockStatus`].
impl Serialize for Holder {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("id", &self.id().to_string())?;
        map.serialize_entry("owner", &self.label().map(ToString::to_string))?;
        map.serialize_entry("is_own", &self.is_own())?;
        map.serialize_entry("since", &self.since().map(as_seconds))?;
        map.serialize_entry("remaining_ms", &self.remaining().map(as_millis))?;
        map.serialize_entry("nodes", &self.nodes())?;
        map.end()
    }
}

/// As a part of a [`LockStatus`].
impl Serialize for NodeAnswer {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        /// How many holders are named.
        const NAMED: usize = 20;
        let found = self.found();
        let kind = found.map(|found| match found.kind {
            FoundKind::Free => "free",
            FoundKind::Exclusive => "exclusive",
            FoundKind::Shared => "shared",
            FoundKind::Foreign(_) => "foreign",
        });
        let holders = found.map_or(&[][..], |found| &found.holders);
        let ids: Vec<_> = holders.iter().take(NAMED).map(|holder| holder.id.to_string()).collect();
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("name", self.name())?;
        map.serialize_entry("state", &kind)?;
        map.serialize_entry("holders", &holders.len())?;
        map.serialize_entry("ids", &ids)?;
        map.serialize_entry("error", &self.error().map(ToString::to_string))?;
        map.serialize_entry("quarantine", &self.quarantine().map(ToString::to_string))?;
        map.end()
    }
}

/// With the vote of each node by its name.
impl Serialize for Broken {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let votes = self.votes().iter();
        let votes = votes.map(|(node, vote)| (node, vote.map(ToString::to_string)));
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("may_be_valid_for_ms", &self.may_be_valid_for().map(as_millis))?;
        map.serialize_entry("votes", &votes.collect::<std::collections::BTreeMap<_, _>>())?;
        map.end()
    }
}
