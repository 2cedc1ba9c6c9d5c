//! Recognizes promoted masters of a cluster.
//!
//! A replica that becomes a master may lack the last writes of the former master, and the former master may grant
//! locks until it notices its isolation. So a promotion counts as a restart, with the failover margin added.
//!
//! A server reports no time of its promotion. It reports two replication IDs (`INFO replication`): its own, which is
//! new after each promotion, and that of its former master, which is zero on a server that was never a replica. So the
//! gate closes when this node first connects to a master with a replication ID that it has not met. That is later
//! than the promotion, so that the gate never opens too early. A node that connects after a failover cannot know
//! when the promotion was, and waits for the whole time too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::identity::{Identity, LagSetting};

/// The highest number of replication IDs. A cluster has at most 64 masters, and each failover makes one ID. A server could
/// otherwise fill the memory by reporting another ID on each connection.
const MAX_MET: usize = 1024;

/// The promotions that a node has seen among the masters of its cluster.
#[derive(Debug, Default)]
pub(crate) struct Promotions {
    /// The replication IDs of promoted masters, and when this node met them first.
    met: Mutex<HashMap<String, Instant>>,
    /// Whether the node was up before.
    has_started: AtomicBool,
    /// The longest margin of the masters.
    longest_margin: Mutex<Option<Duration>>,
}

impl Promotions {
    /// Records that the node is up for the first time. From now on it notices failovers.
    pub(crate) fn record_start(&self) {
        self.has_started.store(true, Ordering::Release);
    }

    /// Records a new connection to a master. Returns whether the master was promoted while the node was up.
    pub(super) fn record(&self, identity: &Identity) -> bool {
        let mut longest_margin = self.longest_margin.lock();
        *longest_margin = (*longest_margin).max(Some(LagSetting::CLUSTER.margin(identity.max_lag)));
        drop(longest_margin);
        let id = identity.replication.as_ref().and_then(|replication| replication.promoted_id());
        id.is_some_and(|id| self.meet(id).1) && self.has_started.load(Ordering::Acquire)
    }

    /// Returns the time at which a master was promoted, or a later one. `None` if it was never a replica. A server that
    /// does not report its replication counts as promoted now.
    pub(super) fn promoted_since(&self, identity: &Identity) -> Option<Instant> {
        match &identity.replication {
            Some(replication) => replication.promoted_id().map(|id| self.meet(id).0),
            None => Some(Instant::now()),
        }
    }

    /// Returns whether the node has met a promoted master with this replication ID.
    pub(super) fn has_met(&self, id: &str) -> bool {
        self.met.lock().contains_key(id)
    }

    /// Returns the time during which a former master may grant locks, if nothing is known about that master.
    pub(crate) fn longest_margin(&self) -> Duration {
        self.longest_margin.lock().unwrap_or_else(|| LagSetting::CLUSTER.margin(None))
    }

    /// Returns when this node met a promoted master for the first time, and whether that is now. If there are too many, the
    /// first one is forgotten: if it is met again, it counts as promoted then.
    fn meet(&self, id: &str) -> (Instant, bool) {
        let mut met = self.met.lock();
        if let Some(since) = met.get(id) {
            return (*since, false);
        }
        if met.len() >= MAX_MET
            && let Some(first) = met.iter().min_by_key(|(_, since)| **since)
        {
            let first = first.0.clone();
            met.remove(&first);
        }
        let now = Instant::now();
        met.insert(id.to_owned(), now);
        (now, true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::Replication;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_promotion_counts_from_the_first_meeting() {
        let promotions = Promotions::default();
        let master = |id: &str, was_replica| Identity {
            replication: Some(Replication {
                id: Some(id.to_owned()),
                was_replica,
                ..Replication::default()
            }),
            ..Identity::default()
        };
        assert_eq!(promotions.promoted_since(&master("aa", false)), None);
        let first = promotions.promoted_since(&master("aa", true)).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(promotions.promoted_since(&master("aa", true)), Some(first));
        assert_eq!(promotions.promoted_since(&master("bb", true)), Some(Instant::now()));
        assert_eq!(promotions.promoted_since(&Identity::default()), Some(Instant::now()));
        assert_eq!(promotions.longest_margin(), Duration::from_secs(16));
    }

    /// Any of the masters may be the one that was cut off.
    #[test]
    fn the_longest_margin_is_that_of_all_masters() {
        let promotions = Promotions::default();
        let margin = |seconds| LagSetting::CLUSTER.margin(Some(Duration::from_secs(seconds)));
        for (seconds, longest) in [(20, 20), (1, 20), (30, 30)] {
            let max_lag = Some(Duration::from_secs(seconds));
            promotions.record(&Identity { max_lag, ..Identity::default() });
            assert_eq!(promotions.longest_margin(), margin(longest));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_with_ever_new_replication_ids_does_not_fill_the_memory() {
        let promotions = Promotions::default();
        for number in 0..=MAX_MET {
            assert_eq!(promotions.meet(&number.to_string()), (Instant::now(), true));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(promotions.met.lock().len(), MAX_MET);
        assert!(!promotions.has_met("0"));
        let last = Instant::now() - Duration::from_secs(1);
        assert_eq!(promotions.meet(&MAX_MET.to_string()), (last, false));
    }
}
