//! The promises of every connection to a server, as tests over a server that the test plays.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join, join_all};
use futures_util::poll;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::{advance, sleep, timeout};

use super::kept::{Keeper, Kept, KeptLink};
use crate::error::NodeError;
use crate::node::NodeStatus;

/// The node timeout of the connections. It is shorter than each [`LIMIT`](PlayedLink::LIMIT).
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(400);
/// So many bytes that nobody waits for the other end.
pub(crate) const WIDE: usize = 1 << 20;

/// The server's end of a connection, which the test plays.
pub(crate) trait PlayedLink: Sized + Send + 'static {
    type Link: KeptLink + Send + Sync + 'static;
    type Request: Send;
    /// The time after which the connection to a silent server ends.
    const LIMIT: Duration;
    /// Whether a request is sent although its future was dropped before.
    const SENDS_DROPPED: bool;
    /// Whether the link finds a reply in the buffer of its socket that no task has read yet.
    const FINDS_UNREAD: bool;
    /// Bytes that are no reply.
    const NONSENSE: &'static [u8];
    /// Words of the reason when the server closes the connection within a reply.
    const CUT: &'static str;

    /// Makes a connection that holds this number of bytes in each direction, with its driver.
    fn connect(
        capacity: usize,
    ) -> impl Future<Output = (Self, Arc<Self::Link>, BoxFuture<'static, ()>)> + Send;

    /// Sends a request with this number at once. The future returns the number in the reply.
    fn send(link: &Self::Link, number: usize) -> BoxFuture<'_, Result<usize, NodeError>>;

    /// Waits for the next request that is no ping, and returns its number.
    fn take(&mut self) -> impl Future<Output = (usize, Self::Request)> + Send;

    /// Replies to a request by its number.
    fn answer(&mut self, number: usize, request: &Self::Request)
    -> impl Future<Output = ()> + Send;

    /// Replies to pings for ever.
    fn answer_pings(&mut self) -> impl Future<Output = ()> + Send;

    fn socket(&mut self) -> &mut DuplexStream;
}

/// Tests the promises of a connection whose server a [`PlayedLink`] plays.
macro_rules! link_contract {
    ($played:ty) => {
        link_contract! { $played:
            requests_are_sent_in_their_order_without_waiting_for_replies
            every_caller_gets_its_own_reply_from_frames_in_pieces
            a_slow_server_is_not_silent_and_a_silent_one_loses_its_connection
            a_server_that_owes_nothing_is_not_silent
            a_reply_that_a_late_process_has_not_read_yet_is_no_silence
            the_end_of_the_server_ends_all_requests
            bytes_that_are_no_reply_end_all_requests
            a_server_that_reads_nothing_loses_its_connection
            another_connection_replaces_one_that_broke
        }
    };
    ($played:ty: $($test:ident)+) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $test() {
                $crate::store::kit::link_contract::$test::<$played>().await;
            }
        )+
    };
}
pub(crate) use link_contract;

/// Connects, and drives the connection in a task.
async fn driven<P: PlayedLink>(capacity: usize) -> (P, Arc<P::Link>) {
    let (server, link, driver) = P::connect(capacity).await;
    tokio::spawn(driver);
    (server, link)
}

/// Waits for this number of requests.
async fn take<P: PlayedLink>(server: &mut P, count: usize) -> Vec<(usize, P::Request)> {
    let mut requests = Vec::new();
    while requests.len() < count {
        requests.push(server.take().await);
    }
    requests
}

/// Returns the reason of the end. A later request is not sent, and has this reason.
async fn end_of<P: PlayedLink>(link: &P::Link) -> Arc<str> {
    let reason = link.ended().expect("the connection has ended");
    assert_eq!(P::send(link, 0).await, Err(NodeError::NotConnected(Arc::clone(&reason))));
    reason
}

pub(crate) async fn requests_are_sent_in_their_order_without_waiting_for_replies<P: PlayedLink>() {
    let (mut server, link) = driven::<P>(WIDE).await;
    let mut numbers: Vec<usize> = (0..200).collect();
    let mut replies: Vec<_> = numbers.iter().map(|number| P::send(&link, *number)).collect();
    drop(replies.remove(7));
    if !P::SENDS_DROPPED {
        numbers.remove(7);
    }
    let requests = take(&mut server, numbers.len()).await;
    assert_eq!(requests.iter().map(|(number, _)| *number).collect::<Vec<_>>(), numbers);
    for (number, request) in &requests {
        server.answer(*number, request).await;
    }
    numbers.retain(|number| *number != 7);
    assert_eq!(join_all(replies).await, numbers.into_iter().map(Ok).collect::<Vec<_>>());
}

