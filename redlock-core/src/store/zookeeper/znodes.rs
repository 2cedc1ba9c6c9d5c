//! The znodes of this node, which end with its session.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::path::{self, Queue, QueueError};
use super::requests::{self, Children, CreateKind, ErrorCode, RequestError};
use super::session::ZookeeperSession;
use crate::clock::Moment;
use crate::error::{ForeignKind, NodeError, Vote};
use crate::lock::{HolderId, OwnerLabel, Token};

/// How often an acquisition makes the folder of its lock, which the servers delete when it is empty.
const FOLDERS: usize = 8;
/// The pause before a znode is removed again that the servers did not remove.
const PAUSE: Duration = Duration::from_secs(1);

/// From this number on, a folder is about to run out of numbers: nine tenths of the last one.
const MANY: i32 = path::LAST_NUMBER / 10 * 9;
/// The pause between two warnings about a folder that runs out of numbers.
const WARNED: Duration = Duration::from_secs(24 * 60 * 60);

/// Makes, lists and removes znodes.
pub(super) struct Znodes {
    pub(super) session: Arc<ZookeeperSession>,
    runtime: Handle,
    /// The path of the znode in which the locks are, and a slash.
    root: String,
    /// The folders that run out of numbers, with the moments of the latest warnings.
    warned: Mutex<HashMap<Arc<str>, Moment>>,
}

/// An ephemeral znode in the queue of a lock, which this node has made, or may have made.
#[derive(Debug, Clone)]
pub(super) struct Znode {
    /// The path of the lock.
    pub(super) folder: Arc<str>,
    /// The beginning of its name, which no other znode has.
    pub(super) prefix: Arc<str>,
    /// `None` if the reply to its creation was lost.
    pub(super) path: Option<Arc<str>>,
    /// The number of the session with which it ends.
    pub(super) session: u64,
}

/// The data of the znode of a holder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HolderData {
    /// The lease, which is an upper bound of its rest.
    pub(super) lease: Option<Duration>,
    pub(super) holder: Option<HolderId>,
    /// The label of its owner. For a holder of Curator, the whole data, which are the address of its host.
    pub(super) label: Option<OwnerLabel>,
    pub(super) since: Option<SystemTime>,
}

impl HolderData {
    /// Returns the data of a lock: the lease in milliseconds, rounded up, and the id of the holder. With a label, the seconds since
    /// 1970 and the label follow.
    pub(super) fn write(token: Token, lease: Duration) -> Vec<u8> {
        let millis = lease.as_nanos().div_ceil(1_000_000);
        let id = token.holder_id();
        let since = token.since().and_then(|since| since.duration_since(UNIX_EPOCH).ok());
        let data = match (token.label(), since) {
            (Some(label), Some(since)) => format!("{millis} {id} {} {label}", since.as_secs()),
            _ => format!("{millis} {id}"),
        };
        data.into_bytes()
    }

    pub(super) fn read(data: &[u8]) -> Self {
        let text = std::str::from_utf8(data).unwrap_or_default();
        let mut words = text.split(' ');
        let lease = words.next().and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
        // No rest at all would mean that the holder has left.
        let Some(lease) = lease.filter(|lease| !lease.is_zero()) else {
            return Self { label: OwnerLabel::read(text), ..Self::default() };
        };
        let unlabelled = Self { lease: Some(lease), ..Self::default() };
        let Some(Ok(holder)) = words.next().map(str::parse) else { return unlabelled };
        let since = words.next().and_then(|seconds| seconds.parse::<u32>().ok());
        let since = since.map(|since| UNIX_EPOCH + Duration::from_secs(since.into()));
        let label = since.and_then(|_| OwnerLabel::read(words.next()?));
        let since = since.filter(|_| label.is_some());
        Self { holder: Some(holder), label, since, ..unlabelled }
    }
}

/// The queue of a lock, and the number of its last change.
pub(super) struct Listed {
    pub(super) queue: Queue,
    pub(super) number: i64,
}

impl Znodes {
    pub(super) fn new(session: Arc<ZookeeperSession>, chroot: &str, runtime: &Handle) -> Arc<Self> {
        let (runtime, root) = (runtime.clone(), format!("{chroot}/"));
        Arc::new(Self { session, runtime, root, warned: Mutex::default() })
    }

