use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::ZookeeperNode;
use super::jute::{JuteReader, JuteWriter};
use super::played_server::PlayedServer;
use super::session_tests::{Ensemble, OPEN, parse, settings};
use super::znodes::Znodes;
use crate::error::{ForeignKind, NodeError};
use crate::key::LockKey;
use crate::lock::{Dialect, HolderId, LockSpec, Mode, OwnerLabel};
use crate::node::{Found, FoundHolder, Node, Removal, ServerReport};

const FIRST: &str = "_c_a-lock-0000000003";
const SECOND: &str = "_c_b-lock-0000000005";
const DATA: &str = "30000 a9993e364706816a 1795000000 shop-7f9c:4121";
const LEASE: Duration = Duration::from_secs(30);
/// Error codes of a server.
const NO_NODE: i32 = -101;
const NO_AUTH: i32 = -102;
const BAD_VERSION: i32 = -103;

/// A node with a played server.
struct Played {
    znodes: Arc<Znodes>,
    server: PlayedServer<TcpStream>,
    _ensemble: Ensemble,
}

impl Played {
    async fn start() -> Self {
        let ensemble = Ensemble::start().await;
        let (session, _) = ensemble.session(OPEN);
        let znodes = Znodes::new(session, "", &Handle::current());
        let (server, _) = ensemble.accept(7).await;
        znodes.session.connected().await;
        Self { znodes, server, _ensemble: ensemble }
    }

    fn look(&self) -> JoinHandle<Result<Found, NodeError>> {
        tokio::spawn(Arc::clone(&self.znodes).look(spec()))
    }

    fn remove(&self, holder: HolderId) -> JoinHandle<Result<Removal, NodeError>> {
        tokio::spawn(Arc::clone(&self.znodes).remove_holder(spec(), holder))
    }

    /// Replies to a list of the folder.
    async fn children(&mut self, names: &[&str]) {
        let list = self.server.operation().await;
        assert_eq!((list.op, list.path()), (12, "/order"));
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        self.server.children(&list, &names).await;
    }

    /// Replies to a question about the data of a child, by the data with their version, or by an error.
    async fn data(&mut self, name: &str, answer: Result<(&str, i32), i32>) {
        let get = self.server.operation().await;
        assert_eq!((get.op, get.path()), (4, &*format!("/order/{name}")));
        match answer {
            Ok((data, version)) => {
                let mut body = JuteWriter::default();
                body.bytes(data.as_bytes()).long(1).long(2).long(3).long(4).int(version);
                body.int(6).int(7).long(8).int(9).int(10).long(11);
                self.server.reply(&get, 0, 0, &body.0).await;
            }
            Err(code) => self.server.reply(&get, 0, code, b"").await,
        }
    }

    /// Replies to the deletion of a child whose data have this version.
    async fn deleted(&mut self, name: &str, version: i32, code: i32) {
        let delete = self.server.operation().await;
        let mut body = JuteReader(&delete.body);
        let deleted = (delete.op, body.text(), body.int());
        assert_eq!(deleted, (2, Some(&*format!("/order/{name}")), Some(version)));
        self.server.reply(&delete, 0, code, b"").await;
    }
}

fn spec() -> LockSpec {
    LockSpec::new(LockKey::new("order").unwrap(), Mode::Exclusive, Dialect::Plain)
}

fn abc() -> HolderId {
    HolderId::of("abc")
}

#[tokio::test]
async fn a_look_names_the_first_child_and_counts_the_others() {
    let mut played = Played::start().await;
    let ours = FoundHolder::new(abc(), Some(LEASE));
    let of_other = FoundHolder::new(HolderId::of(FIRST), None);
    let label = |text| OwnerLabel::read(text);
    let since = UNIX_EPOCH + Duration::from_secs(1_795_000_000);
    for (answer, holder) in [
        (Ok((DATA, 1)), ours.clone().of_owner(label("shop-7f9c:4121"), Some(since))),
        (Ok(("30000 a9993e364706816a", 1)), ours),
        (Ok(("10.0.0.1", 0)), of_other.clone().of_owner(label("10.0.0.1"), None)),
        (Ok(("a secret", 0)), of_other.clone()),
        (Ok(("", 0)), of_other.clone()),
        (Err(NO_AUTH), of_other),
    ] {
        let looking = played.look();
        played.children(&[SECOND, FIRST]).await;
        played.data(FIRST, answer).await;
        let found = Found::exclusive(holder).with_waiting_writers(1);
        assert_eq!(looking.await.unwrap(), Ok(found), "{answer:?}");
    }
}

