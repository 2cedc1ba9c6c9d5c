//! What a waiter is woken by.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::ballot::quorum;
use crate::node::{Listening, LockName, Node, Ready, Ring};

/// Rings when a quorum of nodes has announced the release of a lock.
///
/// Fewer say nothing: that may be the remains of another caller's attempt being cleaned up.
pub(crate) struct Bell {
    announcements: Arc<Announcements>,
    /// Ends the listening with the bell.
    _listening: Vec<Listening>,
}

struct Announcements {
    by_node: Mutex<Vec<bool>>,
    rung: Notify,
}

impl Bell {
    /// Begins to listen. The second value resolves when no later release is missed.
    pub(super) fn listen(nodes: &[Arc<dyn Node>], name: &LockName) -> (Self, Vec<Ready>) {
        let announcements = Arc::new(Announcements {
            by_node: Mutex::new(vec![false; nodes.len()]),
            rung: Notify::new(),
        });
        let mut ready = Vec::with_capacity(nodes.len());
        let listening = nodes
            .iter()
            .enumerate()
            .map(|(index, node)| {
                let announcements = Arc::clone(&announcements);
                let ring: Ring = Arc::new(move || announcements.announce(index));
                let (listening, heard) = node.listen(name, ring);
                ready.push(heard);
                listening
            })
            .collect();
        (Self { announcements, _listening: listening }, ready)
    }

    /// Forgets what was announced so far.
    pub(crate) fn reset(&self) {
        self.announcements.by_node.lock().fill(false);
    }

    /// Waits until a quorum of nodes has announced a release since the last reset, at most for
    /// `timeout`; returns whether they have.
    pub(crate) async fn rung(&self, timeout: Duration) -> bool {
        let rung = async {
            loop {
                let notified = self.announcements.rung.notified();
                tokio::pin!(notified);
                notified.as_mut().enable();
                if self.announcements.is_quorum() {
                    return;
                }
                notified.await;
            }
        };
        tokio::time::timeout(timeout, rung).await.is_ok()
    }
}

impl Announcements {
    fn announce(&self, index: usize) {
        self.by_node.lock()[index] = true;
        if self.is_quorum() {
            self.rung.notify_waiters();
        }
    }

    fn is_quorum(&self) -> bool {
        let by_node = self.by_node.lock();
        by_node.iter().filter(|announced| **announced).count() >= quorum(by_node.len())
    }
}

/// Waits until so many are ready that a quorum cannot announce anything unheard, at most for
/// `timeout`.
pub(super) async fn quorum_ready(mut ready: Vec<Ready>, timeout: Duration) {
    let nodes = ready.len();
    let all_but_enough = std::future::poll_fn(|cx| {
        ready.retain_mut(|ready| ready.as_mut().poll(cx).is_pending());
        if nodes - ready.len() >= quorum(nodes) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    });
    let _ = tokio::time::timeout(timeout, all_but_enough).await;
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bell")
    }
}