pub(crate) async fn every_caller_gets_its_own_reply_from_frames_in_pieces<P: PlayedLink>() {
    const COUNT: usize = 50;
    for capacity in [1, 7, 100] {
        let (mut server, link) = driven::<P>(capacity).await;
        let replies = join_all((0..COUNT).map(|number| P::send(&link, number)));
        let answers = async {
            for _ in 0..COUNT {
                let (number, request) = server.take().await;
                server.answer(number, &request).await;
            }
        };
        let all = timeout(P::LIMIT, join(replies, answers));
        let (replies, ()) = all.await.expect("all replies");
        assert_eq!(replies, (0..COUNT).map(Ok).collect::<Vec<_>>(), "{capacity}");
    }
}

pub(crate) async fn a_slow_server_is_not_silent_and_a_silent_one_loses_its_connection<
    P: PlayedLink,
>() {
    let (mut server, link) = driven::<P>(WIDE).await;
    let is_silent = || link.silence(NODE_TIMEOUT).is_silent();
    let mut replies: Vec<_> = (0..5).map(|number| P::send(&link, number)).collect();
    let requests = take(&mut server, 5).await;
    for (number, request) in &requests[..4] {
        sleep(P::LIMIT * 9 / 10).await;
        assert!(is_silent());
        server.answer(*number, request).await;
        sleep(NODE_TIMEOUT / 8).await;
        assert!(!is_silent(), "it has replied");
    }
    sleep(NODE_TIMEOUT / 2).await;
    assert!(!is_silent());
    sleep(NODE_TIMEOUT * 3 / 4).await;
    assert!(is_silent());
    assert_eq!(link.ended(), None, "the limit is longer");
    let last = replies.pop().unwrap();
    assert_eq!(join_all(replies).await, [Ok(0), Ok(1), Ok(2), Ok(3)]);
    let last = timeout(P::LIMIT, last).await.expect("the end");
    let reason = end_of::<P>(&link).await;
    assert!(reason.contains("no reply"), "{reason}");
    assert_eq!(last, Err(NodeError::ConnectionBroke(reason)));
}

pub(crate) async fn a_server_that_owes_nothing_is_not_silent<P: PlayedLink>() {
    let (mut server, link) = driven::<P>(WIDE).await;
    let check = async {
        for _ in 0..20 {
            sleep(P::LIMIT * 9 / 10).await;
            assert!(!link.silence(NODE_TIMEOUT).is_silent());
        }
    };
    tokio::select! {
        () = server.answer_pings() => unreachable!(),
        () = check => assert_eq!(link.ended(), None),
    }
}

/// The process was stopped, or another task kept the thread busy, while the reply arrived. The runtime may notice the time
/// before it notices the reply.
pub(crate) async fn a_reply_that_a_late_process_has_not_read_yet_is_no_silence<P: PlayedLink>() {
    for notices_time_first in [false, true] {
        if notices_time_first && P::FINDS_UNREAD {
            continue;
        }
        let (mut server, link, mut driver) = P::connect(WIDE).await;
        let reply = P::send(&link, 7);
        let (number, request) = tokio::select! {
            biased;
            () = &mut driver => unreachable!(),
            request = server.take() => request,
        };
        assert!(poll!(&mut driver).is_pending());
        if !notices_time_first {
            server.answer(number, &request).await;
        }
        advance(5 * P::LIMIT).await;
        assert!(poll!(&mut driver).is_pending(), "{:?}", link.ended());
        if notices_time_first {
            server.answer(number, &request).await;
            assert!(poll!(&mut driver).is_pending(), "{:?}", link.ended());
        }
        let reply = tokio::select! {
            biased;
            () = &mut driver => panic!("{:?}", link.ended()),
            reply = timeout(P::LIMIT / 2, reply) => reply.expect("the reply"),
        };
        assert_eq!(reply, Ok(7));
        assert!(!link.silence(NODE_TIMEOUT).is_silent());
    }
}

