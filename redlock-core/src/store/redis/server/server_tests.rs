//! How a server connects, and which of its connections are used, against a server that the test plays.

use std::sync::atomic::{AtomicI32, Ordering};

use futures_util::FutureExt;
use redlock_logs::Logs;
use tokio::sync::watch;
use tokio::time::{Instant, advance, sleep};

use super::played_redis::{Attempt, Fields, PlayedRedis, Subscriptions};
use super::played_server::played_connection;
use super::promotions::Promotions;
use super::*;
use crate::clock::fake::RuntimeClock;
use crate::clock::{Clock, Moment};
use crate::node::NodeSettings;
use crate::store::kit::pauses;
use crate::store::kit::url::HostPort;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);
/// How often the role of a master is checked.
const REFRESH: Duration = Duration::from_secs(7);

/// A change of the status of a server.
#[derive(Debug, Clone)]
pub(super) struct Change {
    status: NodeStatus,
    /// Whether the gate let grants pass at that time.
    grants: Result<(), NodeError>,
}

/// Records the changes of the status of a server.
struct Watcher {
    server: OnceLock<Weak<Server>>,
    changes: watch::Sender<Vec<Change>>,
}

impl Observer for Watcher {
    fn status_changed(&self, _: bool) {
        if let Some(server) = self.server.get().and_then(Weak::upgrade) {
            let change =
                Change { status: server.status().get(), grants: server.gate.check_grants() };
            self.changes.send_modify(|changes| changes.push(change));
        }
    }

    fn received(&self, _: Event) {}
}

/// A server whose peer the test plays.
pub(super) struct Played {
    pub(super) redis: PlayedRedis,
    pub(super) server: Arc<Server>,
    watcher: Arc<Watcher>,
}

impl Played {
    fn start(name: &str, role: Role, restart_guard: Option<Duration>) -> Self {
        Self::start_with(name, role, restart_guard, |_| {})
    }

    /// Starts a server that connects to a played one, which reports these fields.
    pub(super) fn start_with(
        name: &str,
        role: Role,
        restart_guard: Option<Duration>,
        change: impl FnOnce(&mut Fields),
    ) -> Self {
        Self::start_at(Arc::new(RuntimeClock::new()), name, role, restart_guard, change)
    }

    /// As [`start_with`](Self::start_with), with a clock that measures leases.
    fn start_at(
        clock: Arc<dyn Clock>,
        name: &str,
        role: Role,
        restart_guard: Option<Duration>,
        change: impl FnOnce(&mut Fields),
    ) -> Self {
        let node = NodeSettings {
            restart_guard,
            failover_margin: Some(MARGIN),
            clock,
            ..NodeSettings::for_tests(SECOND)
        };
        Self::start_node(name, role, node, change)
    }

    fn start_node(
        name: &str,
        role: Role,
        node: NodeSettings,
        change: impl FnOnce(&mut Fields),
    ) -> Self {
        Self::start_server(name, role, ServerSettings::for_tests(node), change)
    }

    /// As [`start_with`](Self::start_with), with these settings.
    pub(super) fn start_server(
        name: &str,
        role: Role,
        settings: ServerSettings,
        change: impl FnOnce(&mut Fields),
    ) -> Self {
        let redis = PlayedRedis::new();
        redis.change(change);
        let settings = ServerSettings { voter: name.into(), refresh: REFRESH, ..settings };
        let endpoint = Endpoint::parse(&format!("redis://{name}"));
        let endpoint = endpoint.dialed_by(Arc::new(redis.clone()));
        let watcher =
            Arc::new(Watcher { server: OnceLock::new(), changes: watch::Sender::default() });
        let observer: Weak<dyn Observer> = Arc::<Watcher>::downgrade(&watcher);
        let server = Server::new(endpoint, role, &Arc::new(settings), None, observer);
        watcher.server.set(Arc::downgrade(&server)).unwrap();
        server.start(&Handle::current());
        Self { redis, server, watcher }
    }

