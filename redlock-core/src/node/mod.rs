//! Nodes: the independent stores that vote on a lock.
//!
//! A node is one independent store, such as one Redis server, one database, or the memory of one process.
//! It has one vote. If a manager has one node, that node alone decides on a lock. If it has several nodes, a
//! majority of them must grant the lock. [`Node`] is the whole protocol between a lock manager and its nodes.
//!
//! # Writing a node
//!
//! Implement [`Node`] for a store, and add it with
//! [`LockManagerBuilder::node`](crate::LockManagerBuilder::node). [`name`](Node::name) and [`call`](Node::call) are enough
//! for a node without a connection. The store must be able to
//!
//! * set a value under a name if there is none, with a time to live, in one step. The value is the
//!   [token](Op::token), or contains it;
//! * compare that value and then change the time to live, or delete the value, in one step.
//!
//! A node may do more:
//!
//! | method | what for | without it |
//! |---|---|---|
//! | [`capabilities`](Node::capabilities) | other locks than exclusive ones of one key, see [below](#capabilities) | requests for them are refused |
//! | [`subscribe`](Node::subscribe) | waiters acquire a released lock without delay | waiters poll |
//! | [`status`](Node::status), [`start`](Node::start), [`remote`](Node::remote) | a store behind a connection | the node is always up |
//! | [`store_id`](Node::store_id) | the same store is not added twice | its vote counts twice |
//! | [`turns`](Node::turns) | callers that share a lock get their turn | exclusive callers that never rest can starve them |
//! | [`fair_order`](Node::fair_order) | callers of all processes wait in order of arrival | `fair` is refused |
//! | [`key_rules`](Node::key_rules) | the store cannot have some locks because of their names | all names are allowed |
//! | [`loss_hints`](Node::loss_hints) | a holder learns at once that its lock is gone | it learns it at its next renewal |
//!
//! `redlock_core::node_tests!`, with the feature `test-util`, tests the whole contract.
//!
//! The items document the details: [`Action`] the votes, [`Reply::number`] the fencing numbers.
//!
//! A node finds its locks by their names: keys are compared without the prefix of their manager, and several managers
//! may share a store.
//!
//! ## Capabilities
//!
//! With [`Capabilities::default`], a node gets only exclusive locks of one key without fencing numbers, and needs only
//! [`LockSpec::name`]. A node claims what it can do beyond that. The manager refuses what one of its nodes does not claim
//! before it asks any node, with an [`InvalidOption`](crate::InvalidOption) that names the node: options of a request
//! when the lock is requested, options of the manager when it [connects](crate::LockManagerBuilder::connect).
//!
//! | capability | without it, these are refused |
//! |---|---|
//! | [`shortest_lease`](Capabilities::shortest_lease), [`longest_lease`](Capabilities::longest_lease) | leases outside of this range; at `connect`, the manager's default lease |
//! | [`fencing`](Capabilities::fencing) | `fenced`; with [`Fencing::Alone`], `fenced` if the manager has several nodes |
//! | [`shared`](Capabilities::shared) | `shared`, `permits` |
//! | [`several_keys`](Capabilities::several_keys) | `lock_all`, also with one key |
//! | [`redisson`](Capabilities::redisson) | the dialect `Redisson`; at `connect`, the manager's dialect |
//! | [`min_hold`](Capabilities::min_hold) | `min_hold`, `keep` |
//! | [`durable`](Capabilities::durable) or [`restart_guard`](Capabilities::restart_guard) | at `connect`: `restart_guard` |
//! | [`restart_guard`](Capabilities::restart_guard) of at least one node | at `connect`: `failover_margin` |
//!
//! A node that is the [`only_node`](Capabilities::only_node) of its manager is refused beside others, at `connect`.
//!
//! A node with [`Fencing::Quorum`] executes [`Confirm`](Action::Confirm), also if its manager has no other node: a waiter
//! that takes a lock over from another caller of its process gets a number of its own.
//!
//! ## Restarted stores
//!
//! A store that is restarted may have forgotten locks that are still held. A node that claims
//! [`restart_guard`](Capabilities::restart_guard) gets the longest lease of all clients in its
//! [settings](NodeSettings::restart_guard). It refuses to acquire locks, by
//! [`NodeError::restarted`](crate::NodeError::restarted), until its store has been running for that time:
//!
//! * It asks its store for the uptime, at least at each new connection. A store that does not know its uptime counts as started
//!   when the connection was made.
//! * It measures the time since then by the [clock](NodeSettings::clock) of its settings.
//! * It reports by [`is_granting`](Remote::is_granting) that it refuses.
//!
//! ```
//! # use redlock_core::NodeError;
//! # use redlock_core::node::{Moment, NodeSettings};
//! /// Returns an error as long as a store that was started at `since` may have forgotten a lock that is still held.
//! fn check_age(settings: &NodeSettings, since: Moment) -> Result<(), NodeError> {
//!     let Some(longest_lease) = settings.restart_guard else { return Ok(()) };
//!     let (now, opens) = (settings.clock.now(), since.plus(longest_lease));
//!     if now.has_reached(opens) {
//!         return Ok(());
//!     }
//!     Err(NodeError::restarted(Some(now.since(since)), now.time_until(opens)))
//! }
//! ```
//!
//! ## Order
//!
//! A caller may drop its future, or a quorum of other nodes may decide, before a node has replied to an
//! acquisition. The manager then calls the release without waiting for that reply. If the release overtook
//! the acquisition, the node would vote [`Vote::NotHeld`](crate::Vote::NotHeld) and set the lock afterwards: the
//! lock would have no holder until its lease runs out. A release with a `min_hold` that overtakes an
//! extension has the same effect. Therefore:
//!
//! * A node executes operations with the same [token](Op::token) in the order in which their [futures](ReplyFuture) were
//!   first polled, by any task on any thread. Operations with different tokens need no order. A single connection or
//!   channel keeps this order, and so do several connections if each [name](LockSpec::name) has its own. A store in memory
//!   may execute the operation inside [`call`](Node::call).
//! * A pool of connections, or a client that sends each request in its own task, does not keep this order.
//!   Such a node sets [`Capabilities::ordered`] to `false`, and the manager wraps it in [`Ordered`].
//!
//! ## Releases
//!
//! A waiter [subscribes](Node::subscribe) to the releases of its lock on every node, after its first refusal and before its
//! next request. The subscription lasts until the caller has the lock or gives up, or longer if other callers of its process
//! wait. So a node may keep a place in a queue of its store for as long as there is a subscription, and give the lock of that
//! place to a request that [waits](Ask::waits). The waiter waits until a quorum of the
//! subscriptions is [in effect](Subscription::ready_after), but no longer than the
//! [`node_timeout`](crate::LockManagerBuilder::node_timeout). Then it requests the lock, because it may have missed a release
//! before. It requests the lock again when a quorum of the nodes has notified it since the last request, or when the
//! [remaining lease](crate::Vote::Held) is over. A notification of fewer nodes does not wake it.
//!
//! After a release, the next waiter of the same process lets the waiters of other processes request the lock first, if there
//! are any. If no node returns the [number of notified subscribers](Reply::subscribers), the manager assumes that there are.
//!
//! ## Fair queues
//!
//! A node may have a [queue](FairOrder) for each lock, in which processes keep their places. It is optional: without it,
//! requests with [`fair`](crate::LockRequest::fair) are refused. The queue decides which caller asks first, and not which
//! caller gets the lock.
//!
//! ## Dropped futures
//!
//! If a future is dropped before its first poll, the node must not send its operation. If the future is
//! dropped later, the node may execute the operation or not: the manager releases a lock that may have been
//! set. Even then, the node must not execute the operation after an operation that was polled later.
//!
//! ## Threads and runtimes
//!
//! `call`, [`subscribe`](Node::subscribe), and the first poll of a future may happen on any thread, even
//! outside of a Tokio runtime, because a guard may be dropped there. They must not block. A node that spawns
//! tasks or uses timers keeps the [`Handle`] of a runtime, because there may be no
//! current runtime. The first poll must send the operation: the next poll may come much later.
//!
//! The node is dropped after its manager, when the last guard and the last pending release are gone. It then ends its
//! tasks and its connections, and the session of its locks, if its store has sessions.
//!
//! ## Failures
//!
//! A node that has no result for an operation votes [`Vote::Failed`](crate::Vote::Failed). After a failed
//! acquisition, the [`NodeError`](crate::NodeError) decides whether the manager sends a release. If the
//! error means *not executed* although the store has set the lock, the lock stays until its lease runs out.
//! When in doubt, a node replies with `ConnectionBroke`.
//!
//! | failure | for a node that | the operation |
//! |---|---|---|
//! | `NotConnected` | cannot reach its store, and has sent nothing | was not executed |
//! | `Tls`, `Credentials` | cannot make a connection, because the certificates are wrong, or because it cannot get valid credentials | was not executed |
//! | `Server` | got an error from its store instead of a result | was not executed |
//! | `NotPermitted` | lacks a permission | was not executed |
//! | `NotSetUp` | has a store that is not set up for locks | was not executed |
//! | `SameServer` | has the same store as another node of the manager; as a [status](NodeStatus::Down) it makes `connect` fail | was not executed |
//! | `ConnectionBroke` | has sent the operation, and can no longer receive the reply | may have been executed, or may be executed later |
//! | `NoReply` | has sent the operation, and has waited too long for the reply | may have been executed, or may be executed later |
//! | `UnexpectedReply` | got an unexpected reply | may have been executed |
//! | `Restarted`, `ClockStepped`, `Promoted`, `Disputed` | has a store that may have forgotten locks, or whose successor may not know them: the grants of the store do not count | may have been executed |
//! | `Unproven` | has executed the operation, and cannot vouch for the lease, because the lock may end earlier with a session | was executed |
//!
//! A failure from [`ReplyFuture::ready`] always means that the operation was not sent.
//!
//! A wrong password is `Credentials`, or `Server` with the words of the store. Waiters then keep their place for the
//! [`outage_grace`](crate::LockManagerBuilder::outage_grace), or for ever if they wait for ever, and outlast a
//! change of the password. If too many nodes for a quorum vote `NotPermitted` or `SameServer`, all waiters fail at once.
//!
//! A caller waits for a reply no longer than the [`node_timeout`](crate::LockManagerBuilder::node_timeout). But the manager
//! polls the future of an acquisition until it completes, and a release on an [`Ordered`] node waits for that. Only the node
//! can end this wait: it must end a connection over which its store does not reply, and reply with `ConnectionBroke` to
//! every pending operation.
//!
//! [`connect`](crate::LockManagerBuilder::connect) counts a node as failed at its first [`Down`](NodeStatus::Down). A node that
//! wants `connect` to wait for its next attempt stays [`Connecting`](NodeStatus::Connecting).
//!
//! The manager repeats a failed release until the node confirms it or the lease has run out. While the
//! [status](Node::status) is not [`Up`](NodeStatus::Up), it does so every 5 s. A failed extension is not a denial: the holder
//! keeps its lock for the rest of the lease.
//!
//! ## Secrets
//!
//! The [token](Op::token) alone is enough to release or extend the lock. A node writes the token to its
//! store and nowhere else: not to logs, errors, metrics, or the `Debug` text of the node. The texts of a
//! [`NodeError`](crate::NodeError) and the [name](Node::name) of a node are logged: they must not contain
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
//!     Action, Capabilities, Node, Op, ReplyFuture, Token,
//! };
//! use redlock_core::{LockManager, Vote};
//!
//! /// Locks in a map. Waiters poll.
//! #[derive(Debug)]
//! struct MapNode {
//!     name: Arc<str>,
//!     locks: Mutex<HashMap<String, (Token, Instant)>>,
//! }
//!
//! impl Node for MapNode {
//!     fn name(&self) -> &Arc<str> {
//!         &self.name
//!     }
//!
//!     fn capabilities(&self) -> Capabilities {
//!         let mut capabilities = Capabilities::default();
//!         // No holder outlives the map.
//!         capabilities.durable = true;
//!         capabilities
//!     }
//!
//!     // Executes the operation at once, which keeps the order. A node with a network connection
//!     // returns `ReplyFuture::new(async move { .. })`.
//!     fn call(&self, op: Op) -> ReplyFuture {
//!         let (name, now) = (op.spec.name().to_owned(), Instant::now());
//!         let mut locks = self.locks.lock().unwrap();
//!         let holder = locks.get(&name).filter(|(_, end)| *end > now).copied();
//!         let vote = match (op.action, holder) {
//!             (Action::Acquire { lease, .. }, None) => {
//!                 locks.insert(name, (op.token, now + lease));
//!                 Vote::Agreed
//!             }
//!             (Action::Acquire { .. }, Some((holder, end))) => {
//!                 Vote::held_by(holder.holder_id(), Some(end - now))
//!             }
//!             (Action::Extend { lease, .. }, Some((token, end))) if token == op.token => {
//!                 locks.insert(name, (token, end.max(now + lease)));
//!                 Vote::Agreed
//!             }
//!             (Action::Release { min_hold: None, .. }, Some((token, _))) if token == op.token => {
//!                 locks.remove(&name);
//!                 Vote::Agreed
//!             }
//!             (Action::Release { min_hold: Some(time), .. }, Some((token, end)))
//!                 if token == op.token =>
//!             {
//!                 locks.insert(name, (token, end.min(now + time)));
//!                 Vote::Agreed
//!             }
//!             _ => Vote::NotHeld,
//!         };
//!         ReplyFuture::ready(vote)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = MapNode { name: "map".into(), locks: Mutex::default() };
//! let locks = LockManager::builder().node(node).connect().await?;
//! let guard = locks.lock("order:42").expire(Duration::from_secs(5)).try_acquire().await?;
//! assert!(locks.lock("order:42").try_acquire().await.unwrap_err().is_contended());
//! guard.release().await?;
//! # Ok(()) }
//! ```

