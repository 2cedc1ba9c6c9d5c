//! Sends an operation to the owner of its slot, and follows redirects.
//!
//! A server that answers `MOVED` or `ASK` has not executed the command, so the operation is sent again to the server
//! that the answer names. A server that answers `TRYAGAIN` has not executed the command either, so the operation is
//! repeated after a pause. An operation with the token of an attempt is not sent again once the release of the attempt
//! was sent (an abandoned attempt leaves nothing behind).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::Cluster;
use super::redirect::{Redirect, RedirectKind, is_cluster_down};
use crate::error::{NodeError, Vote};
use crate::jitter::jitter;
use crate::lock::Mark;
use crate::node::redis::{RedisNode, fair, operation, uncounted};
use crate::node::{
    Action, Node, NodeStatus, Op, QueueFuture, QueueOp, QueueReply, Reply, ReplyFuture,
};

/// The most redirects without a pause. While a slot moves, a server may answer `MOVED` and the next one `ASK`. Servers that
/// do not agree on the owner yet redirect to each other, until they have heard of the new one.
const MAX_REDIRECTS: usize = 3;

/// The range of the pauses in milliseconds before an operation is repeated that no server could execute yet.
const PAUSES: std::ops::Range<u64> = 20..50;

/// The way to a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The server owns the slot.
    Owner,
    /// The slot is moving to the server.
    Asking,
}

/// Returns the future of an operation other than a release. Its first poll sends the operation.
pub(super) fn send(cluster: &Arc<Cluster>, shard: Arc<RedisNode>, op: Op) -> ReplyFuture {
    let first = shard.call(op.clone());
    // The operation is not sent.
    if let Some(reply) = first.as_ready() {
        if let Vote::Failed(reason) = &reply.vote
            && is_gone(reason)
        {
            cluster.shards.request_refresh();
        }
        return first;
    }
    let cluster = Arc::clone(cluster);
    ReplyFuture::new(async move {
        let pending = cluster.pending_ops.begin(op.token, &shard, longest_effect(&op.action));
        let sent = Sent { shard, way: Way::Owner, is_repeated: false, reply: first.await };
        let sent = follow(&cluster, sent, &op, |shard| pending.redirect(shard)).await;
        let Sent { shard, way, is_repeated, reply } = sent;
        let grants = matches!(op.action, Action::Acquire { .. });
        if is_repeated && grants && reply.vote == Vote::Granted && pending.is_released() {
            // Another thread may have sent the release to this shard just before the operation was sent there.
            let action = Action::Release { min_hold: None };
            let undo = Op { action, ..op.clone() };
            let reply = call(&shard, undo.clone(), way).await;
            let sent = Sent { shard, way, is_repeated, reply };
            follow(&cluster, sent, &undo, |_| true).await;
        }
        if is_certain(&reply.vote) {
            pending.answered();
        }
        reply
    })
}

/// Executes a release. Its first poll sends the release to each shard that may still execute an operation of the
/// attempt, and to the owner of the slot.
pub(super) async fn release(cluster: Arc<Cluster>, op: Op) -> Reply {
    let mut shards = cluster.pending_ops.release(&op.token);
    let owner = cluster.owner(op.spec.name());
    if let Ok(owner) = &owner
        && !shards.iter().any(|shard| Arc::ptr_eq(shard, owner))
    {
        shards.push(Arc::clone(owner));
    }
    let releases = shards.iter().map(|shard| {
        let (cluster, shard, op) = (&cluster, Arc::clone(shard), op.clone());
        async move {
            let (reply, way) = (shard.call(op.clone()).await, Way::Owner);
            let sent = Sent { shard: Arc::clone(&shard), way, is_repeated: false, reply };
            let reply = follow(cluster, sent, &op, |_| true).await.reply;
            if is_certain(&reply.vote) {
                cluster.pending_ops.released(&op.token, &shard);
            }
            reply
        }
    });
    let replies = join_all(releases).await;
    let failed = || owner.err().map(|reason| Vote::Failed(reason).into());
    most_important(replies).or_else(failed).unwrap_or_else(|| Vote::NotHeld.into())
}

/// Executes an operation on a fair queue. Each may be executed twice.
pub(super) async fn queue(cluster: Arc<Cluster>, op: QueueOp) -> Result<QueueReply, NodeError> {
    let mut shard = cluster.owner(op.spec.name())?;
    let mut reply = shard.queue(op.clone()).await;
    for _ in 0..MAX_REDIRECTS {
        let Some(redirect) = reply.as_ref().err().and_then(|error| cluster.redirect_of(error))
        else {
            break;
        };
        shard = cluster.follow(&redirect, &shard).await;
        let next: QueueFuture = match Way::of(&redirect) {
            Way::Owner => shard.queue(op.clone()),
            Way::Asking => match shard.connection_for_queue(&op.action) {
                Ok(connection) => {
                    let op = op.clone();
                    Box::pin(async move { fair::execute(&connection, &op, true).await })
                }
                Err(reason) => Box::pin(std::future::ready(Err(reason))),
            },
        };
        reply = next.await;
    }
    reply
}

/// An operation that was sent to a shard, and its reply.
struct Sent {
    shard: Arc<RedisNode>,
    way: Way,
    /// Whether the operation was sent before, and was not executed.
    is_repeated: bool,
    reply: Reply,
}

