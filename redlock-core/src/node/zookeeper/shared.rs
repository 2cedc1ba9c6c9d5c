//! The state of a node; from an operation to its requests, and from their replies to the vote.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::path::{self, Queue};
use super::places::{Claim, Places};
use super::requests::{self, Children, CreateKind, ErrorCode, RequestError};
use super::session::ZookeeperSession;
use crate::clock::Moment;
use crate::error::{ForeignKind, NodeError, Vote};
use crate::lock::Token;
use crate::node::{Action, Op, Reply};

/// How often an acquisition makes the folder of its lock, which the servers delete when it is empty.
const FOLDERS: usize = 8;
/// The pause before a znode is removed again that the servers did not remove.
const PAUSE: Duration = Duration::from_secs(1);

/// The state of a node that was started.
pub(super) struct SharedState {
    pub(super) session: Arc<ZookeeperSession>,
    pub(super) places: Arc<Places>,
    runtime: Handle,
    /// The path of the znode in which the locks are, and a slash.
    root: String,
    locks: Mutex<HashMap<Token, Lock, ahash::RandomState>>,
    /// Ends the tasks of the node.
    pub(super) closed: CancellationToken,
}

/// A lock that this node has granted.
struct Lock {
    znode: Znode,
    /// The end of its lease.
    end: Moment,
    _timer: AbortOnDropHandle<Option<()>>,
}

/// An ephemeral znode in the queue of a lock, which this node has made, or may have made.
#[derive(Debug, Clone)]
pub(super) struct Znode {
    /// The path of the lock.
    folder: Arc<str>,
    /// The beginning of its name, which no other znode has.
    pub(super) prefix: Arc<str>,
    /// `None` if the reply to its creation was lost.
    path: Option<Arc<str>>,
    /// The number of the session with which it ends.
    pub(super) session: u64,
}

/// A request for a lock.
#[derive(Clone, Copy)]
struct Acquisition {
    token: Token,
    lease: Duration,
    fenced: bool,
    lookup: bool,
}

/// The queue of a lock, and the number of its last change.
pub(super) struct Listed {
    pub(super) queue: Queue,
    number: i64,
}

impl SharedState {
    pub(super) fn new(session: Arc<ZookeeperSession>, chroot: &str, runtime: &Handle) -> Arc<Self> {
        Arc::new(Self {
            session,
            places: Arc::default(),
            runtime: runtime.clone(),
            root: format!("{chroot}/"),
            locks: Mutex::default(),
            closed: CancellationToken::new(),
        })
    }

