use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use redlock_logs::Logs;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{advance, sleep, timeout};

use super::channels::channel;
use super::link::{LinkDriver, LinkEvent};
use super::played_server::{PlayedRow, PlayedServer, Request, findings};
use super::schema::Findings;
use super::sql::Statement;
use super::state::PostgresState;
use super::url::PostgresUrl;
use crate::clock::Clock;
use crate::clock::fake::FakeClock;
use crate::error::{ForeignKind, NodeError, Vote};
use crate::lock::{Dialect, HolderId, LockOwner, LockSpec, Mode, OwnerLabel, Token};
use crate::node::{
    Action, Ask, Found, FoundHolder, LockKey, NodeSettings, NodeStatus, Op, Removal, Reply,
    ServerReport, StatusSender,
};
use crate::store::kit::gate::Closures;

const LEASE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(5);
const GRANTED: Option<(Option<i64>, Option<i64>)> = Some((Some(7), None));

fn node(parameters: &str) -> Arc<PostgresState> {
    node_with(parameters, Duration::from_secs(60))
}

fn node_with(parameters: &str, node_timeout: Duration) -> Arc<PostgresState> {
    let url = PostgresUrl::parse(&format!("postgres://app@db/shop?{parameters}")).unwrap();
    let mut settings = NodeSettings::for_tests(node_timeout);
    settings.restart_guard = Some(LEASE);
    settings.failover_margin = Some(MARGIN);
    let status = StatusSender::new(NodeStatus::Connecting);
    let (released, _) = mpsc::unbounded_channel();
    Arc::new(PostgresState::new("db".into(), url, settings, status, released))
}

/// Connects the node, and drives the connection in a task.
async fn connect(node: &PostgresState) -> PlayedServer {
    connect_with(node, |_| {}).await
}

async fn connect_with(
    node: &PostgresState,
    on_event: impl FnMut(LinkEvent) + Send + 'static,
) -> PlayedServer {
    let (server, connected) = PlayedServer::connect(node.url.has_pooler).await;
    let NodeSettings { node_timeout, clock, .. } = &node.settings;
    let (link, driver) = LinkDriver::new(connected, *node_timeout, Arc::clone(clock));
    tokio::spawn(driver.run(on_event, || true));
    node.slot("order:42").set(Ok(Arc::new(link)), |_, _| {});
    server
}

fn spec() -> LockSpec {
    LockSpec::new(LockKey::new("order:42").unwrap(), Mode::Exclusive, Dialect::Plain)
}

fn op(token: Token, action: Action) -> Op {
    Op::new(&spec(), token, action)
}

fn acquire() -> Action {
    Action::Acquire { lease: LEASE, fenced: false, ask: Ask::FIRST }
}

fn execute(node: &Arc<PostgresState>, token: Token, action: Action) -> JoinHandle<Reply> {
    tokio::spawn(Arc::clone(node).execute(op(token, action)))
}

#[tokio::test(start_paused = true)]
async fn the_row_of_the_answer_is_the_vote() {
    let node = node("connections=1");
    let mut server = connect(&node).await;
    let fenced = Action::Acquire { lease: LEASE, fenced: true, ask: Ask::FIRST };
    let release = |min_hold| Action::Release { min_hold };
    let rest = Duration::from_micros(3);
    for (action, statement, row, reply) in [
        (acquire(), Statement::Acquire, GRANTED, Vote::Agreed.into()),
        (fenced, Statement::Acquire, GRANTED, Reply::new(Vote::Agreed).with_number(7)),
        (acquire(), Statement::Acquire, Some((None, Some(3))), Vote::held(Some(rest)).into()),
        (Action::Extend { lease: LEASE }, Statement::Extend, GRANTED, Vote::Agreed.into()),
        (Action::Extend { lease: LEASE }, Statement::Extend, None, Vote::NotHeld.into()),
        (Action::Confirm { number: 9 }, Statement::Confirm, GRANTED, Vote::Agreed.into()),
        (release(Some(MARGIN)), Statement::Shorten, GRANTED, Vote::Agreed.into()),
        (release(None), Statement::Release, GRANTED, Vote::Agreed.into()),
        (release(None), Statement::Release, None, Vote::NotHeld.into()),
    ] {
        let executed = execute(&node, Token::random(Dialect::Plain), action);
        let request = server.operation().await;
        assert!(request.is(statement), "{action:?}");
        server.answer(&request, row).await;
        assert_eq!(executed.await.unwrap(), reply, "{action:?}");
    }
}

