//! The snapshot of a manager: its locks, its waiters and its nodes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::clock::Moment;
use crate::context::Context;
use crate::fencing_token::FencingToken;
use crate::guard::LockState;
use crate::key::LockKey;
use crate::lease::{HoldState, Holding};
use crate::lock::{Dialect, HolderId, Mode, OwnerLabel};
use crate::manager::LockManager;
use crate::node::{NodeReport, NodeStatus};

/// The locks, the waiters and the nodes of a manager at one moment, see [`LockManager::snapshot`].
///
/// With the feature `serde` it is written as JSON or another format: times as seconds since 1970, durations as milliseconds (the
/// fields whose names end in `_ms`). It contains the **keys** of locks, and names of servers: for operators, and not for clients.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// When the snapshot was taken, by the wall clock.
    #[cfg_attr(feature = "serde", serde(serialize_with = "form::time"))]
    pub taken: SystemTime,
    /// The process.
    pub process: ProcessSnapshot,
    /// The nodes, in the order of the configuration.
    pub nodes: Vec<NodeSnapshot>,
    /// The locks that the manager holds, in the order of their keys.
    pub held: Vec<HeldSnapshot>,
    /// The keys for which callers of the manager wait, in their order.
    pub waiting: Vec<WaitingSnapshot>,
    /// The last 100 locks that the manager has lost, the latest loss first. [`CounterSnapshot::lost`] counts all of them.
    pub lost: Vec<LostSnapshot>,
    /// The number of releases that the manager repeats in the background, until each node has confirmed it or the lease has run
    /// out there.
    pub pending_releases: u64,
    /// The counters since the start of the manager.
    pub counters: CounterSnapshot,
}

/// The process in a [`Snapshot`].
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ProcessSnapshot {
    /// The [label](crate::LockManagerBuilder::owner_label) of the manager; `None` if it is `off`.
    pub label: Option<OwnerLabel>,
    /// When the manager was created, by the wall clock.
    #[cfg_attr(feature = "serde", serde(serialize_with = "form::time"))]
    pub started: SystemTime,
    /// The version of this library.
    pub version: &'static str,
    /// Whether the manager [drains](LockManager::drain).
    pub is_draining: bool,
}

/// A node in a [`Snapshot`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeSnapshot {
    /// The name of the node, such as host and port.
    pub name: String,
    /// The status: in JSON `up`, `connecting`, or `down` with the `reason`.
    pub status: NodeStatus,
    /// The description by the node itself.
    pub report: NodeReport,
}

/// A held lock in a [`Snapshot`].
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HeldSnapshot {
    /// The keys. In JSON they have the prefix of the manager, as on the nodes ([`LockKey::name`]).
    #[cfg_attr(feature = "serde", serde(serialize_with = "form::keys"))]
    pub keys: Vec<LockKey>,
    /// The name, for tables and metrics: the template of the key, or that of
    /// [`named`](crate::LockRequest::named).
    pub name: Cow<'static, str>,
    /// The public id of the holder, as a [status](LockManager::status) shows it. Readers that share one lock of the nodes have
    /// the same id, and an entry each.
    #[cfg_attr(feature = "serde", serde(serialize_with = "form::text"))]
    pub id: HolderId,
    /// How many holders the lock may have.
    #[cfg_attr(feature = "serde", serde(serialize_with = "form::text"))]
    pub mode: Mode,
    /// How the lock is written on the nodes.
    #[cfg_attr(feature = "serde", serde(serialize_with = "form::dialect"))]
    pub dialect: Dialect,
    /// The state: [`Held`](LockState::Held), or [`Suspect`](LockState::Suspect) if the last extension was not confirmed or no
    /// quorum of nodes is up. In JSON `held` or `suspect`.
    #[cfg_attr(feature = "serde", serde(serialize_with = "form::state"))]
    pub state: LockState,
    /// Since when the process has the lock, by the wall clock. A hand-over inside of the process keeps it.
    #[cfg_attr(feature = "serde", serde(serialize_with = "form::time"))]
    pub since: SystemTime,
    /// How long the holder may rely on the lock, unless it is extended.
    #[cfg_attr(feature = "serde", serde(rename = "remaining_ms", serialize_with = "form::millis"))]
    pub remaining: Duration,
    /// The lease of the last extension, or of the acquisition.
    #[cfg_attr(feature = "serde", serde(rename = "lease_ms", serialize_with = "form::millis"))]
    pub lease: Duration,
    /// How often the lease was extended by this holder, renewals included.
    pub extensions: u32,
    /// The number of the holder, if it is [fenced](crate::LockRequest::fenced).
    pub fencing_number: Option<i64>,
    /// How many guards have the lock: more than one if a [scope](crate::scope()) has joined it.
    pub guards: usize,
}