    /// Waits for this number of changes of a kind since the start. Returns the last one.
    async fn change(&self, count: usize, is_wanted: impl Fn(&NodeStatus) -> bool) -> Change {
        let wanted = |changes: &[Change]| {
            changes.iter().filter(|change| is_wanted(&change.status)).nth(count - 1).cloned()
        };
        let mut changes = self.watcher.changes.subscribe();
        let found = async {
            let changes = changes.wait_for(|changes| wanted(changes).is_some()).await.unwrap();
            wanted(&changes).unwrap()
        };
        let found = timeout(HOUR, found).await;
        found.unwrap_or_else(|_| panic!("{:?}", self.watcher.changes.borrow()))
    }

    /// Waits until the server was connected for this number of times. Returns the last change.
    pub(super) async fn connected(&self, count: usize) -> Change {
        self.change(count, NodeStatus::is_up).await
    }

    /// Closes the first connection of a server, which has lasted, and waits for the second one.
    async fn connected_again(&self, change: impl FnOnce(&mut Fields)) -> Change {
        self.connected(1).await;
        sleep(LEASE).await;
        self.redis.change(change);
        self.redis.close();
        self.connected(2).await
    }

    /// Returns whether the server was ever connected.
    fn was_connected(&self) -> bool {
        self.watcher.changes.borrow().iter().any(|change| change.status.is_up())
    }

    /// Waits for this number of attempts to connect.
    async fn attempts(&self, count: usize) -> Vec<Attempt> {
        let mut attempts = self.redis.attempts();
        let enough = timeout(HOUR, attempts.wait_for(|attempts| attempts.len() >= count));
        enough.await.expect("an attempt to connect").unwrap().clone()
    }
}

/// Returns the role of a master that was promoted an hour ago.
fn master(is_unconfirmed: bool) -> Role {
    let promoted = Promoted {
        address: HostPort { host: "localhost".into(), port: 6379 },
        epoch: 1,
        since: Instant::now() - HOUR,
        announced_by: Arc::default(),
        is_unconfirmed,
    };
    Role::Master(Mutex::new(promoted))
}

pub(super) fn member() -> Role {
    Role::Member(Arc::new(Promotions::default()))
}

