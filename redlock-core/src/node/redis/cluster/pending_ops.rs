//! The operations that a shard may still execute.
//!
//! A release must follow the acquisition that it cleans up after, over the connection of the acquisition (an abandoned
//! attempt leaves nothing behind). The owner of the slot may change between the two. So each operation is recorded
//! with its shard before it is sent, and a release goes to these shards and to the owner.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::lock::Token;
use crate::node::redis::RedisNode;

/// The operations that a shard may still execute, by their token.
#[derive(Default)]
pub(super) struct PendingShardOps(Mutex<HashMap<Token, TokenOps>>);

#[derive(Default)]
struct TokenOps {
    sent: Vec<SentOp>,
    next_id: u64,
    /// Whether a release was sent since the first of these operations.
    is_released: bool,
}

struct SentOp {
    id: u64,
    shard: Arc<RedisNode>,
    /// The time at which the lease ends, counted from the call.
    until: Instant,
    /// Whether the operation has ended without a certain result.
    is_abandoned: bool,
}

/// One recorded operation. If it is dropped without [`answered`](Self::answered), its shard may still execute it.
pub(super) struct PendingShardOp<'a> {
    ops: &'a PendingShardOps,
    token: Token,
    id: u64,
}

impl PendingShardOps {
    /// Records an operation before it is sent to a shard. The lock can last for `lease`.
    pub(super) fn begin(
        &self,
        token: Token,
        shard: &Arc<RedisNode>,
        lease: Duration,
    ) -> PendingShardOp<'_> {
        let until = Instant::now() + lease;
        let mut by_token = self.0.lock();
        let ops = by_token.entry(token).or_default();
        let id = ops.next_id;
        ops.next_id += 1;
        ops.sent.push(SentOp { id, shard: Arc::clone(shard), until, is_abandoned: false });
        PendingShardOp { ops: self, token, id }
    }

    /// Records a release before it is sent. Returns the shards that may still execute an operation with its token.
    pub(super) fn release(&self, token: &Token) -> Vec<Arc<RedisNode>> {
        let mut by_token = self.0.lock();
        let Some(ops) = by_token.get_mut(token) else { return Vec::new() };
        ops.is_released = true;
        let mut shards: Vec<Arc<RedisNode>> = Vec::with_capacity(ops.sent.len());
        for sent in &ops.sent {
            if !shards.iter().any(|known| Arc::ptr_eq(known, &sent.shard)) {
                shards.push(Arc::clone(&sent.shard));
            }
        }
        shards
    }

    /// Records that a shard has executed the release. It executes no earlier operation any more.
    pub(super) fn released(&self, token: &Token, shard: &Arc<RedisNode>) {
        self.retain(*token, |sent| !(sent.is_abandoned && Arc::ptr_eq(&sent.shard, shard)));
    }

    /// Forgets the operations whose lease is over.
    pub(super) fn forget_ended(&self) {
        let now = Instant::now();
        self.0.lock().retain(|_, ops| {
            ops.sent.retain(|sent| !sent.is_abandoned || sent.until > now);
            !ops.sent.is_empty()
        });
    }

    fn retain(&self, token: Token, keep: impl FnMut(&SentOp) -> bool) {
        if let Entry::Occupied(mut ops) = self.0.lock().entry(token) {
            ops.get_mut().sent.retain(keep);
            if ops.get().sent.is_empty() {
                ops.remove();
            }
        }
    }
}

impl PendingShardOp<'_> {
    /// Records that the operation goes to another shard, because the last one has not executed it. Returns `false` if
    /// a release was sent meanwhile: then the operation must not be sent again.
    pub(super) fn redirect(&self, shard: &Arc<RedisNode>) -> bool {
        let mut by_token = self.ops.0.lock();
        let Some(ops) = by_token.get_mut(&self.token).filter(|ops| !ops.is_released) else {
            return false;
        };
        if let Some(sent) = ops.sent.iter_mut().find(|sent| sent.id == self.id) {
            sent.shard = Arc::clone(shard);
        }
        true
    }

    /// Returns whether a release was sent since the operation began.
    pub(super) fn is_released(&self) -> bool {
        self.ops.0.lock().get(&self.token).is_none_or(|ops| ops.is_released)
    }

    /// Records that the result of the operation is certain.
    pub(super) fn answered(self) {
        self.ops.retain(self.token, |sent| sent.id != self.id);
    }
}

impl Drop for PendingShardOp<'_> {
    fn drop(&mut self) {
        let mut by_token = self.ops.0.lock();
        let Some(ops) = by_token.get_mut(&self.token) else { return };
        if let Some(sent) = ops.sent.iter_mut().find(|sent| sent.id == self.id) {
            sent.is_abandoned = true;
        }
    }
}

impl fmt::Debug for PendingShardOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PendingShardOps").field(&self.0.lock().len()).finish()
    }
}