/// A key for which callers wait, in a [`Snapshot`].
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WaitingSnapshot {
    /// The key. In JSON it has the prefix of the manager, as on the nodes ([`LockKey::name`]).
    #[cfg_attr(feature = "serde", serde(serialize_with = "form::key"))]
    pub key: LockKey,
    /// The name of the lock, as the first caller has given it.
    pub name: Cow<'static, str>,
    /// How many callers wait.
    pub waiters: usize,
    /// For how long the first has waited.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "longest_wait_ms", serialize_with = "form::millis")
    )]
    pub longest_wait: Duration,
    /// Whether the first caller asks the nodes at this moment. Otherwise it sleeps, or waits for a holder of this process.
    pub is_asking: bool,
    /// The label of the holder that the nodes have last named to a waiter of the key; `None` if they have named none.
    pub holder: Option<OwnerLabel>,
}

/// A lost lock in a [`Snapshot`].
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LostSnapshot {
    /// The key; of a lock of several keys, the first one. In JSON it has the prefix of the manager, as on the nodes
    /// ([`LockKey::name`]).
    #[cfg_attr(feature = "serde", serde(serialize_with = "form::key"))]
    pub key: LockKey,
    /// The name of the lock.
    pub name: Cow<'static, str>,
    /// The public id of the former holder.
    #[cfg_attr(feature = "serde", serde(serialize_with = "form::text"))]
    pub id: HolderId,
    /// When the process has found the loss, by the wall clock.
    #[cfg_attr(feature = "serde", serde(serialize_with = "form::time"))]
    pub at: SystemTime,
    /// The reason, as the log has it.
    pub reason: String,
}

/// The counters in a [`Snapshot`], since the start of the manager.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CounterSnapshot {
    /// The acquisitions by outcome, with the names that the metric `redlock_acquire_seconds` has.
    pub acquisitions: BTreeMap<&'static str, u64>,
    /// The locks that were lost before their release, or that their release found gone.
    pub lost: u64,
    /// The extensions that a quorum has confirmed, renewals included.
    pub extended: u64,
    /// The extensions that no quorum has confirmed.
    pub not_extended: u64,
    /// The holders that [`LockManager::break_lock`] has removed.
    pub broken: u64,
}

