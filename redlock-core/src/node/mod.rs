//! Nodes: the independent stores that vote on a lock.
//!
//! A node is one Redis server, one database, one memory. It has one vote. A lock on one node is granted by
//! its vote, a lock on several nodes by the votes of a majority. [`Node`] is the whole protocol between a
//! lock manager and its nodes.
//!
//! # Writing a node
//!
//! Implement [`Node`] for a store, and add it by
//! [`LockManagerBuilder::node`](crate::LockManagerBuilder::node). The store must be able to
//!
//! * set a value under a name if there is none, with a time to live, in one step. The value is the
//!   [token](Op::token), or contains it;
//! * compare that value and then change the time to live, or delete the value, in one step.
//!
//! A store that also notifies [subscribers](Node::subscribe) of releases lets waiters begin without
//! delay. Otherwise they poll.
//!
//! The page of each item says what it means: [`Action`] the votes, [`Reply::number`] the fencing numbers.
//! All locks are exclusive locks of one key, so that a node may read [`LockSpec::name`] alone. A node may
//! ignore the [dialect](LockSpec::dialect) if no other library uses its store.
//!
//! ## Order
//!
//! A caller may go away, and a quorum of other nodes may decide, while a node has not answered an
//! acquisition yet. The manager then calls the release without waiting for the answer. If the release
//! overtook the acquisition, the node would answer [`Vote::Gone`](crate::Vote::Gone) first and set the lock
//! afterwards: a lock without a holder, until its lease runs out. An extension that is overtaken by a
//! release with a `min_hold` has the same effect. Therefore:
//!
//! * A node executes operations in the order in which their [futures](ReplyFuture) were first polled, from
//!   whichever tasks and threads. One connection or one channel keeps this order by itself. A store in
//!   memory may execute the operation inside of [`call`](Node::call).
//! * A pool of connections, or a client that sends each request in a task of its own, does not keep it.
//!   Such a node sets [`Capabilities::ordered`] to `false`, and the manager wraps it by [`Ordered`].
//!
//! ## Dropped futures
//!
//! An operation whose future is dropped before its first poll must not be sent. If the future is dropped
//! later, the operation may be executed or not: the manager releases what it may have acquired. Even then it
//! must not be executed after an operation that was polled later.
//!
//! ## Threads and runtimes
//!
//! `call`, [`subscribe`](Node::subscribe), and the first poll of a future happen in any thread, also outside
//! of every Tokio runtime: a guard may be dropped there. They must not block. A node that spawns tasks or
//! uses timers keeps the [`Handle`](tokio::runtime::Handle) of a runtime, instead of asking for the current
//! one. The first poll has to send the operation, as there may be no other for a while.
//!
//! ## Failures
//!
//! A node that cannot say how an operation ended votes [`Vote::Failed`](crate::Vote::Failed). For an
//! acquisition the [`NodeError`](crate::NodeError) decides whether the manager has to release it. A lock
//! that was set by an acquisition that counts as *not executed* stays until its lease runs out. If in doubt,
//! a node replies with `ConnectionBroke`.
//!
//! | failure | for a node that | the operation |
//! |---|---|---|
//! | `NotConnected` | cannot reach its store, and has sent nothing | was not executed |
//! | `Server` | got an error from its store instead of an answer | was not executed |
//! | `NotPermitted` | lacks a right; waiters do not expect this to end soon | was not executed |
//! | `SameServer` | found that another node of the manager has the same store; as a [status](NodeStatus::Down) it makes `connect` fail | was not executed |
//! | `ConnectionBroke` | has sent the operation, and cannot receive the answer any more | may have been executed, or still be |
//! | `NoAnswer` | has sent the operation, and has waited for the answer for too long | may have been executed, or still be |
//! | `NotUnderstood` | got an answer that it does not understand | may have been executed |
//! | `Restarted`, `ClockStepped` | has a store that may have forgotten locks, so that its grants do not count | may have been executed |
//!
//! A failure by [`ReplyFuture::ready`] always means that the operation was not sent.
//!
//! A release that failed is called again until the node confirms it or the lease has run out, but only
//! while the [status](Node::status) is [`Up`](NodeStatus::Up). A failed extension is no denial: the holder
//! keeps its lock for the rest of the lease.
//!
//! ## Secrets
//!
//! Whoever knows a [token](Op::token) can release or extend the lock. A node writes it to its store and
//! nowhere else: not to logs, errors, metrics, or the `Debug` text of the node. The texts inside of a
//! [`NodeError`](crate::NodeError) and the [name](Node::name) of a node reach logs: they must not contain
//! passwords.
//!
//! ## Example
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::{Arc, Mutex};
//! use std::time::{Duration, Instant};
//!
//! use redlock_core::node::{
//!     Action, Capabilities, LockSpec, Node, NodeStatus, Notify, Op, Reply, ReplyFuture,
//!     StatusReceiver, StatusSender, Subscription, Token,
//! };
//! use redlock_core::{LockManager, Vote};
//!
//! /// Locks in a map. Waiters poll, and there are no fencing tokens.
//! #[derive(Debug)]
//! struct MapNode {
//!     name: Arc<str>,
//!     locks: Mutex<HashMap<String, (Token, Instant)>>,
//!     status: StatusSender,
//! }
//!
//! impl Node for MapNode {
//!     fn name(&self) -> &Arc<str> {
//!         &self.name
//!     }
//!
//!     fn capabilities(&self) -> Capabilities {
//!         let mut capabilities = Capabilities::default();
//!         capabilities.fencing = false;
//!         capabilities
//!     }
//!
//!     // Executed at once, so that the order is kept. A node that sends something returns
//!     // `ReplyFuture::new(async move { .. })`.
//!     fn call(&self, op: Op) -> ReplyFuture {
//!         let (name, now) = (op.spec.name().as_str().to_owned(), Instant::now());
//!         let mut locks = self.locks.lock().unwrap();
//!         let holder = locks.get(&name).filter(|(_, end)| *end > now).copied();
//!         let vote = match (op.action, holder) {
//!             (Action::Acquire { lease, .. }, None) => {
//!                 locks.insert(name, (op.token, now + lease));
//!                 Vote::Granted
//!             }
//!             (Action::Acquire { .. }, Some((_, end))) => Vote::held(Some(end - now)),
//!             (Action::Extend { lease, .. }, Some((token, end))) if token == op.token => {
//!                 locks.insert(name, (token, end.max(now + lease)));
//!                 Vote::Granted
//!             }
//!             (Action::Release { min_hold: None, .. }, Some((token, _))) if token == op.token => {
//!                 locks.remove(&name);
//!                 Vote::Granted
//!             }
//!             (Action::Release { min_hold: Some(time), .. }, Some((token, end)))
//!                 if token == op.token =>
//!             {
//!                 locks.insert(name, (token, end.min(now + time)));
//!                 Vote::Granted
//!             }
//!             _ => Vote::Gone,
//!         };
//!         ReplyFuture::ready(vote)
//!     }
//!
//!     fn subscribe(&self, _: &Arc<LockSpec>, _: Notify) -> Subscription {
//!         Subscription::new(|| {})
//!     }
//!
//!     fn status(&self) -> StatusReceiver {
//!         self.status.subscribe()
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = MapNode {
//!     name: "map".into(),
//!     locks: Mutex::default(),
//!     status: StatusSender::new(NodeStatus::Up),
//! };
//! let locks = LockManager::builder().node(node).connect().await?;
//! let guard = locks.lock("order:42").expire(Duration::from_secs(5)).try_acquire().await?;
//! assert!(locks.lock("order:42").try_acquire().await.unwrap_err().is_contended());
//! guard.release().await?;
//! # Ok(()) }
//! ```

mod capabilities;
#[cfg(test)]
pub(crate) mod deferring;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod memory;
mod op;
mod ordered;
#[cfg(feature = "redis")]
pub(crate) mod redis;
mod reply_future;
mod status;
mod subscription;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use crate::lock::{LockName, LockSpec, Mode, Token};
pub use capabilities::Capabilities;
pub(crate) use capabilities::LeaseRange;
pub use op::{Action, Op, Reply};
pub use ordered::Ordered;
pub use reply_future::ReplyFuture;
pub(crate) use reply_future::poll_periodically;
pub use status::{NodeStatus, StatusReceiver, StatusSender};
pub(crate) use subscription::Ready;
pub use subscription::{Notify, Subscription};

/// An independent store of locks, with one vote. See the [module](self) for how to write one.
pub trait Node: fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the node in votes, logs and metrics, such as host and port; never a password.
    fn name(&self) -> &Arc<str>;

    /// Returns what the node can do. It does not change while the node lives.
    fn capabilities(&self) -> Capabilities;

    /// Executes an operation.
    ///
    /// A node must execute operations in the [order](self#order) in which their futures were first polled,
    /// so that a release never overtakes the acquisition that it cleans up after. A store that cannot keep
    /// this order says so in its [capabilities](Capabilities::ordered).
    ///
    /// The manager polls the future of an acquisition or an extension until it completes, even if the caller
    /// has gone, unless the manager is shut down or its last runtime ends. It does not repeat an operation that
    /// failed; only a release that was not confirmed is called again, until the lease has run out.
    ///
    /// A node without a connection should reply at once, by [`Vote::Failed`](crate::Vote::Failed): no caller
    /// waits for it then. See [there](self#failures) for which failure means what.
    fn call(&self, op: Op) -> ReplyFuture;

    /// Calls `notify` whenever a lock of this spec is released, until the subscription is dropped.
    ///
    /// Notifications may get lost, and may come too often: a waiter polls beside them, and asks again. A
    /// store that has none returns `Subscription::new(|| {})`. A lock whose lease runs out needs no
    /// notification: waiters know [when](crate::Vote::Held) that will be.
    fn subscribe(&self, spec: &Arc<LockSpec>, notify: Notify) -> Subscription;

    /// Returns the status of the node.
    ///
    /// [`connect`](crate::LockManagerBuilder::connect) waits for it, and
    /// [`LockManager::is_available`](crate::LockManager::is_available) shows it. It is not read before
    /// each acquisition.
    fn status(&self) -> StatusReceiver;

    /// Returns whether the node is silent, although it owes a reply: for `limit` at least. The caller has
    /// waited for the reply for the time `waited`.
    ///
    /// Only the node can tell a silent store from a process that is late in sending commands or in
    /// reading replies. A node that cannot tell counts as silent once a caller has waited for `limit`,
    /// which is what the provided method returns. A caller looks for the first time before that, so that
    /// a node which does not know whether it owes a reply has the time to find out.
    fn silence(&self, limit: Duration, waited: Duration) -> Silence {
        match limit.checked_sub(waited) {
            None | Some(Duration::ZERO) => Silence::Lasts(waited),
            Some(rest) => Silence::Unknown(rest),
        }
    }
}

/// Whether a node that owes a reply is silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Silence {
    /// The node has been silent for this time. This process would have read a reply.
    Lasts(Duration),
    /// The node is not known to be silent: it has not been asked for long enough, or this process is
    /// late. It is worth looking again after this time.
    Unknown(Duration),
}

#[cfg(feature = "redis")]
impl Silence {
    pub(crate) fn lasts(self) -> bool {
        matches!(self, Self::Lasts(_))
    }
}
