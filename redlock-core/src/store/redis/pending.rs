//! The operations that a server may still execute.
//!
//! A release must follow the acquisition that it cleans up after, over the connection of the acquisition (an abandoned
//! attempt leaves nothing behind). The owner of the slot may change between the two, and a server that has forgotten a
//! script receives the acquisition twice. So each operation is recorded with its server before it is sent, and a release
//! goes to these servers and to the owner.
//!
//! If the node has one server, only an operation that may be sent twice is recorded, until its future is dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::server::Server;
use crate::lock::Token;

/// The operations that a server may still execute, by their token.
pub(super) struct PendingSends {
    /// Whether an operation stays when its future was dropped without a certain result: only if another server may own its
    /// slot by then. Operations that can be sent only once are recorded too then.
    pub(super) keeps_abandoned: bool,
    /// The number of tokens, so that a release takes no mutex if there are none.
    count: AtomicUsize,
    by_token: Mutex<ByToken>,
}

#[derive(Default)]
struct ByToken {
    ops: HashMap<Token, TokenOps>,
    next_id: u64,
}

#[derive(Default)]
struct TokenOps {
    sent: Vec<SentOp>,
    /// Whether a release was sent since the first of these operations.
    is_released: bool,
}

struct SentOp {
    id: u64,
    server: Arc<Server>,
    /// The time at which its lease ends, if the operation has ended without a certain result.
    abandoned_until: Option<Instant>,
}

/// One recorded operation. If it is dropped without [`answered`](Self::answered), its server may still execute it.
pub(super) struct PendingSend<'a> {
    ops: &'a PendingSends,
    token: Token,
    id: u64,
    /// How long the operation is remembered after it has ended. `None` if it is forgotten at once.
    kept_for: Option<Duration>,
}

impl PendingSends {
    pub(super) fn new(keeps_abandoned: bool) -> Self {
        let (count, by_token) = Default::default();
        Self { keeps_abandoned, count, by_token }
    }

    /// Records an operation before it is sent to a server. The lock can last for `lease`.
    pub(super) fn begin(
        &self,
        token: Token,
        server: &Arc<Server>,
        lease: Duration,
    ) -> PendingSend<'_> {
        let mut by_token = self.by_token.lock();
        let id = by_token.next_id;
        by_token.next_id += 1;
        let sent = SentOp { id, server: Arc::clone(server), abandoned_until: None };
        by_token.ops.entry(token).or_default().sent.push(sent);
        self.update_count(&by_token);
        PendingSend { ops: self, token, id, kept_for: self.keeps_abandoned.then_some(lease) }
    }

    /// Records a release before it is sent. Returns the servers that may still execute an operation with its token.
    pub(super) fn release(&self, token: &Token) -> Vec<Arc<Server>> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let mut by_token = self.by_token.lock();
        let Some(ops) = by_token.ops.get_mut(token) else { return Vec::new() };
        ops.is_released = true;
        let mut servers: Vec<Arc<Server>> = Vec::with_capacity(ops.sent.len());
        for sent in &ops.sent {
            if !servers.iter().any(|known| Arc::ptr_eq(known, &sent.server)) {
                servers.push(Arc::clone(&sent.server));
            }
        }
        servers
    }

    /// Records that a server has executed the release. It executes no earlier operation any more.
    pub(super) fn released(&self, token: &Token, server: &Arc<Server>) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.retain(*token, |sent| {
                sent.abandoned_until.is_none() || !Arc::ptr_eq(&sent.server, server)
            });
        }
    }

    /// Forgets the operations whose lease is over. Each reading of the slots calls it.
    pub(super) fn forget_ended(&self) {
        let (mut by_token, now) = (self.by_token.lock(), Instant::now());
        by_token.ops.retain(|_, ops| {
            ops.sent.retain(|sent| sent.abandoned_until.is_none_or(|until| until > now));
            !ops.sent.is_empty()
        });
        self.update_count(&by_token);
    }

    fn retain(&self, token: Token, keep: impl FnMut(&SentOp) -> bool) {
        let mut by_token = self.by_token.lock();
        let Some(ops) = by_token.ops.get_mut(&token) else { return };
        ops.sent.retain(keep);
        if ops.sent.is_empty() {
            by_token.ops.remove(&token);
            self.update_count(&by_token);
        }
    }

    fn update_count(&self, by_token: &ByToken) {
        self.count.store(by_token.ops.len(), Ordering::SeqCst);
    }
}

impl PendingSend<'_> {
    /// Records that the operation goes to another server, because the last one has not executed it. Returns `false` if
    /// a release was sent meanwhile: then the operation must not be sent again.
    pub(super) fn redirect(&self, server: &Arc<Server>) -> bool {
        let mut by_token = self.ops.by_token.lock();
        let ops = by_token.ops.get_mut(&self.token);
        let Some(ops) = ops.filter(|ops| !ops.is_released) else { return false };
        if let Some(sent) = ops.sent.iter_mut().find(|sent| sent.id == self.id) {
            sent.server = Arc::clone(server);
        }
        true
    }

    /// Returns whether a release was sent since the operation began.
    pub(super) fn is_released(&self) -> bool {
        self.ops.by_token.lock().ops.get(&self.token).is_none_or(|ops| ops.is_released)
    }

    /// Records that the result of the operation is certain.
    pub(super) fn answered(mut self) {
        self.kept_for = None;
    }
}

impl Drop for PendingSend<'_> {
    fn drop(&mut self) {
        let Some(kept_for) = self.kept_for else {
            return self.ops.retain(self.token, |sent| sent.id != self.id);
        };
        let mut by_token = self.ops.by_token.lock();
        let Some(ops) = by_token.ops.get_mut(&self.token) else { return };
        if let Some(sent) = ops.sent.iter_mut().find(|sent| sent.id == self.id) {
            sent.abandoned_until = Some(Instant::now() + kept_for);
        }
    }
}
