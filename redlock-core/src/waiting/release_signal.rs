//! Signals a waiter that a lock was released.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use smallvec::{SmallVec, smallvec};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::lock::{LockSpec, Mode};
use crate::node::{Node, Notify, Ready, Subscription};
use crate::quorum::quorum;

/// Notifies a waiter when a quorum of nodes has published the release of a lock.
///
/// A release on fewer nodes proves nothing: another caller may be cleaning up after an attempt.
#[derive(Debug)]
pub(crate) struct ReleaseSignal {
    /// Whether the nodes notify callers that wait for a shared lock. Some releases concern only these callers, others only
    /// callers that wait for an exclusive lock.
    is_shared: bool,
    /// Whether a quorum of subscriptions is in effect.
    in_effect: AtomicBool,
    /// How many releases each node has published.
    published: watch::Sender<ReleaseCounts>,
    /// Unsubscribes when the signal is dropped.
    _subscriptions: Vec<Subscription>,
}

/// The number of releases that each node has published at a moment.
pub(crate) type ReleaseCounts = SmallVec<[u64; 5]>;

impl ReleaseSignal {
    /// Subscribes on every node. The returned futures, one for each node, complete when the subscription is
    /// in effect, so that no later release is missed.
    pub(super) fn subscribe(nodes: &[Arc<dyn Node>], spec: &LockSpec) -> (Self, Vec<Ready>) {
        let published = watch::Sender::new(smallvec![0; nodes.len()]);
        let mut ready = Vec::with_capacity(nodes.len());
        let subscriptions = nodes
            .iter()
            .enumerate()
            .map(|(index, node)| {
                let published = published.clone();
                let notify: Notify =
                    Arc::new(move || published.send_modify(|counts| counts[index] += 1));
                let mut subscription = node.subscribe(spec, notify);
                let in_effect = || Box::pin(std::future::ready(())) as Ready;
                ready.push(subscription.take_ready().unwrap_or_else(in_effect));
                subscription
            })
            .collect();
        let is_shared = spec.mode().is_shared();
        let in_effect = AtomicBool::new(false);
        (Self { is_shared, in_effect, published, _subscriptions: subscriptions }, ready)
    }

    /// Waits until a quorum of subscriptions is in effect, at most for `at_most`. The remaining nodes are not a quorum, so
    /// they alone cannot publish a release. After `at_most` the signal counts as in effect all the same, so that a waiter
    /// beside a slow subscription polls instead of subscribing again and again.
    pub(super) async fn take_effect(&self, ready: Vec<Ready>, at_most: Duration) {
        let quorum = quorum(ready.len());
        let ready: FuturesUnordered<_> = ready.into_iter().collect();
        let _ = timeout(at_most, ready.take(quorum).for_each(|()| async {})).await;
        self.in_effect.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`take_effect`](Self::take_effect) has ended.
    pub(super) fn is_in_effect(&self) -> bool {
        self.in_effect.load(Ordering::Relaxed)
    }

    /// Returns whether the signal notifies callers that wait for a lock of this mode.
    pub(super) fn serves(&self, mode: Mode) -> bool {
        self.is_shared == mode.is_shared()
    }

    /// Returns how many releases each node has published so far. Several waiters may use the signal, each with counts of
    /// its own.
    pub(crate) fn counts(&self) -> ReleaseCounts {
        self.published.borrow().clone()
    }

    /// Returns whether a quorum of nodes has published a release since the counts `before`.
    pub(crate) fn has_fired(&self, before: &ReleaseCounts) -> bool {
        is_quorum(&self.published.borrow(), before)
    }

    /// Waits until a quorum of nodes has published a release since the counts `before`.
    pub(super) async fn fired(&self, before: &ReleaseCounts) {
        // The sender is in `self`.
        let _ = self.published.subscribe().wait_for(|counts| is_quorum(counts, before)).await;
    }
}

/// Returns whether a quorum of nodes has published a release between these counts.
fn is_quorum(counts: &ReleaseCounts, before: &ReleaseCounts) -> bool {
    let published = counts.iter().zip(before).filter(|(count, before)| count > before);
    published.count() >= quorum(counts.len())
}