/// Otherwise an operation could get a grant before the gate is closed.
#[tokio::test(start_paused = true)]
async fn the_gate_of_a_restarted_server_is_closed_before_its_connection_is_used() {
    let restarted = |fields: &mut Fields| fields.uptime = SECOND;
    let played = Played::start_with("restarted", Role::Alone, Some(LEASE), restarted);
    let grants = played.connected(1).await.grants;
    assert!(matches!(grants, Err(NodeError::Restarted { .. })), "{grants:?}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_never_used_as_a_master() {
    for role in [master(false), member()] {
        let played = Played::start_with("replica", role, None, |fields| fields.role = "slave");
        for count in 1..4 {
            let change = played.change(count, |_| true).await;
            let words = "replica:6379 is a replica".into();
            assert_eq!(change.status, NodeStatus::Down(NodeError::Server(words)));
        }
        assert!(!played.was_connected());
        // It is promoted.
        played.redis.change(|fields| fields.role = "master");
        played.connected(1).await;
    }
}

/// No majority of the sentinels would report that another server was the master in between.
#[tokio::test(start_paused = true)]
async fn an_unconfirmed_master_of_another_generation_counts_as_promoted() {
    for is_unconfirmed in [true, false] {
        let played = Played::start("unconfirmed", master(is_unconfirmed), Some(LEASE));
        assert_eq!(played.connected(1).await.grants, Ok(()));
        let again = |fields: &mut Fields| fields.replication_id = "bbbb";
        let grants = played.connected_again(again).await.grants;
        assert_eq!(matches!(grants, Err(NodeError::Promoted { .. })), is_unconfirmed, "{grants:?}");
        assert_eq!(played.server.gate.check_extensions().is_err(), is_unconfirmed);
    }
}

/// The process of the server is the same, but the server was a replica in between, and has loaded the data of another master.
#[tokio::test(start_paused = true)]
async fn a_master_with_another_replication_id_may_have_forgotten_locks() {
    for role in [master(false), member()] {
        let played = Played::start("demoted", role, Some(LEASE));
        assert_eq!(played.connected(1).await.grants, Ok(()));
        let again = |fields: &mut Fields| fields.replication_id = "bbbb";
        let grants = played.connected_again(again).await.grants;
        assert!(matches!(grants, Err(NodeError::Restarted { .. })), "{grants:?}");
    }
    let played = Played::start("alone", Role::Alone, Some(LEASE));
    let again = |fields: &mut Fields| fields.replication_id = "bbbb";
    assert_eq!(played.connected_again(again).await.grants, Ok(()), "it was always alone");
}

/// The wall clock of its machine was wrong when it started.
#[tokio::test(start_paused = true)]
async fn a_server_with_another_run_id_is_not_older_than_the_end_of_the_last_connection() {
    let played = Played::start("clock-less", Role::Alone, Some(LEASE));
    assert_eq!(played.connected(1).await.grants, Ok(()));
    let grants = played.connected_again(|fields| fields.run_id = "second").await.grants;
    assert!(matches!(grants, Err(NodeError::Restarted { .. })), "{grants:?}");
    advance(LEASE).await;
    assert_eq!(played.server.gate.check_grants(), Ok(()));
}

/// A connection that breaks must not hide the step.
#[tokio::test(start_paused = true)]
async fn a_step_of_the_clock_between_two_connections_is_noticed_before_the_second_one_is_used() {
    let played = Played::start("stepped", Role::Alone, Some(LEASE));
    let grants = played.connected_again(|fields| fields.clock += MARGIN).await.grants;
    assert!(matches!(grants, Err(NodeError::ClockStepped { .. })), "{grants:?}");
}

/// A replica refuses locks, and a master that was demoted and promoted again may have forgotten some.
#[tokio::test(start_paused = true)]
async fn the_connection_to_a_master_that_was_demoted_ends() {
    let played = Played::start("watched", member(), None);
    played.connected(1).await;
    // Its connection outlasts checks that show no change.
    sleep(10 * REFRESH).await;
    assert_eq!(played.attempts(1).await.len(), 1);
    played.redis.change(|fields| fields.role = "slave");
    let down = |status: &NodeStatus| matches!(status, NodeStatus::Down(_));
    let demoted = timeout(2 * REFRESH, played.change(1, down)).await.unwrap().status;
    let reason = NodeError::NotConnected("the server has become a replica".into());
    assert_eq!(demoted, NodeStatus::Down(reason));
}

/// The server was demoted and promoted between two checks, so that only its replication ID shows it.
#[tokio::test(start_paused = true)]
async fn the_connection_to_a_master_that_was_promoted_again_ends_once() {
    let played = Played::start("promoted", member(), Some(LEASE));
    assert_eq!(played.connected(1).await.grants, Ok(()));
    sleep(10 * REFRESH).await;
    played.redis.change(|fields| {
        fields.replication_id = "bbbb";
        fields.former_replication_id = "aaaa";
    });
    let again = timeout(2 * REFRESH, played.connected(2)).await.unwrap();
    assert!(matches!(again.grants, Err(NodeError::Promoted { .. })), "{again:?}");
    sleep(10 * REFRESH).await;
    assert_eq!(played.attempts(2).await.len(), 2, "the promotion is known");
}

/// Other tasks may still have the server that was replaced.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_stopped_makes_no_other_connection() {
    let played = Played::start("replaced", Role::Alone, None);
    played.connected(1).await;
    played.server.stop();
    sleep(HOUR).await;
    assert_eq!(played.attempts(1).await.len(), 1);
    assert!(played.server.connection().is_err());
}

