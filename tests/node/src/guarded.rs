//! A node whose store can be restarted, and may then have forgotten locks.

use std::sync::Arc;

use redlock_core::node::{
    Action, Capabilities, Inspection, LockSpec, LossHints, Moment, Node, NodeSettings, Notify, Op,
    Remote, ReplyFuture, StatusReceiver, Subscription,
};
use redlock_core::{NodeError, Vote};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::ActorNode;

/// An [`ActorNode`] that supports `restart_guard`. Clones have the same store.
#[derive(Debug, Clone)]
pub struct GuardedNode {
    node: ActorNode,
    run: Arc<watch::Sender<Option<Run>>>,
}

/// The time for which the store has been running.
#[derive(Debug)]
struct Run {
    settings: NodeSettings,
    /// The store was not started later than at this moment.
    since: Moment,
}

impl GuardedNode {
    /// Guards the store of a node.
    pub fn new(node: ActorNode) -> Self {
        Self { node, run: Arc::default() }
    }

    /// Restarts the store.
    pub fn restart(&self) {
        self.run.send_modify(|run| {
            if let Some(run) = run {
                run.since = run.settings.clock.now();
            }
        });
    }

    /// Returns an error as long as the store may have forgotten a lock that is still held.
    fn check_age(&self) -> Result<(), NodeError> {
        let run = self.run.borrow();
        let Some(Run { settings, since }) = &*run else { return Ok(()) };
        let Some(longest_lease) = settings.restart_guard else { return Ok(()) };
        let (now, opens) = (settings.clock.now(), since.plus(longest_lease));
        if now.has_reached(opens) {
            return Ok(());
        }
        Err(NodeError::restarted(Some(now.since(*since)), now.time_until(opens)))
    }
}

impl Node for GuardedNode {
    fn name(&self) -> &Arc<str> {
        self.node.name()
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.node.capabilities();
        capabilities.restart_guard = true;
        capabilities
    }

    fn start(&self, _: &Handle, settings: &NodeSettings) {
        // The store does not know when it was started.
        let (settings, since) = (settings.clone(), settings.clock.now());
        self.run.send_replace(Some(Run { settings, since }));
    }

    fn call(&self, op: Op) -> ReplyFuture {
        match self.check_age() {
            Err(reason) if matches!(op.action, Action::Acquire { .. }) => {
                ReplyFuture::ready(Vote::Failed(reason))
            }
            _ => self.node.call(op),
        }
    }

    fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription {
        self.node.subscribe(spec, notify)
    }

    fn status(&self) -> StatusReceiver {
        self.node.status()
    }

    fn inspection(&self) -> Option<&dyn Inspection> {
        self.node.inspection()
    }

    fn loss_hints(&self) -> Option<&dyn LossHints> {
        self.node.loss_hints()
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }
}

impl Remote for GuardedNode {
    fn is_granting(&self) -> bool {
        self.check_age().is_ok()
    }
}