impl LockManager {
    /// Returns what this manager holds, waits for and knows of its nodes, without asking them. For a page or a route that only
    /// operators reach: it contains keys and names of servers.
    ///
    /// It is not taken at one moment: a lock that is acquired or released meanwhile may be in it or not. Other holders than this
    /// process are not in it; [`status`](Self::status) shows those of one key.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::LockManager;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManager::in_memory();
    /// let guard = locks.lock("order:42").acquire().await?;
    /// let snapshot = locks.snapshot();
    /// assert_eq!(snapshot.held[0].keys[0].as_str(), "order:42");
    /// assert_eq!(snapshot.counters.acquisitions["acquired"], 1);
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        let context = self.context();
        let Context { home, ballot, keeper, queues, owner, started, .. } = &**context;
        let taken = UNIX_EPOCH + ballot.clock.unix_time();
        let (now, has_quorum) = (ballot.clock.now(), ballot.has_quorum());
        // Short keys stand in the list itself, so that sorting looks at nothing else.
        let mut holdings = Vec::new();
        keeper.for_each(|held| holdings.push((held.attempt().key().clone(), held)));
        holdings.sort_unstable_by(|(key, held), (other_key, other)| {
            key.cmp(other_key).then_with(|| Arc::as_ptr(held).cmp(&Arc::as_ptr(other)))
        });
        // A lock that is renewed meanwhile comes twice.
        holdings.dedup_by(|(_, held), (_, other)| Arc::ptr_eq(held, other));
        let mut held = Vec::with_capacity(holdings.len());
        let shown = |holding| HeldSnapshot::of(holding, now, taken, has_quorum);
        held.extend(holdings.iter().filter_map(|(_, holding)| shown(holding)));
        let nodes = ballot.nodes.iter().map(|node| NodeSnapshot {
            name: node.name().to_string(),
            status: node.status().get(),
            report: node.report(),
        });
        let waiting = queues.waiting_keys().into_iter().map(|waiting| WaitingSnapshot {
            key: waiting.key,
            name: waiting.name,
            waiters: waiting.waiters,
            longest_wait: waiting.since.elapsed(),
            is_asking: waiting.is_asking,
            holder: waiting.holder,
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by(|one, other| one.key.cmp(&other.key));
        let lost = home.counters.losses().into_iter().map(|loss| LostSnapshot {
            key: loss.key,
            name: loss.name.text(),
            id: loss.holder,
            at: taken.checked_sub(now.since(loss.at)).unwrap_or(UNIX_EPOCH),
            reason: loss.reason,
        });
        Snapshot {
            taken,
            process: ProcessSnapshot {
                label: owner.label().cloned(),
                started: UNIX_EPOCH + *started,
                version: env!("CARGO_PKG_VERSION"),
                is_draining: self.is_draining(),
            },
            nodes: nodes.collect(),
            held,
            waiting,
            lost: lost.collect(),
            pending_releases: home.counters.pending_releases(),
            counters: CounterSnapshot {
                acquisitions: home.counters.acquisitions(),
                lost: home.counters.lost.get(),
                extended: home.counters.extended.get(),
                not_extended: home.counters.not_extended.get(),
                broken: home.counters.broken.get(),
            },
        }
    }
}

impl HeldSnapshot {
    /// Returns a lock that is still held.
    fn of(held: &Holding, now: Moment, taken: SystemTime, has_quorum: bool) -> Option<Self> {
        let remaining = held.remaining_at(now);
        if held.state() != HoldState::Held || remaining.is_zero() {
            return None;
        }
        let attempt = held.attempt();
        let (spec, lease) = (attempt.spec(), *attempt.lease());
        let age = now.since(lease.granted);
        Some(Self {
            keys: spec.keys().to_vec(),
            name: held.lock_name().text(),
            id: attempt.holder_id(),
            mode: spec.mode(),
            dialect: spec.dialect(),
            state: if attempt.last_extension.has_failed() || !has_quorum {
                LockState::Suspect
            } else {
                LockState::Held
            },
            since: taken.checked_sub(age).unwrap_or(UNIX_EPOCH),
            remaining,
            lease: lease.expire,
            extensions: held.extensions(),
            fencing_number: held.token().map(FencingToken::number),
            guards: held.guards(),
        })
    }
}

/// The form of the values in JSON.
#[cfg(feature = "serde")]
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
pub(super) mod form {
    use std::fmt::Display;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use serde::ser::{Serialize, SerializeMap, Serializer};

    use super::{Dialect, LockKey, LockState, NodeReport, NodeSnapshot, NodeStatus};
    use crate::error::NodeError;

    pub(super) fn time<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(as_seconds(*time))
    }

    pub(crate) fn as_seconds(time: SystemTime) -> u64 {
        time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
    }

    pub(super) fn millis<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(as_millis(*time))
    }

    pub(crate) fn as_millis(time: Duration) -> u64 {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn key<S: Serializer>(key: &LockKey, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(key.name())
    }

    pub(super) fn keys<S: Serializer>(keys: &[LockKey], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(keys.iter().map(LockKey::name))
    }

    pub(super) fn text<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(super) fn dialect<S: Serializer>(dialect: &Dialect, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(dialect.name())
    }

    pub(super) fn state<S: Serializer>(state: &LockState, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(if *state == LockState::Suspect { "suspect" } else { "held" })
    }

    impl Serialize for NodeSnapshot {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            let NodeReport { kind, quarantine, round_trip, servers, findings } = &self.report;
            let (status, reason) = match &self.status {
                NodeStatus::Up => ("up", None),
                NodeStatus::Down(reason) => ("down", Some(reason.to_string())),
                NodeStatus::Connecting => ("connecting", None),
            };
            let mut map = to.serialize_map(None)?;
            map.serialize_entry("name", &self.name)?;
            map.serialize_entry("kind", kind)?;
            map.serialize_entry("status", status)?;
            map.serialize_entry("reason", &reason)?;
            map.serialize_entry("quarantine", &quarantine.as_ref().map(ToString::to_string))?;
            let votes_in = quarantine.as_ref().and_then(NodeError::votes_in);
            map.serialize_entry("votes_in_ms", &votes_in.map(as_millis))?;
            map.serialize_entry("round_trip_us", &round_trip.map(|time| as_millis(time * 1000)))?;
            map.serialize_entry("servers", servers)?;
            map.serialize_entry("findings", findings)?;
            map.end()
        }
    }
}