/// Commands that the former connection still writes could overtake a clean-up on the new one.
#[tokio::test(start_paused = true)]
async fn a_connection_is_made_when_the_one_before_has_stopped() {
    let played = Played::start("stopped", Role::Alone, None);
    for count in 1..10 {
        played.connected(count).await;
        // A connection that has lasted is replaced without a pause.
        sleep(LEASE).await;
        played.server.connection().unwrap().link.end("the test ends it");
    }
    for attempt in played.attempts(10).await {
        assert!(!attempt.has_another, "{attempt:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_server_is_silent_is_replaced() {
    let played = Played::start("silent", Role::Alone, None);
    played.connected(1).await;
    sleep(10 * SILENCE_LIMIT).await;
    assert_eq!(played.attempts(1).await.len(), 1, "it has replied");
    played.redis.change(|fields| fields.is_silent = true);
    // The use makes the node ask for the time, also if its caller has given up.
    played.server.connection_for(false).unwrap();
    let down = |status: &NodeStatus| matches!(status, NodeStatus::Down(_));
    let silent = timeout(2 * SILENCE_LIMIT, played.change(1, down)).await.unwrap().status;
    let words = format!("no reply for {SILENCE_LIMIT:?}").into();
    assert_eq!(silent, NodeStatus::Down(NodeError::NotConnected(words)));
    played.redis.change(|fields| fields.is_silent = false);
    played.connected(2).await;
}

/// The clean-up of an attempt goes over the connection of the attempt, so the connection outlasts the round.
#[tokio::test(start_paused = true)]
async fn a_silent_connection_outlasts_the_rounds_that_wait_for_it() {
    const NODE_TIMEOUT: Duration = SILENCE_LIMIT;
    let node = NodeSettings::for_tests(NODE_TIMEOUT);
    let played = Played::start_node("patient", Role::Alone, node, |_| {});
    played.connected(1).await;
    played.redis.change(|fields| fields.is_silent = true);
    played.server.connection_for(false).unwrap();
    sleep(NODE_TIMEOUT * 19 / 10).await;
    assert!(played.server.connection().is_ok());
    let down = |status: &NodeStatus| matches!(status, NodeStatus::Down(_));
    timeout(2 * NODE_TIMEOUT, played.change(1, down)).await.unwrap();
}

/// Starts a server that refuses connections, and waits until the pauses between the attempts have their full length.
async fn refused(name: &str) -> Played {
    let played = Played::start_with(name, Role::Alone, None, |fields| fields.is_listening = false);
    played.attempts(8).await;
    played
}

/// A server that is back is used at once, and not after a pause. The caller waits for no attempt more.
#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_ends_the_pause_before_the_next_attempt() {
    let played = refused("requested").await;
    let last = played.attempts(8).await[7].at;
    assert!(!played.server.reconnect().await);
    let attempts = played.attempts(9).await;
    assert_eq!((attempts.len(), attempts[8].at - last), (9, pauses::FIRST));
    let attempts = played.attempts(11).await;
    let pause = attempts[10].at - attempts[9].at;
    assert!(pause > 10 * pauses::FIRST, "without a caller the pause is long: {pause:?}");
}

/// The operation fails at once, so its caller gains nothing by an attempt. Otherwise each attempt would follow the one before,
/// for as long as the service has traffic.
#[tokio::test(start_paused = true)]
async fn an_operation_without_a_connection_makes_no_attempt() {
    for is_release in [false, true] {
        let played = refused("asked").await;
        let last = played.attempts(8).await[7].at;
        assert!(played.server.connection_for(is_release).is_err());
        let pause = played.attempts(9).await[8].at - last;
        assert!(pause > 10 * pauses::FIRST, "{pause:?}");
    }
}

/// The next attempt comes after a long pause, which a caller cannot end.
#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_this_client_is_not_waited_for() {
    let refused = NodeError::NotConnected("refused".into());
    for (reason, is_waited_for) in [
        (NodeError::NotPermitted("NOPERM".into()), false),
        (NodeError::Credentials("WRONGPASS".into()), false),
        (NodeError::SameServer("other".into()), false),
        (refused, true),
    ] {
        let settings = ServerSettings::for_tests(NodeSettings::for_tests(SECOND));
        let server = Server::for_tests(Role::Alone, settings);
        server.set(Err(reason.clone()));
        let outcome = server.reconnect().now_or_never();
        assert_eq!(outcome, if is_waited_for { None } else { Some(false) }, "{reason}");
    }
}

