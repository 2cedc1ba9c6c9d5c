//! The locks of a node: from an operation to its requests, and from their replies to the vote.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::path;
use super::places::{PlaceState, Places};
use super::requests;
use super::znodes::{HolderData, Listed, NO_NODE, Znode, Znodes};
use crate::clock::Moment;
use crate::error::{NodeError, Vote};
use crate::lock::Token;
use crate::node::{Action, Op, Reply};

/// The locks of a node that was started.
pub(super) struct ZookeeperLocks {
    pub(super) znodes: Arc<Znodes>,
    pub(super) places: Arc<Places>,
    granted: Mutex<HashMap<Token, GrantedLock, ahash::RandomState>>,
}

/// A lock that this node has granted.
struct GrantedLock {
    znode: Znode,
    /// The end of its lease.
    end: Moment,
    /// How many other processes waited for it when it was granted.
    others: usize,
    _timer: AbortOnDropHandle<Option<()>>,
}

/// A request for a lock.
#[derive(Clone, Copy)]
struct AcquireRequest {
    token: Token,
    lease: Duration,
    fenced: bool,
    lookup: bool,
}

impl ZookeeperLocks {
    pub(super) fn new(znodes: Arc<Znodes>) -> Arc<Self> {
        let places = Places::new(&znodes);
        Arc::new(Self { znodes, places, granted: Mutex::default() })
    }

    /// Executes an operation in a task: the operation sends several requests, and the caller may stop to wait.
    pub(super) async fn execute(self: Arc<Self>, op: Op) -> Reply {
        let this = Arc::clone(&self);
        let task = self
            .znodes
            .spawn(async move { this.try_execute(&op).await.unwrap_or_else(Reply::new) });
        let ended = Vote::Failed(NodeError::ConnectionBroke("the node has ended".into()));
        task.await.ok().flatten().unwrap_or_else(|| ended.into())
    }

    async fn try_execute(self: &Arc<Self>, op: &Op) -> Result<Reply, Vote> {
        match op.action {
            Action::Acquire { lease, fenced, ask } => {
                let lookup = !ask.skip_lookup;
                let request = AcquireRequest { token: op.token, lease, fenced, lookup };
                self.acquire(op.spec.name(), request, ask.waits).await
            }
            Action::Extend { lease } => {
                self.write(op.token, lease).await.map(|_| Vote::Agreed.into())
            }
            Action::Release { min_hold: None } => self.release(op.spec.name(), op.token).await,
            _ => Err(Vote::Failed(NodeError::Server("this node does not know the action".into()))),
        }
    }

    /// Acquires a lock whose queue is empty, or that this process waits for and has the first place in its queue. Extends a
    /// lock that the token holds already.
    async fn acquire(
        self: &Arc<Self>,
        name: &str,
        request: AcquireRequest,
        waits: bool,
    ) -> Result<Reply, Vote> {
        if waits {
            match self.places.claim(name) {
                Some(PlaceState::First(znode, others)) => {
                    if let Some(reply) = self.take(znode, others, request).await? {
                        return Ok(reply);
                    }
                }
                Some(PlaceState::Behind(end, label)) => {
                    let rest = end.map(|end| self.znodes.session.now().time_until(end));
                    let held = Vote::held(rest.filter(|rest| !rest.is_zero()));
                    return Err(held.with_label(label));
                }
                _ => {}
            }
        }
        let AcquireRequest { token, lease, .. } = request;
        match self.write(token, lease).await {
            Err(Vote::NotHeld) => {}
            written => return written.map(|number| granted(request.fenced, number)),
        }
        let refused = self.acquire_free(&self.znodes.folder(name), request).await;
        if waits && matches!(refused, Err(Vote::Held { .. })) {
            self.places.refused(name);
        }
        refused
    }

    /// Acquires a lock whose queue is empty. A refusal writes nothing, unless another caller is faster.
    async fn acquire_free(
        self: &Arc<Self>,
        folder: &Arc<str>,
        request: AcquireRequest,
    ) -> Result<Reply, Vote> {
        if let Some(holder) = self.znodes.list(folder).await?.queue.first() {
            return Err(self.held(folder, holder, request.lookup).await);
        }
        let sent = self.znodes.session.now();
        let token = request.token;
        let prefix = path::prefix(token);
        let (znode, Listed { queue, number }) =
            self.znodes.enter(folder, &prefix, &HolderData::write(token, request.lease)).await?;
        match queue.position(&prefix) {
            Some((0, _)) => {
                self.hold(token, znode, queue.others(), sent.plus(request.lease));
                self.znodes.session.vouch(sent, request.lease).map_err(Vote::Failed)?;
                Ok(granted(request.fenced, number))
            }
            Some(_) => {
                if self.znodes.try_remove(&znode).await.is_err() {
                    self.znodes.remove_later(znode);
                }
                let holder = queue.first().unwrap_or_default();
                Err(self.held(folder, holder, request.lookup).await)
            }
            None => Err(Vote::Failed(NodeError::ConnectionBroke("the session has ended".into()))),
        }
    }