#[tokio::test]
async fn a_folder_that_is_empty_or_missing_is_free_and_another_recipe_is_foreign() {
    let mut played = Played::start().await;
    for (names, found) in [
        (&[][..], Found::free()),
        (&[FIRST, "uuid__lock__0000000001"], Found::foreign(ForeignKind::OtherRecipe)),
    ] {
        let looking = played.look();
        played.children(names).await;
        assert_eq!(looking.await.unwrap(), Ok(found));
    }
    let looking = played.look();
    let list = played.server.operation().await;
    played.server.reply(&list, 0, NO_NODE, b"").await;
    assert_eq!(looking.await.unwrap(), Ok(Found::free()));
    let removing = played.remove(abc());
    played.children(&["uuid__lock__0000000001"]).await;
    assert_eq!(removing.await.unwrap(), Ok(Removal::Foreign(ForeignKind::OtherRecipe)));
}

#[tokio::test]
async fn a_holder_that_leaves_meanwhile_is_not_shown() {
    let mut played = Played::start().await;
    let looking = played.look();
    played.children(&[FIRST, SECOND]).await;
    played.data(FIRST, Err(NO_NODE)).await;
    played.children(&[SECOND]).await;
    played.data(SECOND, Ok(("", 0))).await;
    let found = Found::exclusive(FoundHolder::new(HolderId::of(SECOND), None));
    assert_eq!(looking.await.unwrap(), Ok(found));
}

/// A waiter may turn its place into the lock, and a holder may extend its lease, between the comparison and the deletion.
#[tokio::test]
async fn a_removal_deletes_the_version_that_it_has_compared() {
    let mut played = Played::start().await;
    let removing = played.remove(abc());
    played.children(&[FIRST, SECOND]).await;
    played.data(FIRST, Ok((DATA, 4))).await;
    played.deleted(FIRST, 4, BAD_VERSION).await;
    played.children(&[FIRST, SECOND]).await;
    played.data(FIRST, Ok(("20000 a9993e364706816a", 5))).await;
    played.deleted(FIRST, 5, 0).await;
    let rest = Some(Duration::from_secs(20));
    assert_eq!(removing.await.unwrap(), Ok(Removal::removed(rest)));

    // The place of a waiter, which becomes the lock.
    let removing = played.remove(HolderId::of(FIRST));
    played.children(&[FIRST]).await;
    played.data(FIRST, Ok(("", 0))).await;
    played.deleted(FIRST, 0, BAD_VERSION).await;
    played.children(&[FIRST]).await;
    played.data(FIRST, Ok((DATA, 1))).await;
    assert_eq!(removing.await.unwrap(), Ok(Removal::NotHeld));
}

#[tokio::test]
async fn a_removal_leaves_every_other_holder() {
    let mut played = Played::start().await;
    for (names, name, data) in [
        (&[FIRST][..], FIRST, "30000 0123456789abcdef"),
        // The successor of the holder.
        (&[SECOND], SECOND, "10.0.0.1"),
    ] {
        let removing = played.remove(HolderId::of(FIRST));
        played.children(names).await;
        played.data(name, Ok((data, 1))).await;
        assert_eq!(removing.await.unwrap(), Ok(Removal::NotHeld));
    }
    let removing = played.remove(HolderId::of(FIRST));
    played.children(&[FIRST]).await;
    played.data(FIRST, Ok(("10.0.0.1", 1))).await;
    played.deleted(FIRST, 1, NO_NODE).await;
    assert_eq!(removing.await.unwrap(), Ok(Removal::NotHeld), "it has left");
}

#[tokio::test]
async fn a_report_has_the_server_and_the_session() {
    let ensemble = Ensemble::start().await;
    let node = ZookeeperNode::new(parse(&format!("zookeeper://{}{OPEN}", ensemble.address)));
    let unconnected = node.report();
    assert_eq!(unconnected.kind, "zookeeper");
    assert_eq!(unconnected.servers, [ServerReport::new(&*ensemble.address, false)]);
    node.start(&Handle::current(), &settings());
    let (_server, _) = ensemble.accept(0x100_0000_ab00_0007).await;
    node.started().unwrap().znodes.session.connected().await;
    let mut server = ServerReport::new(&*ensemble.address, true);
    server.session = Some("0x1000000ab000007".to_owned());
    server.session_timeout = Some(Duration::from_secs(40));
    server.product = Some("ZooKeeper");
    assert_eq!(node.report().servers, [server]);
}