    /// Runs a task until it or the node ends.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        self.runtime.spawn(self.session.kept.stopped.clone().run_until_cancelled_owned(task))
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
            // One link: its number is that of the session with which the znode ends.
            let link = self.session.link().map_err(Vote::Failed)?;
            let path = format!("{folder}/{prefix}");
            let kind = CreateKind::EphemeralSequential;
            let create = requests::create(&path, data, kind, self.session.acl());
            let created = link.send(create).map_err(Vote::Failed)?;
            let listed = link.send(requests::get_children(folder));
            let (folder, prefix) = (Arc::clone(folder), prefix.into());
            let mut znode = Znode { folder, prefix, path: None, session: link.number };
            // A handle keeps a request whose driver ended while it was sent, so that its reply would never come.
            drop(link);
            match created.await {
                Ok(path) => {
                    self.warn_of_many(&znode.folder, path::number(&path));
                    znode.path = Some(path.into());
                }
                Err(NO_NODE) => {
                    self.make_folder(&znode.folder).await?;
                    continue;
                }
                Err(RequestError::Code(ErrorCode::NoChildrenForEphemerals)) => {
                    return Err(Vote::foreign(ForeignKind::OtherRecipe));
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
            let listed = listed.map_err(Vote::Failed);
            let listed = listed.and_then(|children| Listed::new(&znode.folder, children));
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

    /// Warns once a day that a folder runs out of numbers.
    fn warn_of_many(&self, folder: &Arc<str>, number: Option<i32>) {
        let Some(number @ MANY..) = number else { return };
        let (now, mut warned) = (self.session.now(), self.warned.lock());
        if warned.get(folder).is_none_or(|last| now.since(*last) >= WARNED) {
            warned.insert(Arc::clone(folder), now);
            tracing::warn!(
                node = %self.session.name(), %folder, number, last = path::LAST_NUMBER,
                "the folder of a lock runs out of numbers, and then nobody gets the lock: delete the folder while it is empty"
            );
        }
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
            Ok(children) => Listed::new(folder, children),
            Err(NO_NODE) => Ok(Listed { queue: Queue::default(), number: 0 }),
            Err(error) => Err(Vote::Failed(error.into())),
        }
    }

    /// Returns the data of a holder. A holder of another program has none.
    pub(super) async fn data(&self, folder: &str, holder: &str) -> HolderData {
        let path = format!("{folder}/{holder}");
        let Ok(data) = self.session.send(requests::get_data(&path)) else {
            return HolderData::default();
        };
        data.await.map_or_else(|_| HolderData::default(), |(data, _)| HolderData::read(&data))
    }

    /// Removes a znode. Returns whether it existed.
    pub(super) async fn try_remove(&self, znode: &Znode) -> Result<bool, NodeError> {
        if self.session.number()? != znode.session {
            return Ok(false);
        }
        if let Some(path) = &znode.path {
            return self.delete(path).await;
        }
        // A server that is behind may not have executed the creation yet.
        let Some(Children { names, .. }) = self.list_now(&znode.folder).await? else {
            return Ok(false);
        };
        let mut existed = false;
        for name in names.iter().filter(|name| name.starts_with(&*znode.prefix)) {
            existed |= self.delete(&format!("{}/{name}", znode.folder)).await?;
        }
        Ok(existed)
    }

    /// Lists the children of a folder as the leader has them, of whom a server may be behind. Returns `None` without a folder.
    pub(super) async fn list_now(&self, folder: &str) -> Result<Option<Children>, NodeError> {
        let synced = self.session.send(requests::sync(folder))?;
        let listed = self.session.send(requests::get_children(folder))?;
        synced.await?;
        match listed.await {
            Ok(children) => Ok(Some(children)),
            Err(NO_NODE) => Ok(None),
            Err(error) => Err(error.into()),
        }
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
                // The next connection may answer at once.
                Err(_) if self.session.number().is_err() => {}
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    pub(super) fn remove_later(self: &Arc<Self>, znode: Znode) {
        let znodes = Arc::clone(self);
        self.spawn(async move { znodes.remove(&znode).await });
    }

    /// Returns the path of a lock.
    pub(super) fn folder(&self, name: &str) -> Arc<str> {
        (self.root.clone() + &path::segment(name)).into()
    }
}

impl Listed {
    pub(super) fn new(folder: &str, children: Children) -> Result<Self, Vote> {
        let no_order = |reason: String| Vote::Failed(NodeError::Server(reason.into()));
        let queue = Queue::of(children.names).map_err(|error| match error {
            QueueError::ForeignChild => Vote::foreign(ForeignKind::OtherRecipe),
            QueueError::Overflow => no_order(format!(
                "the folder {folder} has numbered {} children, and cannot number more in order: \
                 `delete {folder}` in zkCli.sh makes it begin anew, once nobody holds the lock",
                path::LAST_NUMBER
            )),
            QueueError::EqualNumbers(number) => no_order(format!(
                "two children of the folder {folder} have the number {number}: nobody gets the lock until one of them has gone"
            )),
        })?;
        Ok(Self { queue, number: children.pzxid })
    }
}

pub(super) const NO_NODE: RequestError = RequestError::Code(ErrorCode::NoNode);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::clock::fake::FakeClock;
    use crate::lock::{Dialect, LockOwner};

    fn read(data: &str) -> HolderData {
        HolderData::read(data.as_bytes())
    }

    /// The data of other programs is anything.
    #[test]
    fn only_the_data_of_this_library_names_a_holder() {
        let (lease, holder) = (Some(Duration::from_secs(30)), Some(HolderId::of("abc")));
        let unlabelled = HolderData { lease, holder, ..HolderData::default() };
        assert_eq!(read("30000 a9993e364706816a"), unlabelled);
        for data in ["30000", "30000 ", "30000 a9993e36", "30000  a9993e364706816a"] {
            let unnamed = HolderData { lease, ..HolderData::default() };
            assert_eq!(read(data), unnamed, "{data:?}");
        }
        for data in ["", "0 a9993e364706816a", " a9993e364706816a", "the host", "h\u{f6}st"] {
            assert_eq!(read(data), HolderData::default(), "{data:?}");
        }
        assert_eq!(HolderData::read(b"\xff"), HolderData::default());
    }

    /// Curator writes the address of its host.
    #[test]
    fn the_data_of_another_program_is_its_label_if_it_is_a_label() {
        for data in ["10.0.0.1", "fe80::1", "-1", &"x".repeat(64)] {
            let label = OwnerLabel::read(data);
            assert!(label.is_some(), "{data:?}");
            assert_eq!(read(data), HolderData { label, ..HolderData::default() }, "{data:?}");
        }
        assert_eq!(read(&"x".repeat(65)), HolderData::default());
    }

    /// Other versions and other languages read the form.
    #[test]
    fn the_seconds_and_the_label_follow_the_holder() {
        let lease = Duration::from_micros(29_999_001);
        for label in ["#@/".repeat(21) + "!", "1".to_owned(), "shop-7f9c:4121".to_owned()] {
            let clock = FakeClock::default();
            let label = OwnerLabel::new(&label).unwrap();
            let token =
                LockOwner::new(Some(label.clone())).token(Dialect::Plain, &clock, clock.now());
            let (id, seconds) = (token.holder_id(), FakeClock::UNIX_TIME);
            let data = HolderData::write(token, lease);
            assert_eq!(data, format!("30000 {id} {seconds} {label}").into_bytes());
            let expected = HolderData {
                lease: Some(Duration::from_secs(30)),
                holder: Some(id),
                label: Some(label),
                since: token.since(),
            };
            assert_eq!(HolderData::read(&data), expected);
        }
        let token = Token::random(Dialect::Plain);
        let data = HolderData::write(token, lease);
        assert_eq!(data, format!("30000 {}", token.holder_id()).into_bytes());
    }

    /// A part of a text of another form is no label, and without a label there is no time.
    #[test]
    fn a_wrong_label_or_time_leaves_the_holder_without_both() {
        let (lease, holder) = (Some(Duration::from_secs(30)), Some(HolderId::of("abc")));
        let unlabelled = HolderData { lease, holder, ..HolderData::default() };
        let too_long = "x".repeat(65);
        for rest in
            ["1", "1 ", "x shop", "-1 shop", "4294967296 shop", "1  shop", &format!("1 {too_long}")]
        {
            assert_eq!(read(&format!("30000 a9993e364706816a {rest}")), unlabelled, "{rest:?}");
        }
    }
}
