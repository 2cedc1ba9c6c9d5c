use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::time::{sleep, timeout};

use super::link::{LinkDriver, LinkEvent, RequestContext, ServerLink};
use super::played_server::{PlayedServer, Request};
use super::session::{Answer, SqlValue, Work};
use super::sql::Statement;
use crate::clock::fake::RuntimeClock;
use crate::error::NodeError;
use crate::store::kit::kept::KeptLink;
use crate::store::kit::link_contract::{self, PlayedLink, link_contract};

const NODE_TIMEOUT: Duration = Duration::from_millis(800);
/// The time after which a server counts as silent, for this node timeout.
const LIMIT: Duration = Duration::from_secs(1);
const GRANTED: Option<(Option<i64>, Option<i64>)> = Some((Some(7), None));

async fn connect(has_pooler: bool) -> (PlayedServer, ServerLink, LinkDriver) {
    let (server, connected) = PlayedServer::connect(has_pooler).await;
    let (link, driver) = LinkDriver::new(connected, NODE_TIMEOUT, Arc::new(RuntimeClock::new()));
    (server, link, driver)
}

/// Connects, and drives the connection in a task.
async fn driven(has_pooler: bool) -> (PlayedServer, ServerLink) {
    let (server, link, driver) = connect(has_pooler).await;
    tokio::spawn(driver.run(|_| {}, || true));
    (server, link)
}

fn acquire() -> Work {
    let values = vec![
        SqlValue::Text("name".into()),
        SqlValue::Text("token".into()),
        SqlValue::Number(1_000_000),
        SqlValue::Null,
        SqlValue::Null,
    ];
    Work::Statement(Statement::Acquire, values)
}

impl PlayedLink for PlayedServer {
    type Link = ServerLink;
    type Request = Request;
    const LIMIT: Duration = LIMIT;
    const SENDS_DROPPED: bool = true;
    const FINDS_UNREAD: bool = false;
    const NONSENSE: &'static [u8] = &[0; 5];
    const CUT: &'static str = "bytes remaining on stream";

    async fn connect(capacity: usize) -> (Self, Arc<ServerLink>, BoxFuture<'static, ()>) {
        let (server, connected) = Self::connect_through(capacity, false).await;
        let clock = Arc::new(RuntimeClock::new());
        let (link, driver) = LinkDriver::new(connected, link_contract::NODE_TIMEOUT, clock);
        (server, Arc::new(link), driver.run(|_| {}, || true).map(drop).boxed())
    }

    fn send(link: &ServerLink, number: usize) -> BoxFuture<'_, Result<usize, NodeError>> {
        let values = vec![SqlValue::Text(number.to_string().into()), SqlValue::Text("".into())];
        let work = Work::Statement(Statement::Holder, values);
        let answer = link.send(work, RequestContext::default());
        let number = |answer: Answer| answer.number.unwrap().try_into().unwrap();
        answer.map(move |answer| answer.map(number)).boxed()
    }

    async fn take(&mut self) -> (usize, Request) {
        let request = self.operation().await;
        (
            std::str::from_utf8(request.parameters[0].as_ref().unwrap()).unwrap().parse().unwrap(),
            request,
        )
    }

    async fn answer(&mut self, number: usize, request: &Request) {
        let row = (Some(i64::try_from(number).unwrap()), None);
        Self::answer(self, request, Some(row)).await;
    }

    async fn answer_pings(&mut self) {
        loop {
            let request = self.request().await;
            Self::answer(self, &request, GRANTED).await;
        }
    }

    fn socket(&mut self) -> &mut DuplexStream {
        &mut self.socket
    }
}

link_contract!(PlayedServer);

fn release() -> Work {
    let values = vec![SqlValue::Text("name".into()), SqlValue::Text("token".into())];
    Work::Statement(Statement::Release, values)
}

fn released() -> RequestContext {
    RequestContext { released: Some("released".into()), ..RequestContext::default() }
}

/// The pooler may execute two statements in two sessions, and the second one first.
#[tokio::test(start_paused = true)]
async fn behind_a_pooler_a_request_waits_for_the_reply_of_the_one_before() {
    let (mut server, link) = driven(true).await;
    drop(link.send(acquire(), RequestContext::default()));
    drop(link.send(release(), released()));
    let request = server.operation().await;
    // Before a ping is due.
    let early = timeout(LIMIT * 4 / 10, server.operation()).await;
    assert!(early.is_err(), "{early:?}");
    server.answer(&request, GRANTED).await;
    let request = server.operation().await;
    assert!(request.is(Statement::Release), "{request:?}");
}

/// A step of the server's clock must be noticed under load, too.
#[tokio::test(start_paused = true)]
async fn behind_a_pooler_pings_go_between_the_requests_of_a_queue() {
    let (mut server, link) = driven(true).await;
    let mut pings = 0;
    for _ in 0..20 {
        // One more than the server has answered.
        drop(link.send(acquire(), RequestContext::default()));
        let request = server.request().await;
        drop(link.send(acquire(), RequestContext::default()));
        sleep(LIMIT / 10).await;
        pings += u32::from(request.is(Statement::Time));
        server.answer(&request, GRANTED).await;
    }
    assert!((3..=4).contains(&pings), "{pings} in {:?}", 2 * LIMIT);
}

