//! Signals a waiter that a lock was released.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};

use crate::lock::{LockSpec, Mode};
use crate::node::{Node, Notify, Ready, Subscription};
use crate::quorum::quorum;

/// Notifies a waiter when a quorum of nodes has published the release of a lock.
///
/// A release on fewer nodes proves nothing: another caller may be cleaning up after an attempt.
pub(crate) struct ReleaseSignal {
    /// Whether the nodes notify callers that wait for a shared lock. Some releases concern only these callers, others only
    /// callers that wait for an exclusive lock.
    is_shared: bool,
    /// Whether a quorum of subscriptions is in effect.
    in_effect: AtomicBool,
    published: Arc<PublishedReleases>,
    /// Unsubscribes when the signal is dropped.
    _subscriptions: Vec<Subscription>,
}

struct PublishedReleases {
    /// How many releases each node has published.
    by_node: Mutex<ReleaseCounts>,
    published: tokio::sync::Notify,
}

/// The number of releases that each node has published at a moment.
pub(crate) type ReleaseCounts = SmallVec<[u64; 5]>;

impl ReleaseSignal {
    /// Subscribes on every node. The returned futures, one for each node, complete when the subscription is
    /// in effect, so that no later release is missed.
    pub(super) fn subscribe(nodes: &[Arc<dyn Node>], spec: &LockSpec) -> (Self, Vec<Ready>) {
        let published = Arc::new(PublishedReleases {
            by_node: Mutex::new(smallvec![0; nodes.len()]),
            published: tokio::sync::Notify::new(),
        });
        let mut ready = Vec::with_capacity(nodes.len());
        let subscriptions = nodes
            .iter()
            .enumerate()
            .map(|(index, node)| {
                let published = Arc::clone(&published);
                let notify: Notify = Arc::new(move || published.record_publication(index));
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

    /// Waits until a quorum of subscriptions is in effect, at most for `timeout`. The remaining nodes are not a quorum, so
    /// they alone cannot publish a release. After `timeout` the signal counts as in effect all the same, so that a waiter
    /// beside a slow subscription polls instead of subscribing again and again.
    pub(super) async fn take_effect(&self, ready: Vec<Ready>, timeout: Duration) {
        quorum_ready(ready, timeout).await;
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
        self.published.by_node.lock().clone()
    }

    /// Returns whether a quorum of nodes has published a release since the counts `before`.
    pub(crate) fn has_fired(&self, before: &ReleaseCounts) -> bool {
        self.published.is_quorum(before)
    }

    /// Waits until a quorum of nodes has published a release since the counts `before`, at most for `timeout`.
    /// Returns whether a quorum has.
    pub(crate) async fn notified(&self, before: &ReleaseCounts, timeout: Duration) -> bool {
        let quorum_reached = async {
            loop {
                let changed = self.published.published.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.published.is_quorum(before) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(timeout, quorum_reached).await.is_ok()
    }
}

impl PublishedReleases {
    fn record_publication(&self, index: usize) {
        self.by_node.lock()[index] += 1;
        self.published.notify_waiters();
    }

    fn is_quorum(&self, before: &ReleaseCounts) -> bool {
        let by_node = self.by_node.lock();
        let published = by_node.iter().zip(before).filter(|(count, before)| count > before);
        published.count() >= quorum(by_node.len())
    }
}

/// Waits until a quorum of subscriptions is in effect, at most for `timeout`.
async fn quorum_ready(mut ready: Vec<Ready>, timeout: Duration) {
    let nodes = ready.len();
    let quorum_subscribed = std::future::poll_fn(|cx| {
        ready.retain_mut(|ready| ready.as_mut().poll(cx).is_pending());
        if nodes - ready.len() >= quorum(nodes) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    });
    let _ = tokio::time::timeout(timeout, quorum_subscribed).await;
}

impl fmt::Debug for ReleaseSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReleaseSignal")
    }
}
