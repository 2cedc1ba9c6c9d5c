//! Order for stores that do not keep it.

use std::collections::HashMap;
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
/// pool of connections to a database: a release is sent only when the acquisition with the same token has
/// been answered.
///
/// An acquisition whose future is dropped before the answer counts as answered.
#[derive(Debug)]
pub struct Ordered<N> {
    node: N,
    in_flight: InFlight,
}

/// The acquisitions that have not been answered.
#[derive(Clone, Default)]
struct InFlight(Arc<Mutex<HashMap<Token, Arc<Wake>>>>);

/// Ends an acquisition.
struct Answered {
    in_flight: InFlight,
    token: Token,
}

impl<N: Node> Ordered<N> {
    /// Wraps a node.
    pub fn new(node: N) -> Self {
        Self { node, in_flight: InFlight::default() }
    }
}

impl InFlight {
    fn begin(&self, token: Token) -> Answered {
        self.0.lock().entry(token).or_default();
        Answered { in_flight: self.clone(), token }
    }

    async fn answered(&self, token: &Token) {
        loop {
            let Some(wake) = self.0.lock().get(token).cloned() else { return };
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
        let wake = self.in_flight.0.lock().remove(&self.token);
        if let Some(wake) = wake {
            wake.notify_waiters();
        }
    }
}

impl<N: Node + Clone> Node for Ordered<N> {
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
                let node = self.node.clone();
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