/// Of several servers, each caller may win the race for another one.
#[tokio::test(start_paused = true)]
async fn a_caller_that_loses_a_race_asks_for_the_winner() {
    let node = node("connections=1");
    let mut server = connect(&node).await;
    let rest = Duration::from_micros(3);
    // A winner without a row has left the lock.
    for (row, vote) in
        [(Some((None, Some(3))), Vote::held(Some(rest))), (None, Vote::held(Some(Duration::ZERO)))]
    {
        let executed = execute(&node, Token::random(Dialect::Plain), acquire());
        for (statement, row) in [(Statement::Acquire, None), (Statement::Holder, row)] {
            let request = server.operation().await;
            assert!(request.is(statement), "{statement:?}");
            server.answer(&request, row).await;
        }
        assert_eq!(executed.await.unwrap(), vote.into(), "{row:?}");
    }
}

fn text(request: &Request, index: usize) -> Option<&str> {
    request.parameters[index].as_deref().map(|text| std::str::from_utf8(text).unwrap())
}

/// A take-over of an old row must not keep the label of the former holder.
#[tokio::test(start_paused = true)]
async fn an_acquisition_writes_label_and_time_or_two_nulls() {
    let node = node("connections=1");
    let mut server = connect(&node).await;
    let clock = FakeClock::default();
    let label = OwnerLabel::new(&"#@/!".repeat(16)).unwrap();
    for label in [Some(label), None] {
        let token = LockOwner::new(label.clone()).token(Dialect::Plain, &clock, clock.now());
        let executed = execute(&node, token, acquire());
        let request = server.operation().await;
        let (digest, id) = (text(&request, 1).unwrap(), token.holder_id().to_string());
        assert_eq!((digest.len(), &digest[..16]), (32, &*id));
        assert_eq!(text(&request, 3), label.as_ref().map(OwnerLabel::as_str));
        let seconds = FakeClock::UNIX_TIME.to_be_bytes().to_vec();
        assert_eq!(request.parameters[4], label.map(|_| seconds));
        server.answer(&request, GRANTED).await;
        assert_eq!(executed.await.unwrap().vote, Vote::Agreed);
        // The text that the store compares is the same.
        let executed = execute(&node, token, Action::Release { min_hold: None });
        let request = server.operation().await;
        assert_eq!(text(&request, 1).unwrap()[..16], *id);
        server.answer(&request, GRANTED).await;
        executed.await.unwrap();
    }
}

const HOLDER: PlayedRow = PlayedRow {
    number: None,
    rest: Some(3),
    holder: Some("a9993e364706816a"),
    label: Some("shop-7f9c:4121"),
    since: Some(1_795_000_000),
};

/// A foreign text in the column may contain a secret.
#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_holder_by_its_label() {
    let node = node("connections=1");
    let mut server = connect(&node).await;
    let too_long: &str = "x".repeat(65).leak();
    let labels = [HOLDER.label, None, Some(""), Some("a secret"), Some(too_long)];
    for (index, label) in labels.into_iter().enumerate() {
        for is_race in [false, true] {
            let executed = execute(&node, Token::random(Dialect::Plain), acquire());
            let mut request = server.operation().await;
            if is_race {
                server.answer(&request, None).await;
                request = server.operation().await;
            }
            server.answer_by(&request, Some(PlayedRow { label, ..HOLDER })).await;
            let expected = Vote::Held {
                holder: Some(HolderId::of("abc")),
                label: label.filter(|_| index == 0).and_then(OwnerLabel::read),
                remaining: Some(Duration::from_micros(3)),
            };
            assert_eq!(executed.await.unwrap().vote, expected, "{label:?}");
        }
    }
}