    /// Runs a task until it or the node ends.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        self.runtime.spawn(self.closed.clone().run_until_cancelled_owned(task))
    }

    /// Executes an operation in a task: the operation sends several requests, and the caller may stop to wait.
    pub(super) async fn execute(self: Arc<Self>, op: Op) -> Reply {
        let shared = Arc::clone(&self);
        let task =
            self.spawn(async move { shared.try_execute(&op).await.unwrap_or_else(Reply::new) });
        let ended = || NodeError::ConnectionBroke("the node has ended".into());
        match task.await {
            Ok(Some(reply)) => reply,
            _ => Vote::Failed(ended()).into(),
        }
    }

    async fn try_execute(self: &Arc<Self>, op: &Op) -> Result<Reply, Vote> {
        match op.action {
            Action::Acquire { lease, fenced, lookup, waits, .. } => {
                let acquisition = Acquisition { token: op.token, lease, fenced, lookup };
                self.acquire(op.spec.name(), acquisition, waits).await
            }
            Action::Extend { lease } => self.extend(op.token, lease).await,
            Action::Release { min_hold: None } => self.release(op.spec.name(), op.token).await,
            _ => Err(Vote::Failed(NodeError::Server("this node does not know the action".into()))),
        }
    }

    /// Acquires a lock whose queue is empty, or that this process waits for and has the first place in its queue. Extends a
    /// lock that the token holds already.
    async fn acquire(
        self: &Arc<Self>,
        name: &str,
        acquisition: Acquisition,
        waits: bool,
    ) -> Result<Reply, Vote> {
        if waits {
            match self.places.claim(name) {
                Claim::First(znode) => {
                    if let Some(reply) = self.take(znode, acquisition).await? {
                        return Ok(reply);
                    }
                }
                Claim::Behind(end) => {
                    let rest = end.map(|end| self.session.now().time_until(end));
                    return Err(Vote::held(rest.filter(|rest| !rest.is_zero())));
                }
                Claim::None => {}
            }
        }
        let Acquisition { token, lease, .. } = acquisition;
        let sent = self.session.now();
        match self.write(token, sent, lease).await {
            Err(Vote::NotHeld) => {}
            written => return self.granted(acquisition, sent, written?),
        }
        let refused = self.acquire_free(&self.folder(name), acquisition).await;
        if waits && matches!(refused, Err(Vote::Held { .. })) {
            self.places.refused(name);
        }
        refused
    }

    /// Acquires a lock whose queue is empty. A refusal writes nothing, unless another caller is faster.
    async fn acquire_free(
        self: &Arc<Self>,
        folder: &Arc<str>,
        acquisition: Acquisition,
    ) -> Result<Reply, Vote> {
        if let Some(holder) = self.list(folder).await?.queue.first() {
            return Err(self.held(folder, holder, acquisition.lookup).await);
        }
        let sent = self.session.now();
        let prefix = path::prefix(acquisition.token);
        let (znode, Listed { queue, number }) =
            self.enter(folder, &prefix, &millis(acquisition.lease)).await?;
        match queue.position(&prefix) {
            Some((0, _)) => {
                self.hold(acquisition.token, znode, sent.plus(acquisition.lease));
                self.granted(acquisition, sent, number)
            }
            Some(_) => {
                if self.try_remove(&znode).await.is_err() {
                    self.remove_later(znode);
                }
                let holder = queue.first().unwrap_or_default();
                Err(self.held(folder, holder, acquisition.lookup).await)
            }
            None => Err(Vote::Failed(ended_early())),
        }
    }

    /// Turns the first place of a queue into the lock. Returns `None` if the place does not exist any more.
    async fn take(
        self: &Arc<Self>,
        znode: Znode,
        acquisition: Acquisition,
    ) -> Result<Option<Reply>, Vote> {
        let Acquisition { token, lease, .. } = acquisition;
        let sent = self.session.now();
        self.hold(token, znode, sent.plus(lease));
        match self.write(token, sent, lease).await {
            Ok(number) => self.granted(acquisition, sent, number).map(Some),
            Err(Vote::NotHeld) => Ok(None),
            Err(vote) => {
                // Nobody else removes it if nothing was sent.
                if let Some(lock) = self.locks.lock().remove(&token) {
                    self.remove_later(lock.znode);
                }
                Err(vote)
            }
        }
    }

    /// Returns the reply of a granted acquisition, if the session certainly lives as long as the lease.
    fn granted(&self, acquisition: Acquisition, sent: Moment, number: i64) -> Result<Reply, Vote> {
        self.session.vouch(sent, acquisition.lease).map_err(Vote::Failed)?;
        let granted = Reply::new(Vote::Granted);
        Ok(if acquisition.fenced { granted.with_number(number) } else { granted })
    }

    async fn extend(&self, token: Token, lease: Duration) -> Result<Reply, Vote> {
        let sent = self.session.now();
        self.write(token, sent, lease).await?;
        self.session.vouch(sent, lease).map_err(Vote::Failed)?;
        Ok(Vote::Granted.into())
    }

    /// Extends the lease of a lock, and writes it to its znode. Returns the number of the transaction. The timer ends later
    /// before the request is sent: it would delete the znode of an extended lock.
    async fn write(&self, token: Token, sent: Moment, lease: Duration) -> Result<i64, Vote> {
        let (znode, rest) = {
            let mut locks = self.locks.lock();
            let lock = locks.get_mut(&token).filter(|lock| !sent.has_reached(lock.end));
            let lock = lock.ok_or(Vote::NotHeld)?;
            lock.end = lock.end.max(sent.plus(lease));
            (lock.znode.clone(), sent.time_until(lock.end))
        };
        if self.session.number().map_err(Vote::Failed)? != znode.session {
            return Err(Vote::NotHeld);
        }
        let path = znode.path.as_deref().unwrap_or_default();
        let written = self.session.send(requests::set_data(path, &millis(rest)));
        written.map_err(Vote::Failed)?.await.map_err(|error| match error {
            NO_NODE => {
                self.locks.lock().remove(&token);
                Vote::NotHeld
            }
            error => Vote::Failed(error.into()),
        })
    }

    /// Releases a lock. If this fails, its znode is removed at the end of its lease at the latest.
    async fn release(&self, name: &str, token: Token) -> Result<Reply, Vote> {
        let znode = self.locks.lock().get(&token).map(|lock| lock.znode.clone());
        let znode = znode.ok_or(Vote::NotHeld)?;
        let removed = self.try_remove(&znode);
        // In one go with the request that removes the znode.
        let list = requests::get_children(&znode.folder);
        let listed = async { self.session.send(list).ok()?.await.ok() };
        let (removed, listed) = join(removed, listed).await;
        let was_held = removed.map_err(Vote::Failed)?;
        self.locks.lock().remove(&token);
        if !was_held {
            return Err(Vote::NotHeld);
        }
        let released = Reply::new(Vote::Granted);
        let waiters = listed.map(|children| self.places.waiters(name, &children.names));
        Ok(waiters.into_iter().fold(released, Reply::with_subscribers))
    }

    /// Records a lock. A timer removes its znode at the end of its lease.
    fn hold(self: &Arc<Self>, token: Token, znode: Znode, end: Moment) {
        let shared = Arc::clone(self);
        let timer = async move {
            loop {
                let now = shared.session.now();
                let Some(end) = shared.locks.lock().get(&token).map(|lock| lock.end) else {
                    return;
                };
                if now.has_reached(end) {
                    break;
                }
                tokio::time::sleep(now.time_until(end)).await;
            }
            let lock = shared.locks.lock().remove(&token);
            if let Some(lock) = lock {
                shared.remove_later(lock.znode);
            }
        };
        let mut locks = self.locks.lock();
        locks.insert(token, Lock { znode, end, _timer: AbortOnDropHandle::new(self.spawn(timer)) });
    }

    /// Makes a znode in the queue of a lock, and lists the queue. Both are sent in one go: the list is that of a server that
    /// has executed the creation. If this fails, the znode is removed in the background.
    pub(super) async fn enter(
        self: &Arc<Self>,
        folder: &Arc<str>,
        prefix: &str,
        data: &[u8],
    ) -> Result<(Znode, Listed), Vote> {
        for _ in 0..FOLDERS {
            let session = self.session.number().map_err(Vote::Failed)?;
            let path = format!("{folder}/{prefix}");
            let kind = CreateKind::EphemeralSequential;
            let create = requests::create(&path, data, kind, self.session.acl());
            let created = self.session.send(create).map_err(Vote::Failed)?;
            let listed = self.session.send(requests::get_children(folder));
            let (folder, prefix) = (Arc::clone(folder), prefix.into());
            let mut znode = Znode { folder, prefix, path: None, session };
            match created.await {
                Ok(path) => znode.path = Some(path.into()),
                Err(NO_NODE) => {
                    self.make_folder(&znode.folder).await?;
                    continue;
                }
                Err(RequestError::Code(ErrorCode::NoChildrenForEphemerals)) => {
                    return Err(Vote::foreign(ForeignKind::WrongType));
                }
                Err(error) => {
                    let error = NodeError::from(error);
                    if !matches!(error, NodeError::NotPermitted(_) | NodeError::Server(_)) {
                        self.remove_later(znode);
                    }
                    return Err(Vote::Failed(error));
                }
            }
            let listed = match listed {
                Ok(reply) => reply.await.map_err(NodeError::from),
                Err(error) => Err(error),
            };
            let listed = listed.map_err(Vote::Failed).and_then(Listed::new);
            return match listed {
                Ok(listed) => Ok((znode, listed)),
                Err(vote) => {
                    self.remove_later(znode);
                    Err(vote)
                }
            };
        }
        let reason = "the folder of the lock was deleted again and again";
        Err(Vote::Failed(NodeError::Server(reason.into())))
    }

    async fn make_folder(&self, folder: &str) -> Result<(), Vote> {
        let create = requests::create(folder, &[], CreateKind::Container, self.session.acl());
        match self.session.send(create).map_err(Vote::Failed)?.await {
            Ok(_) | Err(RequestError::Code(ErrorCode::NodeExists)) => Ok(()),
            Err(error) => Err(Vote::Failed(error.into())),
        }
    }

    /// Lists the queue of a lock. A lock whose folder does not exist has an empty queue.
    pub(super) async fn list(&self, folder: &str) -> Result<Listed, Vote> {
        match self.session.send(requests::get_children(folder)).map_err(Vote::Failed)?.await {
            Ok(children) => Listed::new(children),
            Err(NO_NODE) => Ok(Listed { queue: Queue::default(), number: 0 }),
            Err(error) => Err(Vote::Failed(error.into())),
        }
    }

    /// Returns the vote for a lock that another znode holds.
    async fn held(&self, folder: &str, holder: &str, lookup: bool) -> Vote {
        Vote::held(if lookup { self.rest(folder, holder).await } else { None })
    }

    /// Returns the lease of a holder, which is an upper bound of its rest. A holder of another program has none.
    pub(super) async fn rest(&self, folder: &str, holder: &str) -> Option<Duration> {
        let data = self.session.send(requests::get_data(&format!("{folder}/{holder}"))).ok()?;
        let millis = String::from_utf8(data.await.ok()?).ok()?.parse().ok()?;
        Some(Duration::from_millis(millis))
    }

    /// Removes a znode. Returns whether it existed.
    async fn try_remove(&self, znode: &Znode) -> Result<bool, NodeError> {
        if self.session.number()? != znode.session {
            return Ok(false);
        }
        if let Some(path) = &znode.path {
            return self.delete(path).await;
        }
        // A server that is behind may not have executed the creation yet.
        let synced = self.session.send(requests::sync(&znode.folder))?;
        let listed = self.session.send(requests::get_children(&znode.folder))?;
        synced.await?;
        let names = match listed.await {
            Ok(children) => children.names,
            Err(NO_NODE) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let mut existed = false;
        for name in names.iter().filter(|name| name.starts_with(&*znode.prefix)) {
            existed |= self.delete(&format!("{}/{name}", znode.folder)).await?;
        }
        Ok(existed)
    }

    async fn delete(&self, path: &str) -> Result<bool, NodeError> {
        match self.session.send(requests::delete(path))?.await {
            Ok(()) => Ok(true),
            Err(NO_NODE) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a znode, until a server has confirmed it or the session has ended.
    pub(super) async fn remove(&self, znode: &Znode) {
        loop {
            self.session.connected().await;
            match self.try_remove(znode).await {
                Ok(_) => return,
                Err(NodeError::NotConnected(_) | NodeError::ConnectionBroke(_)) => {}
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn remove_later(self: &Arc<Self>, znode: Znode) {
        let shared = Arc::clone(self);
        self.spawn(async move { shared.remove(&znode).await });
    }

    /// Returns the moment after this time.
    pub(super) fn moment_after(&self, time: Duration) -> Moment {
        self.session.now().plus(time)
    }

    /// Returns the path of a lock.
    pub(super) fn folder(&self, name: &str) -> Arc<str> {
        (self.root.clone() + &path::segment(name)).into()
    }
}

impl Listed {
    fn new(children: Children) -> Result<Self, Vote> {
        let queue = Queue::of(children.names);
        let queue = queue.map_err(|_| Vote::foreign(ForeignKind::WrongType))?;
        Ok(Self { queue, number: children.pzxid })
    }
}

const NO_NODE: RequestError = RequestError::Code(ErrorCode::NoNode);

fn ended_early() -> NodeError {
    NodeError::ConnectionBroke("the session has ended".into())
}

/// Returns a lease as the data of its znode, in milliseconds, rounded up.
fn millis(lease: Duration) -> Vec<u8> {
    lease.as_nanos().div_ceil(1_000_000).to_string().into_bytes()
}
