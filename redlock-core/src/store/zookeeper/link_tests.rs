use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use futures_util::{FutureExt, poll};
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;
use tokio::time::advance;
use tokio_util::sync::CancellationToken;

use super::evidence::Evidence;
use super::frames::ServerStream;
use super::jute::JuteWriter;
use super::link::{LinkRequests, SessionDriver, SessionLink};
use super::played_server::{CLOSE_SESSION, PlayedRequest, PlayedServer, SYNC};
use super::requests::{
    Acl, Children, CreateKind, ErrorCode, RequestError, create, delete, get_children, get_data,
    set_data,
};
use super::url::ZookeeperUrl;
use crate::clock::Clock;
use crate::clock::fake::RuntimeClock;
use crate::error::NodeError;
use crate::node::{NodeSettings, ServerReport};
use crate::store::kit::kept::KeptLink;
use crate::store::kit::link_contract::{self, PlayedLink, link_contract};

const T: Duration = Duration::from_secs(40);
const BEAT: Duration = Duration::from_secs(2);
const NODE_TIMEOUT: Duration = Duration::from_millis(800);

/// The end of the driver, and the state that it changes.
struct Driven {
    node_timeout: Duration,
    requests: LinkRequests,
    stream: ServerStream,
    clock: Arc<RuntimeClock>,
    evidence: Arc<Mutex<Evidence>>,
    closing: CancellationToken,
}

impl Driven {
    /// Drives the connection until it ends, and returns the reason and the greatest transaction number.
    async fn run(self) -> (Arc<str>, i64) {
        let clock: Arc<dyn Clock> = self.clock;
        let settings = NodeSettings { clock, ..NodeSettings::for_tests(self.node_timeout) };
        let url = ZookeeperUrl::parse("zookeeper://a/chroot?session_timeout=40s").unwrap();
        let driver = SessionDriver::new(&url, &settings, &self.evidence, &self.closing);
        let mut last_zxid = 0;
        let reason = driver.run(self.requests, self.stream, &mut last_zxid).await;
        (reason, last_zxid)
    }
}

fn connect() -> (PlayedServer<DuplexStream>, SessionLink, Driven) {
    connect_through(1 << 20, NODE_TIMEOUT)
}

/// As [`connect`], over a connection that holds this number of bytes in each direction.
fn connect_through(
    capacity: usize,
    node_timeout: Duration,
) -> (PlayedServer<DuplexStream>, SessionLink, Driven) {
    let (client, socket) = tokio::io::duplex(capacity);
    let (link, requests) = SessionLink::new(1, ServerReport::default());
    let clock = Arc::new(RuntimeClock::new());
    let evidence = Arc::new(Mutex::new(Evidence::new(T, clock.now())));
    let closing = CancellationToken::new();
    let stream = ServerStream::new(client);
    let driven = Driven { node_timeout, requests, stream, clock, evidence, closing };
    (PlayedServer { socket }, link, driven)
}

/// The reason of the end, and the greatest transaction number.
type Running = JoinHandle<(Arc<str>, i64)>;

/// Connects, and drives the connection in a task.
fn driven() -> (PlayedServer<DuplexStream>, SessionLink, Running) {
    let (server, link, driven) = connect();
    (server, link, tokio::spawn(driven.run()))
}

impl PlayedLink for PlayedServer<DuplexStream> {
    type Link = SessionLink;
    type Request = PlayedRequest;
    const LIMIT: Duration = Duration::from_secs(2);
    const SENDS_DROPPED: bool = true;
    const FINDS_UNREAD: bool = false;
    const NONSENSE: &'static [u8] = b"\0\0\0\x05short";
    const CUT: &'static str = "bytes remaining on stream";

    async fn connect(capacity: usize) -> (Self, Arc<SessionLink>, BoxFuture<'static, ()>) {
        let (server, link, driven) = connect_through(capacity, link_contract::NODE_TIMEOUT);
        (server, Arc::new(link), driven.run().map(drop).boxed())
    }

    fn send(link: &SessionLink, number: usize) -> BoxFuture<'_, Result<usize, NodeError>> {
        let reply = match link.send(get_children(&format!("/{number}"))) {
            Ok(reply) => reply,
            Err(error) => return ready(Err(error)).boxed(),
        };
        let number = |children: Children| children.names[0].parse().unwrap();
        reply.map(move |reply| reply.map(number).map_err(NodeError::from)).boxed()
    }

    async fn take(&mut self) -> (usize, PlayedRequest) {
        let request = self.operation().await;
        (request.path()[1..].parse().unwrap(), request)
    }

    async fn answer(&mut self, number: usize, request: &PlayedRequest) {
        self.children(request, &[number.to_string()]).await;
    }

    async fn answer_pings(&mut self) {
        loop {
            let beat = self.request().await;
            self.reply(&beat, 0, 0, b"").await;
        }
    }

    fn socket(&mut self) -> &mut DuplexStream {
        &mut self.socket
    }
}

link_contract!(PlayedServer<DuplexStream>);

fn broke(reason: &str) -> RequestError {
    RequestError::ConnectionBroke(reason.into())
}