/// Follows the redirects of an operation whose first reply is known. Repeats it for up to the node timeout while its keys
/// are on the way to another server.
///
/// Sends the operation again only if `may_repeat` returns true for the next shard.
async fn follow(
    cluster: &Cluster,
    sent: Sent,
    op: &Op,
    may_repeat: impl Fn(&Arc<RedisNode>) -> bool,
) -> Sent {
    let (mut sent, mut redirects) = (sent, 0);
    let until = Instant::now() + cluster.shards.settings.node.node_timeout;
    loop {
        let (shard, way) = if redirects < MAX_REDIRECTS
            && let Some(redirect) = cluster.redirect(&sent.reply.vote)
        {
            redirects += 1;
            (cluster.follow(&redirect, &sent.shard).await, Way::of(&redirect))
        } else if (is_split(&sent.reply.vote) || cluster.redirect(&sent.reply.vote).is_some())
            && Instant::now() < until
            // A guard may be dropped outside of a runtime, which polls its acquisition once more.
            && Handle::try_current().is_ok()
        {
            redirects = 0;
            sleep(Duration::from_millis(jitter(PAUSES))).await;
            // The slot may have moved meanwhile.
            let Ok(owner) = cluster.owner(op.spec.name()) else { return sent };
            (owner, Way::Owner)
        } else {
            return sent;
        };
        if !may_repeat(&shard) {
            // No server has executed the operation.
            let reason = NodeError::Server("the attempt was abandoned".into());
            return Sent { reply: Vote::Failed(reason).into(), ..sent };
        }
        let reply = call(&shard, op.clone(), way).await;
        sent = Sent { shard, way, is_repeated: true, reply };
    }
}

/// Returns the future of an operation on one shard. Its first poll sends the operation.
fn call(shard: &RedisNode, op: Op, way: Way) -> ReplyFuture {
    if way == Way::Owner {
        return shard.call(op);
    }
    match shard.connection_for(&op.action) {
        Ok(connection) => {
            let extends = matches!(op.action, Action::Extend { .. } | Action::Confirm { .. });
            let not_counted = connection.may_extend().err().filter(|_| extends);
            ReplyFuture::new(async move {
                let reply = operation::execute(&connection, &op, None, Duration::ZERO, true).await;
                match not_counted {
                    None => reply,
                    Some(reason) => uncounted(reply, reason),
                }
            })
        }
        Err(reason) => ReplyFuture::ready(Vote::Failed(reason)),
    }
}

impl Way {
    fn of(redirect: &Redirect) -> Self {
        match redirect.kind {
            RedirectKind::Moved => Self::Owner,
            RedirectKind::Ask => Self::Asking,
        }
    }
}

impl Cluster {
    /// Returns the redirect of a server. Other failures may show that the slots should be read again.
    fn redirect(&self, vote: &Vote) -> Option<Redirect> {
        match vote {
            Vote::Failed(error) => self.redirect_of(error),
            _ => None,
        }
    }

    fn redirect_of(&self, error: &NodeError) -> Option<Redirect> {
        let redirect = Redirect::of(error);
        if redirect.is_none() && (is_gone(error) || is_cluster_down(error)) {
            self.shards.request_refresh();
        }
        redirect
    }

    /// Returns the shard to which a server redirects an operation. Waits until a new shard has connected, or has
    /// failed to.
    async fn follow(&self, redirect: &Redirect, from: &RedisNode) -> Arc<RedisNode> {
        let shard = self.shards.follow(redirect, Some(from));
        let status = shard.status();
        if matches!(status.get(), NodeStatus::Connecting) {
            status.wait_for(|status| !matches!(status, NodeStatus::Connecting)).await;
        }
        shard
    }
}

/// Returns whether another server may own the slots of the master by now. A master in quarantine stays the owner.
fn is_gone(error: &NodeError) -> bool {
    matches!(
        error,
        NodeError::NotConnected(_) | NodeError::ConnectionBroke(_) | NodeError::NoReply(_)
    )
}

/// Returns whether a server has not executed the operation, because it has some of its keys and another server has the
/// rest.
fn is_split(vote: &Vote) -> bool {
    matches!(vote, Vote::Failed(NodeError::Server(message)) if message.starts_with("TRYAGAIN"))
}

/// Returns whether the server has executed the operation, or never will.
fn is_certain(vote: &Vote) -> bool {
    let is_open = matches!(
        vote,
        Vote::Failed(
            NodeError::NoReply(_) | NodeError::ConnectionBroke(_) | NodeError::UnexpectedReply
        )
    );
    // A lock whose vote does not count stands on the server, which has executed the operation.
    !is_open
}

/// Returns the reply of a release that was sent to several shards: the grant of the shard that had the lock, or
/// otherwise a failure, so that the release is repeated.
fn most_important(replies: Vec<Reply>) -> Option<Reply> {
    replies.into_iter().min_by_key(|reply| match reply.vote {
        Vote::Granted => 0,
        Vote::Failed(_) => 1,
        _ => 2,
    })
}

/// Returns how long a late execution of the operation can keep a lock.
fn longest_effect(action: &Action) -> Duration {
    match action {
        Action::Acquire { lease, .. } | Action::Extend { lease } => *lease,
        Action::Withdraw { .. } => Mark::LIFE_TIME,
        Action::Confirm { .. } | Action::Downgrade | Action::Release { .. } => Duration::ZERO,
    }
}
