//! Keeps the order of operations on stores that do not keep it.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared, join_all};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::{
    Action, Capabilities, FairOrder, Inspection, KeyRules, LossHints, Node, NodeReport,
    NodeSettings, Notify, Op, Remote, ReplyFuture, StatusReceiver, Subscription, Turns,
};
use crate::lock::{LockSpec, Token};

/// Wraps a node whose store does not execute operations in the order of their first polls, such as a pool
/// of connections to a database.
///
/// The wrapper sends a release only after it has the replies to all acquisitions and extensions with the
/// same token. It waits for extensions because a release with [`min_hold`](Action::Release) keeps the lock
/// for that time: an extension that the store executes after such a release would prolong the lock.
///
/// The release does not wait for an operation whose future was dropped before the release was called. If
/// the store executes that operation after the release, the lock stays until its lease runs out. The
/// manager drops such a future only when the manager is shut down, or when its last runtime ends.
///
/// [`LockManagerBuilder::node`](crate::LockManagerBuilder::node) adds this wrapper to a node that is not
/// [ordered](Capabilities::ordered).
#[derive(Debug)]
pub struct Ordered<N> {
    node: Arc<N>,
    pending_ops: PendingOps,
}

/// The operations without a reply that a release with the same token waits for.
type PendingOps = Arc<Mutex<HashMap<Token, Vec<WeakShared<ReplyFuture>>>>>;

/// An operation without a reply. A release with the same token polls the reply, too.
struct PendingOp {
    pending_ops: PendingOps,
    token: Token,
    reply: Shared<ReplyFuture>,
}

impl<N: Node> Ordered<N> {
    /// Wraps a node.
    pub fn new(node: N) -> Self {
        Self { node: Arc::new(node), pending_ops: PendingOps::default() }
    }
}

/// Removes the operation from the list for which later releases wait.
impl Drop for PendingOp {
    fn drop(&mut self) {
        let mut pending_ops = self.pending_ops.lock();
        let Some(of_token) = pending_ops.get_mut(&self.token) else { return };
        let is_other = |other: Shared<ReplyFuture>| !other.ptr_eq(&self.reply);
        of_token.retain(|other| other.upgrade().is_some_and(is_other));
        if of_token.is_empty() {
            pending_ops.remove(&self.token);
        }
    }
}