#[tokio::test(start_paused = true)]
async fn requests_and_replies_have_the_encoding_of_zookeeper() {
    let (mut server, link, _task) = driven();
    let path = "/a";
    for (kind, acl, op, expected) in [
        (CreateKind::EphemeralSequential, Acl::Open, 1, &b"\0\0\0\x02/a\0\0\0\x01x\0\0\0\x01\0\0\0\x1f\0\0\0\x05world\0\0\0\x06anyone\0\0\0\x03"[..]),
        (CreateKind::Container, Acl::CreatorAll, 19, b"\0\0\0\x02/a\0\0\0\x01x\0\0\0\x01\0\0\0\x1f\0\0\0\x04auth\0\0\0\0\0\0\0\x04"),
    ] {
        let made = link.send(create(path, b"x", kind, acl)).unwrap();
        let request = server.operation().await;
        assert_eq!((request.op, &request.body[..]), (op, expected));
        server.reply(&request, 0, 0, b"\0\0\0\x03/a1").await;
        assert_eq!(made.await, Ok("/a1".to_owned()));
    }
    let mut stat = JuteWriter::default();
    stat.long(1).long(2).long(3).long(4).int(5).int(6).int(7).long(8).int(9).int(10).long(11);
    let stat = stat.0;
    let children = link.send(get_children(path)).unwrap();
    let request = server.operation().await;
    assert_eq!((request.op, &request.body[..]), (12, &b"\0\0\0\x02/a\0"[..]));
    server.reply(&request, 0, 0, &[b"\0\0\0\x02\0\0\0\x01b\0\0\0\x01c", &stat[..]].concat()).await;
    let expected = Children { names: vec!["b".into(), "c".into()], pzxid: 11 };
    assert_eq!(children.await, Ok(expected));
    let data = link.send(get_data(path)).unwrap();
    let request = server.operation().await;
    assert_eq!((request.op, &request.body[..]), (4, &b"\0\0\0\x02/a\0"[..]));
    server.reply(&request, 0, 0, &[b"\0\0\0\x01x", &stat[..]].concat()).await;
    assert_eq!(data.await, Ok((b"x".to_vec(), 5)));
    let set = link.send(set_data(path, b"y")).unwrap();
    let request = server.operation().await;
    assert_eq!(
        (request.op, &request.body[..]),
        (5, &b"\0\0\0\x02/a\0\0\0\x01y\xff\xff\xff\xff"[..])
    );
    server.reply(&request, 0, 0, &stat).await;
    assert_eq!(set.await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn an_error_says_whether_the_request_was_executed() {
    let (mut server, link, _task) = driven();
    for (code, text, expected) in [
        (-110, "NodeExists", NodeError::Server as fn(Arc<str>) -> NodeError),
        (-102, "NoAuth: the ACL of the node permits it to other logins", NodeError::NotPermitted),
        (-112, "SessionExpired", NodeError::ConnectionBroke),
        (-118, "SessionMoved", NodeError::ConnectionBroke),
        (-4, "error -4 of the server", NodeError::ConnectionBroke),
        (-127, "error -127 of the server", NodeError::Server),
    ] {
        let reply = link.send(delete("/a")).unwrap();
        let request = server.operation().await;
        server.reply(&request, 0, code, b"").await;
        let error = reply.await.unwrap_err();
        assert_eq!(error, RequestError::Code(ErrorCode::new(code)));
        assert_eq!(NodeError::from(error), expected(text.into()));
    }
    let reply = link.send(get_data("/a")).unwrap();
    let request = server.operation().await;
    server.reply(&request, 0, 0, b"\0\0\0\x09x").await;
    let error = reply.await.unwrap_err();
    assert_eq!(NodeError::from(error), NodeError::UnexpectedReply);
}

#[tokio::test(start_paused = true)]
async fn answered_beats_are_evidence_and_keep_the_connection() {
    let (mut server, link, driven) = connect();
    let (clock, evidence) = (Arc::clone(&driven.clock), Arc::clone(&driven.evidence));
    tokio::spawn(driven.run());
    let mut last = None;
    for _ in 0..100 {
        let request = server.request().await;
        assert_eq!((request.op, request.path()), (SYNC, "/chroot"));
        let interval = last.replace(clock.now()).map_or(BEAT, |last| clock.now().since(last));
        assert!(interval >= BEAT && interval < BEAT * 11 / 10, "{interval:?}");
        server.reply(&request, 0, 0, b"").await;
    }
    server.request().await;
    // The last answered beat was sent 2 s ago, and proves that the leader has heard of the session 10 s before.
    let vouch = |lease| evidence.lock().vouch(clock.now(), Duration::from_millis(lease));
    assert_eq!(vouch(39_600 - 12_200), Ok(()));
    assert!(vouch(39_600 - 12_000 + 1).is_err());
    assert!(link.ended().is_none());
}

/// The server may be a follower that has lost its leader.
#[tokio::test(start_paused = true)]
async fn refused_beats_are_no_evidence_and_end_the_connection() {
    let (mut server, _link, task) = driven();
    let mut beats = 0;
    while let Some(request) = server.next().await {
        server.reply(&request, 0, -4, b"").await;
        beats += 1;
        assert!(beats < 10, "3 of 8 parts of the session timeout are over");
    }
    let (reason, _) = task.await.unwrap();
    assert_eq!(&*reason, "this process or the ensemble has paused");
}

/// The process was stopped, or the machine was suspended.
#[tokio::test(start_paused = true)]
async fn after_a_pause_of_the_process_the_connection_ends_before_anything_is_sent() {
    let (mut server, link, driven) = connect();
    let mut run = pin!(driven.run());
    assert!(poll!(&mut run).is_pending());
    let beat = server.request().await;
    server.reply(&beat, 0, 0, b"").await;
    assert!(poll!(&mut run).is_pending());
    let reply = link.send(delete("/a")).unwrap();
    advance(T * 3 / 8 + Duration::from_millis(2)).await;
    let (reason, _) = run.await;
    assert_eq!(&*reason, "this process or the ensemble has paused");
    assert_eq!(reply.await, Err(broke("this process or the ensemble has paused")));
    assert_eq!(server.frame().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_its_node_or_with_the_connection() {
    let (mut server, link, task) = driven();
    let mut watches = Vec::new();
    for path in ["/a", "/a", "/b", "/c"] {
        let (reply, watch) = link.watch(path).unwrap();
        let request = server.operation().await;
        assert_eq!((request.op, request.path(), request.body.last()), (12, path, Some(&1)));
        let code = if path == "/c" { -101 } else { 0 };
        server.reply(&request, 0, code, b"").await;
        assert_eq!(reply.await.is_ok(), path != "/c");
        watches.push(watch);
    }
    watches.pop().unwrap().await;
    server.deleted("/d").await;
    for watch in &mut watches {
        assert!(poll!(watch).is_pending());
    }
    server.deleted("/a").await;
    for watch in watches.drain(..2) {
        watch.await;
    }
    assert!(poll!(&mut watches[0]).is_pending());
    drop(server);
    watches.pop().unwrap().await;
    assert_eq!(&*task.await.unwrap().0, "the server has closed the connection");
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_the_server_does_not_owe_ends_the_connection() {
    for wrong in 0..4 {
        let (mut server, link, task) = driven();
        let reply = link.send(delete("/a")).unwrap();
        let mut request = server.operation().await;
        request.xid += 1;
        match wrong {
            0 => server.reply(&request, 0, 0, b"").await,
            1 => server.send(&[b"short"]).await,
            // An event without its end.
            2 => server.send(&[&(-1_i32).to_be_bytes(), &[0; 12]]).await,
            _ => {
                request.xid -= 1;
                server.reply(&request, 0, 0, b"").await;
                server.reply(&request, 0, 0, b"").await;
            }
        }
        let expected =
            if wrong == 3 { Ok(()) } else { Err(broke("unexpected reply from the server")) };
        assert_eq!(reply.await, expected);
        assert_eq!(&*task.await.unwrap().0, "unexpected reply from the server");
    }
}

proptest! {
    /// The length of the frame is right, so that the content is read.
    #[test]
    fn any_frame_of_a_server_is_read_without_a_panic(frames: Vec<Vec<u8>>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (mut server, link, task) = driven();
            let (reply, watch) = link.watch("/a").unwrap();
            for frame in frames {
                server.send(&[&frame]).await;
            }
            drop(server);
            task.await.unwrap();
            assert!(reply.await.is_err());
            watch.await;
        });
    }
}

#[tokio::test(start_paused = true)]
async fn the_greatest_transaction_number_of_all_replies_is_kept() {
    let (mut server, link, task) = driven();
    for zxid in [7, 9, 8] {
        let reply = link.send(delete("/a")).unwrap();
        let request = server.operation().await;
        server.reply(&request, zxid, 0, b"").await;
        reply.await.unwrap();
    }
    server.deleted("/a").await;
    drop(server);
    assert_eq!(task.await.unwrap().1, 9);
}

#[tokio::test(start_paused = true)]
async fn the_session_is_closed_after_the_requests_that_were_sent() {
    let (mut server, link, driven) = connect();
    let closing = driven.closing.clone();
    let reply = link.send(delete("/a")).unwrap();
    closing.cancel();
    let task = tokio::spawn(driven.run());
    let requests = [server.operation().await, server.operation().await];
    assert_eq!(requests.each_ref().map(|request| request.op), [2, CLOSE_SESSION]);
    for request in &requests {
        server.reply(request, 0, 0, b"").await;
    }
    assert_eq!(reply.await, Ok(()));
    assert!(!task.is_finished(), "the reply to a request could still arrive");
    drop(server);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_read_delays_the_end_for_a_second() {
    let (server, _link, driven) = connect();
    let (clock, closing) = (Arc::clone(&driven.clock), driven.closing.clone());
    let task = tokio::spawn(driven.run());
    closing.cancel();
    let start = clock.now();
    let (reason, _) = task.await.unwrap();
    assert_eq!(&*reason, "the lock manager was dropped");
    assert_eq!(clock.now().since(start), Duration::from_secs(1));
    drop(server);
}