/// A server gives up the wait for its standby with a warning, and then reports success.
#[tokio::test(start_paused = true)]
async fn a_warning_about_a_write_ends_the_connection_and_others_do_not() {
    let (mut server, link) = driven(false).await;
    for (severity, routine) in [
        ("NOTICE", "any"),
        ("WARNING", "GetNewTransactionId"),
        ("WARNING", "asyncQueueFillWarning"),
        ("WARNING", "SyncRepWaitForLSN"),
    ] {
        let answer = link.send(acquire(), RequestContext::default());
        let request = server.operation().await;
        server.notice(severity, routine).await;
        server.answer(&request, GRANTED).await;
        let broke = NodeError::ConnectionBroke("the server warned: the words of the server".into());
        let expected = if routine == "SyncRepWaitForLSN" { Err(broke) } else { Ok(7) };
        assert_eq!(answer.await.map(|answer| answer.number.unwrap()), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_says_whether_the_statement_was_executed() {
    let words = "the words of the server";
    for (severity, code, error) in [
        ("ERROR", "55P03", NodeError::Server(words.into())),
        ("ERROR", "42501", NodeError::NotPermitted(words.into())),
        ("FATAL", "57P01", NodeError::ConnectionBroke(words.into())),
        ("PANIC", "XX000", NodeError::ConnectionBroke(words.into())),
    ] {
        let (mut server, link) = driven(false).await;
        let answer = link.send(acquire(), RequestContext::default());
        server.operation().await;
        server.fail(severity, code).await;
        assert_eq!(answer.await, Err(error), "{severity}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_become_a_replica_loses_its_connection() {
    let (mut server, link) = driven(false).await;
    let (refused, open) = (
        link.send(acquire(), RequestContext::default()),
        link.send(acquire(), RequestContext::default()),
    );
    server.operation().await;
    server.fail("ERROR", "25006").await;
    assert_eq!(refused.await, Err(NodeError::Server("the words of the server".into())));
    let reason = "the server is a replica now: the words of the server";
    assert_eq!(open.await, Err(NodeError::ConnectionBroke(reason.into())));
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_pinged_once_after_each_use() {
    for has_pooler in [false, true] {
        let (mut server, link, driver) = connect(has_pooler).await;
        tokio::spawn(driver.run(|_| {}, || false));
        for _ in 0..2 {
            let request = timeout(10 * LIMIT, server.request()).await;
            assert!(request.is_err(), "{request:?}");
            let acquired = link.send(acquire(), RequestContext::default());
            for statement in [Statement::Acquire, Statement::Time] {
                let request = server.request().await;
                assert!(request.is(statement), "{request:?}");
                server.answer(&request, GRANTED).await;
            }
            assert!(acquired.await.is_ok());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_reads_the_clock_of_the_server_and_passes_notifications_and_releases_on() {
    let (mut server, link, driver) = connect(false).await;
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    tokio::spawn(driver.run(
        move |event| {
            seen.lock().push(match event {
                LinkEvent::Time(_) => "time".to_owned(),
                LinkEvent::Notified(channel) => channel,
                LinkEvent::Released(channel) => channel.into(),
            });
        },
        || true,
    ));
    server.notify("channel").await;
    for row in [GRANTED, None] {
        let done = link.send(release(), released());
        let request = server.operation().await;
        server.answer(&request, row).await;
        done.await.unwrap();
    }
    for _ in 0..4 {
        let ping = timeout(LIMIT, server.request()).await.expect("a ping");
        assert!(ping.is(Statement::Time));
        server.answer(&ping, Some((Some(1_790_000_000_000_000), None))).await;
    }
    server.request().await;
    assert_eq!(*events.lock(), ["channel", "released", "time", "time", "time", "time"]);
    sleep(2 * LIMIT).await;
    assert!(link.ended().is_some(), "an unanswered ping is silence too");
}

/// A pooler in transaction mode has led to another server, which may lack the locks of the former one.
#[tokio::test(start_paused = true)]
async fn a_grant_by_another_session_does_not_count_and_ends_the_connection() {
    for has_pooler in [false, true] {
        let (mut server, link) = driven(has_pooler).await;
        server.session = 2;
        let granted = link.send(acquire(), RequestContext::default());
        let request = server.operation().await;
        server.answer(&request, GRANTED).await;
        let granted = granted.await;
        if has_pooler {
            assert!(granted.is_ok(), "{granted:?}");
            continue;
        }
        let Err(NodeError::Server(reason)) = granted else { panic!("{granted:?}") };
        assert!(reason.contains("add pooler=transaction"), "{reason}");
        sleep(LIMIT).await;
        assert!(link.ended().unwrap().contains("add pooler=transaction"), "{:?}", link.ended());
    }
}

/// Without traffic, the ping that compares the clocks notices the other session.
#[tokio::test(start_paused = true)]
async fn a_ping_in_another_session_ends_the_connection() {
    let (mut server, link) = driven(false).await;
    server.session = 2;
    let ping = server.request().await;
    assert!(ping.is(Statement::Time), "{ping:?}");
    server.answer(&ping, GRANTED).await;
    sleep(LIMIT).await;
    assert!(link.ended().unwrap().contains("add pooler=transaction"), "{:?}", link.ended());
}