/// Implements methods of [`Node`] by the same methods of the node in a field.
macro_rules! delegate {
    ($field:ident; $(fn $method:ident(&self $(, $argument:ident: $type:ty)*) -> $result:ty;)+) => {
        $(fn $method(&self, $($argument: $type),*) -> $result {
            self.$field.$method($($argument),*)
        })+
    };
}

mod capabilities;
#[cfg(test)]
pub(crate) mod deferring;
#[cfg(test)]
pub(crate) mod fake;
mod inspection;
mod loss_hints;
mod offers;
mod op;
mod ordered;
mod queue_op;
mod reply_future;
mod report;
mod settings;
mod status;
mod subscription;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

pub use crate::clock::{Clock, Moment};
pub use crate::key::LockKey;
pub use crate::lock::{LockSpec, Mark, Mode, OwnerText, Token};
pub use capabilities::{Capabilities, Fencing};
#[cfg(feature = "test-util")]
pub(crate) use delegate;
pub use inspection::{
    Found, FoundHolder, FoundKind, Inspection, LookFuture, MOST_HOLDERS, Removal, RemovalFuture,
};
pub use loss_hints::LossHints;
pub use offers::{FairOrder, KeyRules, Reconnection, Remote, TURN, Turns};
pub use op::{Action, Ask, Op, Reply};
pub use ordered::Ordered;
pub use queue_op::{FirstTicket, ProcessId, QueueAction, QueueFuture, QueueOp, QueueReply, Ticket};
pub use reply_future::ReplyFuture;
pub use report::{Effect, Finding, NodeReport, ServerReport};
pub use settings::NodeSettings;
pub use status::{NodeStatus, StatusReceiver, StatusSender};
pub(crate) use subscription::Ready;
pub use subscription::{Notify, Subscription};

