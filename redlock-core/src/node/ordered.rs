//! Order for stores that do not keep it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify as Wake;

use super::{
    Action, Capabilities, Node, Notify, Op, ReplyFuture, Silence, StatusReceiver, Subscription,
};
use crate::lock::{LockSpec, Token};

/// Makes a node of a store that does not execute operations in the order of their first polls, such as a
/// pool of connections to a database: a release is sent only when the acquisitions with the same token
/// have been answered.
///
/// An acquisition whose future is dropped before the answer counts as answered.
///
/// [`LockManagerBuilder::node`](crate::LockManagerBuilder::node) wraps a node that is not
/// [ordered](Capabilities::ordered) by itself.
#[derive(Debug)]
pub struct Ordered<N> {
    node: Arc<N>,
    in_flight: InFlight,
}

/// The acquisitions that have not been answered.
#[derive(Clone, Default)]
struct InFlight(Arc<Mutex<HashMap<Token, Acquisitions>>>);

/// The acquisitions with one token that have not been answered. There may be two: a lock is set again on
/// a node that does not have it, while the node is late with its first acquisition.
#[derive(Default)]
struct Acquisitions {
    count: usize,
    all_answered: Arc<Wake>,
}

/// Ends an acquisition.
struct Answered {
    in_flight: InFlight,
    token: Token,
}

impl<N: Node> Ordered<N> {
    /// Wraps a node.
    pub fn new(node: N) -> Self {
        Self { node: Arc::new(node), in_flight: InFlight::default() }
    }
}

impl InFlight {
    fn begin(&self, token: Token) -> Answered {
        self.0.lock().entry(token).or_default().count += 1;
        Answered { in_flight: self.clone(), token }
    }

    async fn answered(&self, token: &Token) {
        loop {
            let Some(wake) = self.0.lock().get(token).map(|own| Arc::clone(&own.all_answered))
            else {
                return;
            };
            let answered = wake.notified();
            tokio::pin!(answered);
            answered.as_mut().enable();
            // Answered in between.
            if !self.0.lock().contains_key(token) {
                return;
            }
            answered.await;
        }
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        let mut in_flight = self.in_flight.0.lock();
        let Entry::Occupied(mut acquisitions) = in_flight.entry(self.token) else { return };
        acquisitions.get_mut().count -= 1;
        if acquisitions.get().count == 0 {
            acquisitions.remove().all_answered.notify_waiters();
        }
    }
}