    /// Turns the first place of a queue into the lock. Returns `None` if the place does not exist any more.
    async fn take(
        self: &Arc<Self>,
        znode: Znode,
        others: usize,
        request: AcquireRequest,
    ) -> Result<Option<Reply>, Vote> {
        let AcquireRequest { token, lease, .. } = request;
        self.hold(token, znode, others, self.znodes.session.now().plus(lease));
        match self.write(token, lease).await {
            Ok(number) => Ok(Some(granted(request.fenced, number))),
            Err(Vote::NotHeld) => Ok(None),
            Err(vote) => {
                // Nobody else removes it if nothing was sent.
                if let Some(lock) = self.granted.lock().remove(&token) {
                    self.znodes.remove_later(lock.znode);
                }
                Err(vote)
            }
        }
    }

    /// Extends the lease of a lock, and writes it to its znode. Returns the number of the transaction, if the session certainly
    /// lives as long as the lease. The timer ends later before the request is sent: it would delete the znode of an extended
    /// lock.
    async fn write(&self, token: Token, lease: Duration) -> Result<i64, Vote> {
        let sent = self.znodes.session.now();
        let (znode, rest) = {
            let mut locks = self.granted.lock();
            let lock = locks.get_mut(&token).filter(|lock| !sent.has_reached(lock.end));
            let lock = lock.ok_or(Vote::NotHeld)?;
            lock.end = lock.end.max(sent.plus(lease));
            (lock.znode.clone(), sent.time_until(lock.end))
        };
        if self.znodes.session.number().map_err(Vote::Failed)? != znode.session {
            return Err(Vote::NotHeld);
        }
        let path = znode.path.as_deref().unwrap_or_default();
        let written =
            self.znodes.session.send(requests::set_data(path, &HolderData::write(token, rest)));
        let number = written.map_err(Vote::Failed)?.await.map_err(|error| match error {
            NO_NODE => {
                self.granted.lock().remove(&token);
                Vote::NotHeld
            }
            error => Vote::Failed(error.into()),
        })?;
        self.znodes.session.vouch(sent, lease).map_err(Vote::Failed)?;
        Ok(number)
    }

    /// Releases a lock. If this fails, its znode is removed at the end of its lease at the latest. A process that has begun to wait
    /// since the lock was granted is not counted: the next acquisition of this process finds it in the queue.
    async fn release(&self, name: &str, token: Token) -> Result<Reply, Vote> {
        let granted = |lock: &GrantedLock| (lock.znode.clone(), lock.others);
        let granted = self.granted.lock().get(&token).map(granted);
        let (znode, others) = granted.ok_or(Vote::NotHeld)?;
        let was_held = self.znodes.try_remove(&znode).await.map_err(Vote::Failed)?;
        self.granted.lock().remove(&token);
        if !was_held {
            return Err(Vote::NotHeld);
        }
        let subscribers = others + usize::from(self.places.exist(name));
        Ok(Reply::new(Vote::Agreed).with_subscribers(subscribers))
    }

    /// Records a lock. A timer removes its znode at the end of its lease.
    fn hold(self: &Arc<Self>, token: Token, znode: Znode, others: usize, end: Moment) {
        let this = Arc::clone(self);
        let timer = async move {
            loop {
                let now = this.znodes.session.now();
                // One critical section: an extension in between would count, although its znode is removed.
                let end = match this.granted.lock().entry(token) {
                    Entry::Vacant(_) => return,
                    Entry::Occupied(lock) if now.has_reached(lock.get().end) => {
                        return this.znodes.remove_later(lock.remove().znode);
                    }
                    Entry::Occupied(lock) => lock.get().end,
                };
                tokio::time::sleep(now.time_until(end)).await;
            }
        };
        let mut locks = self.granted.lock();
        locks.insert(
            token,
            GrantedLock {
                znode,
                end,
                others,
                _timer: AbortOnDropHandle::new(self.znodes.spawn(timer)),
            },
        );
    }

    /// Returns the znode of a lock that this node has granted.
    pub(super) fn znode_of(&self, token: Token) -> Option<Znode> {
        self.granted.lock().get(&token).map(|lock| lock.znode.clone())
    }

    /// Returns the vote for a lock that another znode holds.
    async fn held(&self, folder: &str, holder: &str, lookup: bool) -> Vote {
        if !lookup {
            return Vote::held(None);
        }
        let HolderData { lease: remaining, holder, label, .. } =
            self.znodes.data(folder, holder).await;
        Vote::Held { holder, label, remaining }
    }
}

fn granted(fenced: bool, number: i64) -> Reply {
    let granted = Reply::new(Vote::Agreed);
    if fenced { granted.with_number(number) } else { granted }
}