/// A majority of the sentinels may learn of an earlier failover, or of a shorter age, although nothing has happened.
#[tokio::test(start_paused = true)]
async fn only_a_later_failover_at_a_later_time_is_a_promotion() {
    advance(2 * HOUR).await;
    for (epoch, age, is_promoted) in
        [(1, SECOND, false), (2, HOUR, false), (2, 2 * HOUR, false), (2, SECOND, true)]
    {
        let now = Instant::now();
        let role = master(false);
        let Role::Master(promoted) = &role else { unreachable!() };
        let reported = Promoted { epoch, since: now - age, ..promoted.lock().clone() };
        let settings = ServerSettings::for_tests(NodeSettings::for_tests(SECOND));
        let server = Server::for_tests(role, settings);
        let (connection, _peer) = played_connection();
        server.set(Ok(Arc::new(connection)));
        server.set_promotion(&reported);
        assert_eq!(server.connection().is_err(), is_promoted, "epoch {epoch}, {age:?} ago");
    }
}

/// A server that has just come back must not get more connections from a service with more traffic.
#[tokio::test(start_paused = true)]
async fn callers_that_wait_all_the_time_add_one_attempt_in_two_seconds() {
    let count_for = async |callers: usize| {
        let played = refused("stormed").await;
        let wait = async || loop {
            assert!(!played.server.reconnect().await);
        };
        let callers = futures_util::future::join_all((0..callers).map(|_| wait()));
        let _ = futures_util::future::join(timeout(20 * SECOND, callers), sleep(20 * SECOND)).await;
        played.attempts(8).await.len()
    };
    let (without, with) = (count_for(0).await, count_for(50).await);
    assert!((50..80).contains(&without), "{without}");
    assert!(with <= without + 20, "{with}, without callers {without}");
}

/// Connections that break at once cost a server more than refused attempts.
#[tokio::test(start_paused = true)]
async fn after_short_connections_the_pauses_grow() {
    let played = Played::start("flapping-server", Role::Alone, None);
    for count in 1..=8 {
        played.connected(count).await;
        played.redis.close();
    }
    let attempts = played.attempts(8).await;
    let pause = attempts[7].at - attempts[6].at;
    assert!(pause > 10 * pauses::FIRST, "{pause:?}");
    // A connection has lasted.
    played.connected(9).await;
    sleep(pauses::SHORT_LIVED).await;
    let broken = Instant::now();
    played.redis.close();
    assert_eq!(played.attempts(10).await[9].at, broken);
}

/// A master that is no longer one. Pending operations may have it for long.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_stopped_has_no_task_and_no_connection() {
    for state in ["connected", "connecting", "refused"] {
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        let played = Played::start_with(state, Role::Alone, None, |fields| {
            fields.is_silent = state == "connecting";
            fields.is_listening = state != "refused";
        });
        let first = played.attempts(1).await.len();
        if state == "connected" {
            played.connected(1).await;
        }
        let attempts = played.redis.attempts();
        let waiting = Arc::clone(&played.server);
        let waiting = tokio::spawn(async move { waiting.reconnect().await });
        tokio::task::yield_now().await;
        played.server.stop();
        played.redis.change(|fields| fields.is_silent = false);
        assert_eq!(timeout(HOUR, waiting).await.unwrap().unwrap(), state == "connected");
        assert!(!timeout(HOUR, played.server.reconnect()).await.unwrap(), "{state}");
        sleep(HOUR).await;
        assert_eq!(attempts.borrow().len(), first, "{state}");
        assert_eq!(*played.redis.connections().borrow(), 0, "{state}");
        assert_eq!(tasks(), before, "{state}");
        assert!(played.server.connection().is_err());
    }
}

/// Stops a server when its clock is read for the given time.
#[derive(Debug)]
struct StoppingClock {
    clock: RuntimeClock,
    left: AtomicI32,
    server: OnceLock<Weak<Server>>,
}

impl Clock for StoppingClock {
    fn now(&self) -> Moment {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1
            && let Some(server) = self.server.get().and_then(Weak::upgrade)
        {
            server.stop();
        }
        self.clock.now()
    }
}