impl<N: Node> Node for Ordered<N> {
    delegate! { node;
        fn name(&self) -> &Arc<str>;
        fn store_id(&self) -> Option<Arc<str>>;
        fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription;
        fn status(&self) -> StatusReceiver;
        fn remote(&self) -> Option<&dyn Remote>;
        fn turns(&self) -> Option<&dyn Turns>;
        // A process sends the next operation after the reply to the last one. If that comes too late, a ticket may enter after it
        // has left: then it is removed as soon as it is the first one.
        fn fair_order(&self) -> Option<&dyn FairOrder>;
        // An answer about a holder does not depend on its order among the operations of this process.
        fn inspection(&self) -> Option<&dyn Inspection>;
        fn loss_hints(&self) -> Option<&dyn LossHints>;
        fn report(&self) -> NodeReport;
        fn key_rules(&self) -> Option<&dyn KeyRules>;
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: true, ..self.node.capabilities() }
    }

    fn start(&self, runtime: &Handle, settings: &NodeSettings) {
        self.node.start(runtime, settings);
    }

    fn call(&self, op: Op) -> ReplyFuture {
        let (pending_ops, token) = (Arc::clone(&self.pending_ops), op.token);
        match op.action {
            Action::Acquire { .. } | Action::Extend { .. } | Action::Downgrade => {
                let reply = self.node.call(op);
                // The reply is ready, so no release has to wait for it.
                if reply.as_ready().is_some() {
                    return reply;
                }
                ReplyFuture::new(async move {
                    let reply = reply.shared();
                    pending_ops.lock().entry(token).or_default().extend(reply.downgrade());
                    let pending_op = PendingOp { pending_ops, token, reply };
                    pending_op.reply.clone().await
                })
            }
            Action::Release { .. } => {
                let node = Arc::clone(&self.node);
                ReplyFuture::new(async move {
                    let earlier = pending_ops.lock().get(&token).cloned().unwrap_or_default();
                    join_all(earlier.iter().filter_map(WeakShared::upgrade)).await;
                    node.call(op).await
                })
            }
            Action::Confirm { .. } | Action::Withdraw { .. } => self.node.call(op),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::key::LockKey;
    use crate::lock::{Dialect, Mode};
    use crate::node::Ask;
    use crate::node::deferring::DeferringNode;
    use crate::store::memory::MemoryNode;

    /// The operations of one attempt to hold a lock.
    struct Attempt(LockSpec, Token);

    impl Attempt {
        fn new(key: &str) -> Self {
            let key = LockKey::new(key).unwrap();
            let spec = LockSpec::new(key, Mode::Exclusive, Dialect::Plain);
            Self(spec, Token::random(Dialect::Plain))
        }

        /// Calls the node, and polls the future once.
        fn send(&self, node: &impl Node, action: Action) -> ReplyFuture {
            let mut reply = node.call(Op::new(&self.0, self.1, action));
            assert!((&mut reply).now_or_never().is_none());
            reply
        }

        fn acquire(&self, node: &impl Node) -> ReplyFuture {
            let lease = Duration::from_secs(5);
            self.send(node, Action::Acquire { lease, fenced: false, ask: Ask::FIRST })
        }

        fn release(&self, node: &impl Node) -> ReplyFuture {
            self.send(node, Action::Release { min_hold: None })
        }
    }

    fn is_pending(reply: &mut ReplyFuture) -> bool {
        reply.now_or_never().is_none()
    }

    #[test]
    fn the_wrapper_offers_what_its_node_offers() {
        let offers = |node: &dyn Node| {
            [node.remote().is_some(), node.turns().is_some(), node.fair_order().is_some()]
        };
        let memory = MemoryNode::new();
        assert_eq!(offers(&memory), [false, true, true]);
        assert_eq!(offers(&Ordered::new(memory)), [false, true, true]);
        let (remote, _sent) = DeferringNode::new();
        assert_eq!(offers(&remote), [true, false, false]);
        assert_eq!(offers(&Ordered::new(remote)), [true, false, false]);
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

        // This attempt has no pending operation.
        let _idle_release = idle.release(&node);
        assert!(sent.try_recv().unwrap().is_release());

        fast_sent.execute();
        assert!(!is_pending(&mut fast_acquisition));
        assert!(is_pending(&mut slow_release) && is_pending(&mut fast_release));
        assert_eq!(sent.try_recv().unwrap().op.token, fast.1);
        sent.try_recv().unwrap_err();

        slow_sent.execute();
        assert!(!is_pending(&mut slow_acquisition));
        assert!(is_pending(&mut slow_release));
        let release = sent.try_recv().unwrap();
        assert_eq!(release.op.token, slow.1);
        release.execute();
        assert!(!is_pending(&mut slow_release));
        assert_eq!(store.time_to_live("slow"), None);
        assert!(node.pending_ops.lock().is_empty());
    }

    /// When the manager is shut down or its last runtime ends, no task polls the acquisition any
    /// more.
    #[test]
    fn a_dropped_acquisition_does_not_block_the_release() {
        let (node, mut sent) = DeferringNode::new();
        let node = Ordered::new(node);
        let attempt = Attempt::new("a");
        let acquisition = attempt.acquire(&node);
        assert!(!sent.try_recv().unwrap().is_release());
        drop(acquisition);
        let _release = attempt.release(&node);
        assert!(sent.try_recv().unwrap().is_release());
        assert!(node.pending_ops.lock().is_empty());
    }

    #[test]
    fn a_release_polls_an_acquisition_that_is_dropped_or_not_polled_meanwhile() {
        for is_dropped in [false, true] {
            let (node, mut sent) = DeferringNode::new();
            let node = Ordered::new(node);
            let attempt = Attempt::new("a");
            let acquisition = attempt.acquire(&node);
            let on_the_way = sent.try_recv().unwrap();
            let mut release = attempt.release(&node);
            let _not_polled = (!is_dropped).then_some(acquisition);
            assert!(is_pending(&mut release));
            sent.try_recv().unwrap_err();
            on_the_way.execute();
            assert!(is_pending(&mut release));
            assert!(sent.try_recv().unwrap().is_release());
        }
    }

    /// If the release did not wait, the extension would prolong a lock that stays for its
    /// `min_hold`.
    #[test]
    fn a_release_waits_for_the_extension_before_it() {
        let (node, mut sent) = DeferringNode::new();
        let (store, node) = (node.store.clone(), Ordered::new(node));
        let attempt = Attempt::new("a");
        let mut acquisition = attempt.acquire(&node);
        sent.try_recv().unwrap().execute();
        assert!(!is_pending(&mut acquisition));
        let [short, long] = [10, 300].map(Duration::from_secs);
        let _extension = attempt.send(&node, Action::Extend { lease: long });
        let extend = sent.try_recv().unwrap();
        let mut release = attempt.send(&node, Action::Release { min_hold: Some(short) });
        sent.try_recv().unwrap_err();
        extend.execute();
        assert!(is_pending(&mut release));
        sent.try_recv().unwrap().execute();
        assert!(!is_pending(&mut release));
        assert!(store.time_to_live("a").unwrap() <= short);
    }

    /// The node is late with the acquisition, denies an extension, and is sent the lock a second
    /// time.
    #[test]
    fn a_release_waits_for_both_acquisitions_with_its_token() {
        for (answered_first, is_released_between) in [(0, false), (1, false), (0, true), (1, true)]
        {
            let (node, mut sent) = DeferringNode::new();
            let node = Ordered::new(node);
            let attempt = Attempt::new("a");
            let mut acquisitions = vec![attempt.acquire(&node), attempt.acquire(&node)];
            let mut on_the_way = vec![sent.try_recv().unwrap(), sent.try_recv().unwrap()];
            let early_release = (!is_released_between).then(|| attempt.release(&node));

            on_the_way.remove(answered_first).execute();
            assert!(!is_pending(&mut acquisitions.remove(answered_first)));
            let mut release = early_release.unwrap_or_else(|| attempt.release(&node));
            assert!(is_pending(&mut release));
            sent.try_recv().unwrap_err();

            on_the_way.remove(0).execute();
            assert!(!is_pending(&mut acquisitions[0]));
            assert!(is_pending(&mut release));
            assert!(sent.try_recv().unwrap().is_release());
        }
    }

    /// The two futures run in different tasks.
    #[tokio::test]
    async fn the_reply_to_the_acquisition_wakes_the_release() {
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