/// Operators look while a server that was promoted grants nothing.
#[tokio::test(start_paused = true)]
async fn a_look_reads_the_row_also_while_the_gate_is_closed() {
    let node = node("connections=1");
    let mut server = connect(&node).await;
    node.gate.close(Closures::after_restart(LEASE, None, None));
    let since = UNIX_EPOCH + Duration::from_secs(1_795_000_000);
    let holder = FoundHolder::new(HolderId::of("abc"), Some(Duration::from_micros(3)));
    let of = |label, since| Found::exclusive(holder.clone().of_owner(label, since));
    let label = OwnerLabel::read("shop-7f9c:4121");
    for (row, found) in [
        (None, Found::free()),
        (Some(HOLDER), of(label.clone(), Some(since))),
        (Some(PlayedRow { since: None, ..HOLDER }), of(label.clone(), None)),
        (Some(PlayedRow { since: Some(-1), ..HOLDER }), of(label, None)),
        (Some(PlayedRow { label: None, ..HOLDER }), of(None, None)),
        (Some(PlayedRow { label: Some("a secret"), ..HOLDER }), of(None, None)),
        (
            Some(PlayedRow { holder: Some("a secret"), ..HOLDER }),
            Found::foreign(ForeignKind::WrongType),
        ),
    ] {
        let looking = tokio::spawn(Arc::clone(&node).look(spec()));
        let request = server.operation().await;
        assert!(request.is(Statement::Holder));
        assert_eq!((text(&request, 0), text(&request, 1)), (Some("order:42"), Some("")));
        server.answer_by(&request, row).await;
        assert_eq!(looking.await.unwrap(), Ok(found), "{row:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_removal_compares_the_id_and_notifies_the_channel() {
    let node = node("connections=1");
    let (notified, mut channels) = mpsc::unbounded_channel();
    let on_event = move |event| {
        if let LinkEvent::Released(channel) = event {
            notified.send(channel).unwrap();
        }
    };
    let mut server = connect_with(&node, on_event).await;
    node.gate.close(Closures::after_restart(LEASE, None, None));
    let id = HolderId::of("abc");
    let rest = Some(Duration::from_micros(3));
    for (row, removal) in
        [(None, Removal::NotHeld), (Some((Some(7), Some(3))), Removal::removed(rest))]
    {
        let removing = tokio::spawn(Arc::clone(&node).remove(spec(), id));
        let request = server.operation().await;
        assert!(request.is(Statement::Remove));
        assert_eq!(
            (text(&request, 0), text(&request, 1)),
            (Some("order:42"), Some("a9993e364706816a"))
        );
        server.answer(&request, row).await;
        assert_eq!(removing.await.unwrap(), Ok(removal));
    }
    let first = timeout(MARGIN, channels.recv()).await.expect("a notification");
    assert_eq!(first, Some(channel("order:42")));
    assert!(channels.is_empty(), "without a removal, no channel is notified");
}

/// The server would remove the holder when nobody waits for it any more.
#[tokio::test(start_paused = true)]
async fn a_silent_server_gets_neither_a_look_nor_a_removal() {
    let timeout = Duration::from_millis(600);
    let node = node_with("connections=1", timeout);
    let mut server = connect(&node).await;
    let looking = tokio::spawn(Arc::clone(&node).look(spec()));
    server.operation().await;
    sleep(timeout * 3 / 2).await;
    let no_reply = |error| matches!(error, NodeError::NoReply(_));
    assert!(Arc::clone(&node).look(spec()).await.is_err_and(no_reply));
    assert!(Arc::clone(&node).remove(spec(), HolderId::of("abc")).await.is_err_and(no_reply));
    assert!(matches!(looking.await.unwrap(), Err(NodeError::ConnectionBroke(_))));
}

#[tokio::test(start_paused = true)]
async fn a_report_has_the_server_its_timeline_and_the_quarantine() {
    let node = node("connections=1");
    let unconnected = node.report();
    assert_eq!(unconnected.kind, "postgres");
    assert_eq!(unconnected.servers, [ServerReport::new("db:5432", false)]);
    assert_eq!((unconnected.quarantine, unconnected.round_trip), (None, None));
    let _server = connect(&node).await;
    node.gate.close(Closures::after_restart(LEASE, None, None));
    let report = node.report();
    let mut expected = ServerReport::new("db:5432", true);
    expected.timeline = Some(1);
    (expected.product, expected.version) = (Some("PostgreSQL"), Some("18.1".to_owned()));
    assert_eq!(report.servers, [expected]);
    assert!(matches!(report.quarantine, Some(NodeError::Restarted { .. })));
}

/// The server may have forgotten a lock.
#[tokio::test(start_paused = true)]
async fn a_closed_gate_stops_grants_before_and_after_they_are_sent() {
    let node = node("connections=1");
    let mut server = connect(&node).await;
    let token = Token::random(Dialect::Plain);
    let executed = execute(&node, token, acquire());
    let request = server.operation().await;
    node.gate.close(Closures::after_restart(LEASE, None, None));
    server.answer(&request, GRANTED).await;
    let is_restarted =
        |reply: &Reply| matches!(reply.vote, Vote::Failed(NodeError::Restarted { .. }));
    assert!(is_restarted(&executed.await.unwrap()), "it was sent before");
    assert!(is_restarted(&execute(&node, token, acquire()).await.unwrap()));
    // The next request is the extension: the refused acquisition was not sent.
    let executed = execute(&node, token, Action::Extend { lease: LEASE });
    let request = server.operation().await;
    assert!(request.is(Statement::Extend));
    server.answer(&request, GRANTED).await;
    assert_eq!(executed.await.unwrap().vote, Vote::Agreed);
}

/// The former primary server may still grant the lock to another caller.
#[tokio::test(start_paused = true)]
async fn an_extension_does_not_count_if_it_was_sent_or_answered_within_the_margin() {
    let node = node("connections=1");
    let mut server = connect(&node).await;
    let promote =
        || node.gate.close(Closures::after_promotion(LEASE, MARGIN, tokio::time::Instant::now()));
    let is_promoted =
        |reply: &Reply| matches!(reply.vote, Vote::Failed(NodeError::Promoted { .. }));
    let token = Token::random(Dialect::Plain);
    let executed = execute(&node, token, Action::Extend { lease: LEASE });
    let request = server.operation().await;
    promote();
    server.answer(&request, GRANTED).await;
    assert!(is_promoted(&executed.await.unwrap()), "answered within the margin");
    let executed = execute(&node, token, Action::Extend { lease: LEASE });
    let request = server.operation().await;
    advance(MARGIN).await;
    server.answer(&request, GRANTED).await;
    assert!(is_promoted(&executed.await.unwrap()), "sent within the margin");
}

#[tokio::test(start_paused = true)]
async fn a_promoted_server_grants_nothing_for_the_longest_lease_and_the_margin() {
    let promoted = |timeline, ago: Option<u64>| Findings {
        server: (1, timeline),
        promoted_ago: ago.map(Duration::from_secs),
        ..findings()
    };
    let votes_in = |node: &PostgresState| match node.gate.check_grants() {
        Ok(()) => 0,
        Err(NodeError::Promoted { votes_in, .. }) => votes_in.as_secs(),
        Err(error) => panic!("{error}"),
    };
    for (first, ago, expected) in [(1, None, 0), (2, None, 35), (2, Some(10), 25), (2, Some(40), 0)]
    {
        let node = node("connections=1");
        node.admit(&promoted(first, ago)).unwrap();
        assert_eq!(votes_in(&node), expected, "the first connection: {first} {ago:?}");
    }
    let node = node("connections=1");
    for _ in 0..2 {
        node.admit(&promoted(1, None)).unwrap();
    }
    assert_eq!(votes_in(&node), 0);
    // The former primary has granted locks until now.
    node.admit(&promoted(2, Some(3600))).unwrap();
    assert_eq!(votes_in(&node), 35);
    advance(LEASE + MARGIN).await;
    node.admit(&promoted(2, Some(3600))).unwrap();
    assert_eq!(votes_in(&node), 0);
    let former = node.admit(&promoted(1, None));
    assert!(matches!(former, Err(NodeError::Server(_))), "{former:?}");
    node.admit(&Findings { server: (2, 2), ..promoted(2, None) }).unwrap();
    assert_eq!(votes_in(&node), 35, "a server with other data");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_may_forget_grants_nothing_after_its_start() {
    let node = node("connections=1");
    let uptime = Duration::from_secs(10);
    node.admit(&Findings { uptime, ..findings() }).unwrap();
    assert_eq!(node.gate.check_grants(), Ok(()));
    node.admit(&Findings { uptime, may_forget: true, ..findings() }).unwrap();
    assert!(matches!(node.gate.check_grants(), Err(NodeError::Restarted { .. })));
}

/// The server may refuse one more connection. Without the notification, waiters poll.
#[tokio::test(start_paused = true)]
async fn without_a_connection_for_notifications_a_release_is_notified_over_another_one() {
    let logs = Logs::collect();
    let node = node("connections=1");
    let mut server = connect(&node).await;
    let (released, receiver) = mpsc::unbounded_channel();
    tokio::spawn(Arc::clone(&node).announce(receiver));
    released.send("channel".into()).unwrap();
    let request = timeout(MARGIN, server.operation()).await.expect("a notification");
    assert!(request.is(Statement::Notify), "{request:?}");
    assert_eq!(logs.count("WARN", "releases are not notified"), 1);
}

/// Nobody can end the session that may still execute it.
#[tokio::test(start_paused = true)]
async fn behind_a_pooler_a_lost_acquisition_is_not_released_before_its_lease_is_over() {
    let node = node("connections=1&pooler=transaction");
    let [answered, lost] = [(); 2].map(|()| Token::random(Dialect::Plain));
    let mut server = connect(&node).await;
    let executed = execute(&node, answered, acquire());
    let request = server.operation().await;
    server.answer(&request, GRANTED).await;
    executed.await.unwrap();
    let executed = execute(&node, lost, acquire());
    server.operation().await;
    server.fail("FATAL", "57P01").await;
    let broke = |reply: &Reply| matches!(reply.vote, Vote::Failed(NodeError::ConnectionBroke(_)));
    assert!(broke(&executed.await.unwrap()));
    let mut server = connect(&node).await;
    let mut release = async |token| {
        let executed = execute(&node, token, Action::Release { min_hold: None });
        let request = server.operation().await;
        server.answer(&request, None).await;
        executed.await.unwrap()
    };
    assert_eq!(release(answered).await.vote, Vote::NotHeld);
    assert!(broke(&release(lost).await));
    advance(LEASE).await;
    let mut server = connect(&node).await;
    let executed = execute(&node, lost, Action::Release { min_hold: None });
    let request = server.operation().await;
    server.answer(&request, None).await;
    assert_eq!(executed.await.unwrap().vote, Vote::NotHeld);
}

/// The server would execute anything else too late for its caller.
#[tokio::test(start_paused = true)]
async fn a_silent_server_gets_only_releases() {
    let timeout = Duration::from_millis(600);
    let node = node_with("connections=1", timeout);
    let mut server = connect(&node).await;
    let token = Token::random(Dialect::Plain);
    let acquisition = execute(&node, token, acquire());
    server.operation().await;
    // The connection ends after 1 s.
    sleep(timeout * 3 / 2).await;
    let no_reply = |reply: &Reply| matches!(reply.vote, Vote::Failed(NodeError::NoReply(_)));
    for action in [acquire(), Action::Extend { lease: LEASE }] {
        assert!(no_reply(&execute(&node, token, action).await.unwrap()), "{action:?}");
    }
    let release = execute(&node, token, Action::Release { min_hold: None });
    assert!(server.operation().await.is(Statement::Release));
    for pending in [acquisition, release] {
        let vote = pending.await.unwrap().vote;
        assert!(matches!(vote, Vote::Failed(NodeError::ConnectionBroke(_))), "{vote:?}");
    }
}

/// The operations with one token keep their order only over one connection.
#[tokio::test]
async fn the_operations_on_a_lock_go_over_one_connection() {
    let node = node("connections=16");
    let slots: Vec<_> = (0..64).map(|index| index.to_string()).collect();
    let slots: Vec<_> = slots.iter().map(|name| std::ptr::from_ref(node.slot(name))).collect();
    let again: Vec<_> =
        (0..64).map(|index| std::ptr::from_ref(node.slot(&index.to_string()))).collect();
    assert_eq!(slots, again);
    assert!(slots.iter().any(|slot| *slot != slots[0]), "others share the load");
}

/// A name with two servers leads each connection to one of them, and each process too.
#[tokio::test]
async fn another_database_is_a_warning_that_names_both() {
    let logs = Logs::collect();
    let fresh = node;
    let node = fresh("connections=1");
    let other = |system: i64, database: &str| Findings {
        server: (system, 1),
        database: database.to_owned(),
        ..findings()
    };
    for (system, database, warnings) in
        [(1, "shop", 0), (1, "shop", 0), (2, "shop", 1), (2, "shop", 1)]
    {
        node.admit(&other(system, database)).unwrap();
        assert_eq!(logs.count("WARN", "leads to another database"), warnings, "{system}");
    }
    let lines = logs.lines();
    assert!(
        lines.iter().any(|line| line.contains("postgres:1:shop:public")
            && line.contains("postgres:2:shop:public")),
        "{lines:?}"
    );
    assert_eq!(logs.count("WARN", "another server has taken over"), 0);
    // A pooler may lead to another database of the same server.
    let node = fresh("connections=1");
    node.admit(&other(1, "shop")).unwrap();
    node.admit(&other(1, "stock")).unwrap();
    assert_eq!(logs.count("WARN", "leads to another database"), 2);
    // A standby has the data of its primary server.
    let node = fresh("connections=1");
    #[cfg(feature = "metrics")]
    let counted = crate::telemetry::Counted::begin();
    node.admit(&findings()).unwrap();
    node.admit(&Findings { server: (1, 2), ..findings() }).unwrap();
    assert_eq!(logs.count("WARN", "leads to another database"), 2);
    assert_eq!(logs.count("WARN", "another server has taken over"), 1);
    #[cfg(feature = "metrics")]
    assert_eq!(counted.events("redlock_promotions_total").len(), 1);
}

/// A pooler in transaction mode sends a statement to a session that has not prepared it, or that has another one of its name.
#[tokio::test(start_paused = true)]
async fn a_statement_that_is_missing_or_exists_twice_names_the_parameter_of_a_pooler() {
    for (code, is_pooler) in [("26000", true), ("42P05", true), ("40001", false)] {
        let node = node("connections=1");
        let mut server = connect(&node).await;
        let executed = execute(&node, Token::random(Dialect::Plain), acquire());
        server.operation().await;
        server.fail("ERROR", code).await;
        let Vote::Failed(NodeError::Server(reason)) = executed.await.unwrap().vote else {
            panic!("{code}")
        };
        assert_eq!(reason.contains("add pooler=transaction to the URL"), is_pooler, "{reason}");
    }
}

/// Waiters poll, because a session that listens blocks the queue of all databases of the server.
#[tokio::test(start_paused = true)]
async fn a_full_queue_of_notifications_is_a_warning_with_its_remedy() {
    let logs = Logs::collect();
    let node = node("connections=1");
    let mut server = connect(&node).await;
    let (released, receiver) = mpsc::unbounded_channel();
    tokio::spawn(Arc::clone(&node).announce(receiver));
    released.send("redlock_1".into()).unwrap();
    assert!(server.operation().await.is(Statement::Notify));
    server.fail_in("ERROR", "54000", "PreCommit_Notify").await;
    // The reply of the next operation follows that of the notification. The missing connection for notifications hides nothing.
    let executed = execute(&node, Token::random(Dialect::Plain), acquire());
    let request = server.operation().await;
    server.answer(&request, GRANTED).await;
    assert_eq!(executed.await.unwrap().vote, Vote::Agreed);
    sleep(Duration::from_secs(1)).await;
    for words in ["the words of the server", "run select pg_notification_queue_usage()"] {
        assert_eq!(logs.count("WARN", words), 1, "{:?}", logs.lines());
    }
    assert_eq!(logs.count("WARN", "pooler=transaction"), 0);
}