/// An independent store of locks, with one vote. See the [module](self) for how to write one.
pub trait Node: fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the node in votes, logs and metrics, such as host and port; never a password.
    fn name(&self) -> &Arc<str>;

    /// Returns the capabilities of the node. They do not change during its lifetime.
    ///
    /// The provided method returns [`Capabilities::default`].
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Returns an ID of the store. Two nodes with the same ID are the same store, whose vote would count twice: the
    /// manager then does not [connect](crate::LockManagerBuilder::connect), and returns
    /// [`ConnectError::SameServer`](crate::ConnectError::SameServer).
    ///
    /// The ID begins with the kind of the store, so that it differs from the IDs of other kinds. It comes from the store,
    /// and not from its address, because a store may have several addresses. A node that learns the ID from its store
    /// returns `None` until its status is [`Up`](NodeStatus::Up). The manager compares the IDs only while it connects.
    ///
    /// The provided method returns `None`: then nothing is compared.
    fn store_id(&self) -> Option<Arc<str>> {
        None
    }

    /// Starts the background work of the node in a runtime. The manager calls it once, before any operation. The work ends when
    /// the node is dropped.
    ///
    /// The provided method does nothing.
    fn start(&self, runtime: &Handle, settings: &NodeSettings) {
        let _ = (runtime, settings);
    }

    /// Executes an operation.
    ///
    /// A node must execute operations in the [order](self#order) in which their futures were first polled,
    /// so that a release never overtakes the acquisition that it cleans up after. A node that cannot keep
    /// this order reports this in its [capabilities](Capabilities::ordered).
    ///
    /// The manager polls the future of an acquisition or an extension until it completes, even after the
    /// caller has dropped its own future, unless the manager is shut down or its runtime ends. The
    /// manager repeats only releases, until the node confirms the release or the lease has run out.
    ///
    /// A node without a connection should reply with [`Vote::Failed`](crate::Vote::Failed) at once, so that
    /// no caller waits for it. The section [Failures](self#failures) explains the errors.
    fn call(&self, op: Op) -> ReplyFuture;

    /// Calls `notify` whenever a lock of this spec is released, until the subscription is dropped. The spec
    /// has one key. The release of a lock of several keys notifies the subscribers of each of them.
    ///
    /// Notifications may get lost, or come too often: a waiter also polls, and a notification only makes it
    /// request the lock again. If the manager has several nodes, a waiter requests the lock again when a quorum of them
    /// has notified it. The end of a lease needs no notification: a [refusal](crate::Vote::Held) contains the remaining
    /// lease.
    ///
    /// The provided method never notifies: then waiters poll.
    fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription {
        let _ = (spec, notify);
        Subscription::new(|| {})
    }

    /// Returns the status of the node.
    ///
    /// [`connect`](crate::LockManagerBuilder::connect) waits until each node is [`Up`](NodeStatus::Up) or
    /// [`Down`](NodeStatus::Down): a node that is `Down` has failed to connect, and `connect` does not wait for it any longer.
    /// [`LockManager::is_available`](crate::LockManager::is_available) reports the status. Acquisitions do not read it.
    ///
    /// The provided method returns a status that is always [`Up`](NodeStatus::Up).
    fn status(&self) -> StatusReceiver {
        StatusSender::new(NodeStatus::Up).subscribe()
    }

    /// Returns the connection of a node whose store is a server. The provided method returns `None`.
    fn remote(&self) -> Option<&dyn Remote> {
        None
    }

    /// Returns the turns of the callers that share a lock. The provided method returns `None`: then exclusive callers that
    /// never rest can starve the others.
    fn turns(&self) -> Option<&dyn Turns> {
        None
    }

    /// Returns the fair queues of the node. The provided method returns `None`: then requests with
    /// [`fair`](crate::LockRequest::fair) are refused.
    fn fair_order(&self) -> Option<&dyn FairOrder> {
        None
    }

    /// Returns the node's look at its locks, for operators. The provided method returns `None`: then the node does not answer
    /// [`LockManager::status`](crate::LockManager::status) and [`LockManager::break_lock`](crate::LockManager::break_lock).
    fn inspection(&self) -> Option<&dyn Inspection> {
        None
    }

    /// Returns the node's hints that a held lock is gone. The provided method returns `None`: then a holder learns of a loss
    /// at its next renewal.
    fn loss_hints(&self) -> Option<&dyn LossHints> {
        None
    }

    /// Returns the description of the node for a [snapshot](crate::LockManager::snapshot). It must neither block nor ask the
    /// store. The provided method describes a node of the kind `custom` without servers.
    fn report(&self) -> NodeReport {
        NodeReport::default()
    }

    /// Returns the node's rules about the names of locks. The provided method returns `None`: then all names are allowed.
    fn key_rules(&self) -> Option<&dyn KeyRules> {
        None
    }
}

