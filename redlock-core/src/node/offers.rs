//! Extensions of the protocol, which a node may offer.

use std::pin::Pin;
use std::time::Duration;

use super::{Notify, ProcessId, QueueFuture, QueueOp, Silence, Subscription};
use crate::error::InvalidOption;
use crate::key::LockKey;
use crate::lock::LockSpec;

/// A store that this process reaches over a connection. A node offers it by [`Node::remote`](super::Node::remote).
pub trait Remote: Send + Sync {
    /// Returns the product, such as `Redis`, that should run at the address in the [name](super::Node::name) of the node. If
    /// [`connect`](crate::LockManagerBuilder::connect) does not reach the store, its error asks the operator, for example,
    /// "is Redis running at 10.0.0.1:6379?".
    ///
    /// Returns `None` if the node has learned that its store is at other addresses: then the error does not ask. The provided
    /// method returns `None`.
    fn product(&self) -> Option<&'static str> {
        None
    }

    /// Tries at once to connect to the store that has a lock of this spec. Returns whether the node is connected to it: at
    /// once if it is, and otherwise at the end of an attempt that began after the call. The caller gives up after the
    /// [`connect_timeout`](crate::LockManagerBuilder::connect_timeout).
    ///
    /// The manager calls it after an operation has failed, for a caller that may wait. The provided method returns `false`
    /// at once.
    fn reconnect(&self, spec: &LockSpec) -> Reconnection {
        let _ = spec;
        Box::pin(std::future::ready(false))
    }

    /// Returns whether the node grants locks while it is [`Up`](super::NodeStatus::Up). False as long as a rule, such as the
    /// [`restart_guard`](crate::LockManagerBuilder::restart_guard), keeps it from granting any lock.
    ///
    /// [`LockManager::is_granting`](crate::LockManager::is_granting) reports it. Acquisitions do not read it. The provided
    /// method returns true.
    fn is_granting(&self) -> bool {
        true
    }

    /// Returns whether the node owes a reply and has been silent for at least `limit`. The caller has waited
    /// for its reply for the time `waited`.
    ///
    /// Only the node can distinguish a silent store from a process that sends commands or reads replies
    /// late. The provided method does not distinguish them: it returns that the node is silent once the
    /// caller has waited for `limit`. A caller calls this method for the first time before `limit` is over, because
    /// the node may have been silent already when the caller sent its command.
    fn silence(&self, limit: Duration, waited: Duration) -> Silence {
        Silence::of_wait(limit, waited)
    }
}

/// The future of a node's [attempt to connect](Remote::reconnect).
pub type Reconnection = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Turns of the callers that share a lock. A node offers them by [`Node::turns`](super::Node::turns).
pub trait Turns: Send + Sync {
    /// Asks the node for a turn of the callers that share this lock, until the subscription is dropped. At the next
    /// exclusive release, the node then refuses exclusive locks for [`TURN`], and grants shared locks
    /// even if exclusive callers wait.
    ///
    /// A caller asks for a turn after several exclusive releases, each of which was followed by another exclusive
    /// holder.
    fn request_turn(&self, spec: &LockSpec) -> Subscription;
}

/// How long a turn of the callers that share a lock lasts: 50 ms, which is longer than the message about the release
/// and a round trip take. See [`Turns::request_turn`].
pub const TURN: Duration = Duration::from_millis(50);

/// A queue for each lock, in which processes keep their places. A node offers it by
/// [`Node::fair_order`](super::Node::fair_order).
///
/// The queues decide only which caller asks for a lock first, so that a lost or late operation does no harm.
pub trait FairOrder: Send + Sync {
    /// Executes an operation on a queue.
    fn queue(&self, op: QueueOp) -> QueueFuture;

    /// Calls `notify` whenever an operation of another process replaces the first ticket of the lock's queue, and the
    /// new or the former first ticket is one of this process, until the subscription is dropped.
    ///
    /// Notifications may get lost, or come too often. The provided method never notifies: a waiting process then
    /// inspects the queue once per second.
    fn subscribe_queue(&self, spec: &LockSpec, process: ProcessId, notify: Notify) -> Subscription {
        let _ = (spec, process, notify);
        Subscription::new(|| {})
    }
}

/// Rules about the names of locks. A node has them by [`Node::key_rules`](super::Node::key_rules). The manager refuses a
/// request that breaks one before it asks any node.
pub trait KeyRules: Send + Sync {
    /// Returns an error if the node has no fenced and no fair locks under this [prefix](crate::LockManagerBuilder::prefix),
    /// although it supports [fencing](super::Capabilities::fencing) or [fair queues](FairOrder).
    ///
    /// # Errors
    ///
    /// [`InvalidOption`] for the option `prefix`, with the prefix and the allowed ones.
    fn check_prefix(&self, prefix: &str) -> Result<(), InvalidOption>;

    /// Returns an error if the node can never hold a lock of all these keys together, although it supports locks of
    /// [several keys](super::Capabilities::several_keys).
    ///
    /// # Errors
    ///
    /// [`InvalidOption`] for the option `keys`, with two of the keys and a remedy.
    fn check_keys(&self, keys: &[LockKey]) -> Result<(), InvalidOption>;
}