/// Another thread may stop the server while a new connection is checked. The grants of a former master do not count.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_made_while_its_server_is_stopped_is_not_used() {
    let mut is_connected = Vec::new();
    for readings in 1..=8 {
        let clock = Arc::new(StoppingClock {
            clock: RuntimeClock::new(),
            left: AtomicI32::new(readings),
            server: OnceLock::new(),
        });
        let promotions = Promotions::default();
        promotions.record_start();
        // The clock limits the log lines about a promotion.
        let played = Played::start_at(
            Arc::<StoppingClock>::clone(&clock),
            "stopped-early",
            Role::Member(Arc::new(promotions)),
            None,
            |fields| fields.former_replication_id = "bbbb",
        );
        let _ = clock.server.set(Arc::downgrade(&played.server));
        sleep(REFRESH / 2).await;
        let is_stopped = clock.left.load(Ordering::Relaxed) <= 0;
        is_connected.push((is_stopped, played.server.connection().is_ok()));
    }
    assert!(is_connected.contains(&(true, false)));
    assert!(!is_connected.contains(&(true, true)), "{is_connected:?}");
}

/// Returns how many lines about this server contain these words.
fn count(logs: &Logs, server: &str, words: &str) -> usize {
    let lines = logs.lines().into_iter();
    lines.filter(|line| line.contains(server) && line.contains(words)).count()
}

#[tokio::test(start_paused = true)]
async fn without_the_restart_guard_the_log_warns_about_a_restart() {
    let words = "a node was restarted and may have forgotten held locks";
    let logs = Logs::collect();
    for (name, role) in [
        ("restarted-alone", Role::Alone),
        ("restarted-member", member()),
        ("restarted-master", master(false)),
    ] {
        let played = Played::start(name, role, None);
        played.connected(1).await;
        assert_eq!(count(&logs, name, words), 0);
        let grants = played.connected_again(|fields| fields.run_id = "second").await.grants;
        assert_eq!(count(&logs, name, words), 1, "{name}");
        assert_eq!(grants, Ok(()));
    }
}

/// Proxies, managed services and miniredis 2.40 refuse commands by words that Redis does not know. The server has replied.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_execute_info_and_time_is_used() {
    let logs = Logs::collect();
    for (name, refusal, reason) in [
        (
            "other:1",
            "unsupported command",
            "the server does not execute COMMAND: unsupported command",
        ),
        ("other:2", "DENIED by policy", "the server does not execute COMMAND: DENIED by policy"),
        (
            "other:3",
            "ERR unknown command",
            "the server does not execute COMMAND: ERR unknown command",
        ),
        ("other:4", "NOPERM no rights", "COMMAND is denied: NOPERM no rights"),
    ] {
        let refuse = |fields: &mut Fields| fields.refusal = Some(refusal);
        let played = Played::start_with(name, Role::Alone, None, refuse);
        played.connected(1).await;
        for (words, command) in
            [("run_id of the server is unknown", "INFO"), ("time of the server is unknown", "TIME")]
        {
            let reason = reason.replace("COMMAND", command);
            let lines = logs.lines();
            let is_one = |line: &&String| [name, words].iter().all(|word| line.contains(word));
            let lines: Vec<_> = lines.iter().filter(is_one).collect();
            assert!(lines.len() == 1 && lines[0].contains(&reason), "{reason}: {lines:?}");
        }
    }
}

/// Without the test of a new connection, the first waiter would end the connection of all callers, or make the server refuse
/// their commands.
#[tokio::test(start_paused = true)]
async fn a_server_with_the_rules_of_resp2_takes_no_subscriptions() {
    let logs = Logs::collect();
    for (name, subscriptions) in [
        ("rules:1", Subscriptions::Resp3),
        ("rules:2", Subscriptions::Resp2),
        ("rules:3", Subscriptions::Alone),
    ] {
        let keep = |fields: &mut Fields| fields.subscriptions = subscriptions;
        let played = Played::start_with(name, Role::Alone, None, keep);
        played.connected(1).await;
        let connection = played.server.connection().unwrap();
        let takes = subscriptions == Subscriptions::Resp3;
        assert_eq!(connection.takes_subscriptions, takes, "{subscriptions:?}");
        assert_eq!(count(&logs, name, "so waiters poll"), usize::from(!takes));
        let answered = played.redis.answered();
        let position = |word: &str| answered.iter().position(|command| command == word).unwrap();
        assert!(position("UNSUBSCRIBE") < position("INFO"), "{answered:?}");
        // The connection lasts, and other commands are executed.
        assert!(connection.send(&bb8_redis::redis::cmd("TIME")).await.is_ok());
        assert_eq!(played.attempts(1).await.len(), 1);
    }
}