impl<N: Node> Node for Ordered<N> {
    fn name(&self) -> &Arc<str> {
        self.node.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: true, ..self.node.capabilities() }
    }

    fn call(&self, op: Op) -> ReplyFuture {
        let (in_flight, token) = (self.in_flight.clone(), op.token);
        match op.action {
            Action::Acquire { .. } => {
                let reply = self.node.call(op);
                ReplyFuture::new(async move {
                    let _answered = in_flight.begin(token);
                    reply.await
                })
            }
            Action::Release { .. } => {
                let node = Arc::clone(&self.node);
                ReplyFuture::new(async move {
                    in_flight.answered(&token).await;
                    node.call(op).await
                })
            }
            Action::Extend { .. } | Action::Confirm { .. } => self.node.call(op),
        }
    }

    fn subscribe(&self, spec: &Arc<LockSpec>, notify: Notify) -> Subscription {
        self.node.subscribe(spec, notify)
    }

    fn status(&self) -> StatusReceiver {
        self.node.status()
    }

    fn silence(&self, limit: Duration, waited: Duration) -> Silence {
        self.node.silence(limit, waited)
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlight").field(&self.0.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::key::LockKey;
    use crate::lock::{Dialect, LockName, Mode};
    use crate::node::deferring::DeferringNode;

    /// The operations of one attempt to hold a lock.
    struct Attempt(Arc<LockSpec>, Token);

    impl Attempt {
        fn new(key: &str) -> Self {
            let name = LockName::new("", &LockKey::new(key).unwrap());
            let spec = LockSpec::new(name, Mode::Exclusive, Dialect::Plain);
            Self(Arc::new(spec), Token::random(Dialect::Plain))
        }

        /// Calls the node, and polls the future once.
        fn send(&self, node: &impl Node, action: Action) -> ReplyFuture {
            let mut reply = node.call(Op::new(&self.0, self.1, action));
            assert!((&mut reply).now_or_never().is_none());
            reply
        }

        fn acquire(&self, node: &impl Node) -> ReplyFuture {
            let lease = Duration::from_secs(5);
            self.send(node, Action::Acquire { lease, fenced: false, lookup: true })
        }

        fn release(&self, node: &impl Node) -> ReplyFuture {
            self.send(node, Action::Release { min_hold: None })
        }
    }

    fn is_under_way(reply: &mut ReplyFuture) -> bool {
        reply.now_or_never().is_none()
    }

    #[test]
    fn a_release_waits_for_its_own_acquisition_and_for_no_other() {
        let (node, mut sent) = DeferringNode::new();
        let (store, node) = (node.store.clone(), Ordered::new(node));
        let [slow, fast, idle] = ["slow", "fast", "idle"].map(Attempt::new);
        let mut slow_acquisition = slow.acquire(&node);
        let mut fast_acquisition = fast.acquire(&node);
        let (slow_sent, fast_sent) = (sent.try_recv().unwrap(), sent.try_recv().unwrap());
        let mut slow_release = slow.release(&node);
        let mut fast_release = fast.release(&node);
        sent.try_recv().unwrap_err();

        // Nothing of this attempt is under way.
        let _idle_release = idle.release(&node);
        assert!(sent.try_recv().unwrap().is_release());

        fast_sent.execute();
        assert!(!is_under_way(&mut fast_acquisition));
        assert!(is_under_way(&mut slow_release) && is_under_way(&mut fast_release));
        assert_eq!(sent.try_recv().unwrap().op.token, fast.1);
        sent.try_recv().unwrap_err();

        slow_sent.execute();
        assert!(!is_under_way(&mut slow_acquisition));
        assert!(is_under_way(&mut slow_release));
        let release = sent.try_recv().unwrap();
        assert_eq!(release.op.token, slow.1);
        release.execute();
        assert!(!is_under_way(&mut slow_release));
        assert_eq!(store.time_to_live("slow"), None);
        assert!(node.in_flight.0.lock().is_empty());
    }

    /// The manager is shut down, or its last runtime ends: nobody polls the acquisition any more.
    #[test]
    fn a_dropped_acquisition_does_not_block_the_release() {
        let (node, mut sent) = DeferringNode::new();
        let node = Ordered::new(node);
        let attempt = Attempt::new("a");
        let acquisition = attempt.acquire(&node);
        assert!(!sent.try_recv().unwrap().is_release());
        let mut release = attempt.release(&node);
        sent.try_recv().unwrap_err();
        drop(acquisition);
        assert!(is_under_way(&mut release));
        assert!(sent.try_recv().unwrap().is_release());
    }

    /// The node is late with the acquisition, has denied an extension, and gets the lock once more.
    #[test]
    fn a_release_waits_for_both_acquisitions_with_its_token() {
        let (node, mut sent) = DeferringNode::new();
        let node = Ordered::new(node);
        let attempt = Attempt::new("a");
        let mut acquisitions = [attempt.acquire(&node), attempt.acquire(&node)];
        let on_the_way = [sent.try_recv().unwrap(), sent.try_recv().unwrap()];
        let mut release = attempt.release(&node);
        for (acquisition, on_the_way) in acquisitions.iter_mut().zip(on_the_way) {
            assert!(is_under_way(&mut release));
            sent.try_recv().unwrap_err();
            on_the_way.execute();
            assert!(!is_under_way(acquisition));
        }
        assert!(is_under_way(&mut release));
        assert!(sent.try_recv().unwrap().is_release());
    }

    /// The two futures belong to different tasks.
    #[tokio::test]
    async fn the_answer_of_the_acquisition_wakes_the_release() {
        let (node, mut sent) = DeferringNode::new();
        let node = Ordered::new(node);
        let attempt = Attempt::new("a");
        let acquisition = tokio::spawn(attempt.acquire(&node));
        let on_the_way = sent.recv().await.unwrap();
        let release = tokio::spawn(attempt.release(&node));
        on_the_way.execute();
        acquisition.await.unwrap();
        let patience = Duration::from_secs(10);
        tokio::time::timeout(patience, sent.recv()).await.unwrap().unwrap().execute();
        release.await.unwrap();
    }
}