/// A connection may end between two replies, or within one.
pub(crate) async fn the_end_of_the_server_ends_all_requests<P: PlayedLink>() {
    for is_cut in [false, true] {
        let (mut server, link) = driven::<P>(3).await;
        let mut replies = join_all([P::send(&link, 0), P::send(&link, 1)]);
        let (number, request) = server.take().await;
        if is_cut {
            assert!(poll!(pin!(server.answer(number, &request))).is_pending(), "too short a reply");
        }
        assert!(poll!(&mut replies).is_pending());
        drop(server);
        for reply in timeout(P::LIMIT, replies).await.expect("the end") {
            assert!(matches!(reply, Err(NodeError::ConnectionBroke(_))), "{reply:?}");
        }
        sleep(NODE_TIMEOUT).await;
        let reason = end_of::<P>(&link).await;
        assert!(reason.contains(if is_cut { P::CUT } else { "closed" }), "{reason}");
    }
}

pub(crate) async fn bytes_that_are_no_reply_end_all_requests<P: PlayedLink>() {
    let (mut server, link) = driven::<P>(WIDE).await;
    let replies = join_all([P::send(&link, 0), P::send(&link, 1)]);
    take(&mut server, 2).await;
    server.socket().write_all(P::NONSENSE).await.unwrap();
    for reply in timeout(P::LIMIT, replies).await.expect("the end") {
        assert!(matches!(reply, Err(NodeError::ConnectionBroke(_))), "{reply:?}");
    }
    sleep(NODE_TIMEOUT).await;
    let reason = end_of::<P>(&link).await;
    assert!(!reason.contains("no reply"), "{reason}");
}

/// The socket takes no bytes, so that the driver is in the middle of a write.
pub(crate) async fn a_server_that_reads_nothing_loses_its_connection<P: PlayedLink>() {
    let (_server, link) = driven::<P>(16).await;
    let replies = join_all((0..200).map(|number| P::send(&link, number)));
    let replies = timeout(2 * P::LIMIT, replies).await.expect("the end");
    let reason = end_of::<P>(&link).await;
    assert!(reason.contains("no reply"), "{reason}");
    for reply in replies {
        assert_eq!(reply, Err(NodeError::ConnectionBroke(Arc::clone(&reason))));
    }
}

/// Hands the server's end of each connection to the test.
struct PlayedKeeper<P>(mpsc::UnboundedSender<P>);

impl<P: PlayedLink> Keeper for PlayedKeeper<P> {
    type Link = P::Link;
    type Driver = BoxFuture<'static, ()>;

    async fn connect(&mut self) -> Result<(Arc<P::Link>, Self::Driver), NodeError> {
        let (server, link, driver) = P::connect(WIDE).await;
        self.0.send(server).map_err(drop).unwrap();
        Ok((link, driver))
    }

    async fn serve(&mut self, link: Arc<P::Link>, driver: Self::Driver) -> Arc<str> {
        driver.await;
        link.ended().expect("the driver ends with its connection")
    }

    fn changed(&mut self, _: NodeStatus, _: bool) {}
}

pub(crate) async fn another_connection_replaces_one_that_broke<P: PlayedLink>() {
    let (sender, mut servers) = mpsc::unbounded_channel();
    let kept = Arc::new(Kept::new());
    let keep = Arc::clone(&kept);
    let task = tokio::spawn(async move { keep.keep(&mut PlayedKeeper::<P>(sender)).await });
    assert!(kept.link().is_err());
    for number in 0..3 {
        assert!(timeout(P::LIMIT, kept.reconnect()).await.expect("an attempt"));
        let mut server = servers.recv().await.unwrap();
        let link = kept.link().unwrap();
        let answer = async {
            let (number, request) = server.take().await;
            server.answer(number, &request).await;
        };
        assert_eq!(join(P::send(&link, number), answer).await.0, Ok(number));
        let mut open = P::send(&link, number);
        assert!(poll!(&mut open).is_pending());
        server.take().await;
        drop(server);
        assert!(matches!(open.await, Err(NodeError::ConnectionBroke(_))));
        kept.status().wait_for(|status| !status.is_up()).await;
        let reason = end_of::<P>(&link).await;
        assert_eq!(kept.link().err(), Some(NodeError::NotConnected(reason)));
    }
    kept.stopped.cancel();
    timeout(P::LIMIT, task).await.expect("the end").unwrap();
}