/// The questions of a manager to every node. A node that is no [`Remote`] gets the provided answers.
impl dyn Node {
    pub(crate) fn is_granting(&self) -> bool {
        self.remote().is_none_or(Remote::is_granting)
    }

    pub(crate) fn silence(&self, limit: Duration, waited: Duration) -> Silence {
        let by_wait = || Silence::of_wait(limit, waited);
        self.remote().map_or_else(by_wait, |remote| remote.silence(limit, waited))
    }
}

/// Whether a node that owes a reply is silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Silence {
    /// The node has been silent for this time. If it had replied, this process would have read the reply.
    Silent(Duration),
    /// The silence of the node is not certain: too little time has passed, or this process is late. The
    /// caller should check again after this time.
    CheckAgainAfter(Duration),
}

impl Silence {
    /// Returns that a node is silent once its caller has waited for `limit`.
    fn of_wait(limit: Duration, waited: Duration) -> Self {
        match limit.checked_sub(waited) {
            None | Some(Duration::ZERO) => Self::Silent(waited),
            Some(rest) => Self::CheckAgainAfter(rest),
        }
    }
}

#[cfg(all(test, any(feature = "redis", feature = "zookeeper")))]
impl Silence {
    pub(crate) fn is_silent(self) -> bool {
        matches!(self, Self::Silent(_))
    }
}
