use redlock_logs::Logs;
use tokio::io::DuplexStream;
use tokio::time::timeout;

use super::*;
use crate::LockManager;
use crate::error::Vote;
use crate::key::LockKey;
use crate::lock::{Dialect, LockSpec, Mode, Token};
use crate::node::{Action, Ask, Node, NodeSettings, Op, Remote};
use crate::store::kit::description::StoreUrl;
use crate::store::redis::played_node::{self, settings};
use crate::store::redis::server::Server;
use crate::store::redis::server::played_server::{played_connection, serve};
use crate::store::redis::state::RedisState;
use crate::store::redis::{RedisNode, Servers};

const MINUTE: Duration = Duration::from_secs(60);
const ACQUIRE: Action =
    Action::Acquire { lease: MINUTE, fenced: false, ask: Ask { skip_lookup: true, ..Ask::FIRST } };

fn texts(texts: &[&str]) -> Value {
    let texts = texts.iter().map(|text| Value::BulkString(text.as_bytes().to_vec()));
    Value::Array(texts.collect())
}

fn master(port: &str, role: &str) -> Value {
    texts(&[
        "ip",
        "10.0.0.1",
        "port",
        port,
        "role-reported",
        role,
        "role-reported-time",
        "60000",
        "config-epoch",
        "3",
    ])
}

#[tokio::test(start_paused = true)]
async fn the_age_of_a_master_counts_only_if_both_replies_name_it() {
    tokio::time::advance(2 * MINUTE).await;
    let now = Instant::now();
    let since = |master: &Value, port: &str| {
        let view = MasterView::read(master, &texts(&["10.0.0.1", port]), now).unwrap();
        assert_eq!((view.epoch, view.address.to_string()), (3, format!("10.0.0.1:{port}")));
        view.since
    };
    assert_eq!(since(&master("6379", "master"), "6379"), now - MINUTE);
    // The sentinel leads a failover: the epoch is the new one, the rest describes the former master.
    assert_eq!(since(&master("6379", "master"), "6380"), now);
    assert_eq!(since(&master("6379", "slave"), "6379"), now, "it was demoted");
}

#[tokio::test]
async fn an_unexpected_reply_is_no_view() {
    let address = texts(&["10.0.0.1", "6379"]);
    let now = Instant::now();
    for (master, address) in [
        (Value::Nil, address.clone()),
        (master("6379", "master"), Value::Nil),
        (master("6379", "master"), texts(&["10.0.0.1"])),
        (master("6379", "master"), texts(&["10.0.0.1", "x"])),
        (texts(&["ip", "10.0.0.1"]), address),
    ] {
        assert_eq!(MasterView::read(&master, &address, now), None);
    }
}

/// Secrets and log lines of others must not be forged by the host that a sentinel names.
#[tokio::test]
async fn the_host_that_a_sentinel_names_cannot_forge_lines_of_the_log() {
    let address = texts(&["a\n2026 WARN b", "6379"]);
    let view = MasterView::read(&master("6379", "master"), &address, Instant::now()).unwrap();
    assert_eq!(view.address.host, r"a\n2026 WARN b");
}

fn group(sentinels: &str) -> Arc<SentinelGroup> {
    guarded_group(sentinels, None)
}

fn guarded_group(sentinels: &str, restart_guard: Option<Duration>) -> Arc<SentinelGroup> {
    let url = RedisUrl::parse(&format!("redis+sentinel://{sentinels}/shop")).unwrap();
    let Servers::Sentinel { sentinels, service, login } = &url.servers else { panic!("{url:?}") };
    let node = NodeSettings { restart_guard, ..NodeSettings::for_tests(MINUTE) };
    let settings = ServerSettings { voter: url.name().into(), ..ServerSettings::for_tests(node) };
    Arc::new(SentinelGroup::new(&url, sentinels, service, login, &Arc::new(settings)))
}

/// Makes a sentinel name a master with this port by this epoch.
fn name(group: &SentinelGroup, index: usize, port: u16, epoch: u64) {
    let (address, now) = (HostPort { host: "10.0.0.9".into(), port }, Instant::now());
    group.report(index, Ok(MasterView { address, epoch, since: now, replied: now }));
}

fn fail(group: &SentinelGroup, index: usize) {
    group.report(index, Err(NodeError::NotConnected("refused".into())));
}

/// Returns a node whose first master is played by the test, and the port of its present master.
async fn node(
    group: &Arc<SentinelGroup>,
    restart_guard: Option<Duration>,
) -> (RedisNode, Arc<RedisState>, DuplexStream) {
    for index in 0..3 {
        name(group, index, 1, 1);
    }
    let node = played_node::node("redis+sentinel://s1,s2,s3/shop");
    let state = node.prepare(&settings(restart_guard));
    tokio::spawn(Arc::clone(&state.map).follow_sentinels(Arc::clone(group)));
    settle().await;
    let (connection, server) = played_connection();
    state.map.owner_of(0).unwrap().set(Ok(Arc::new(connection)));
    (node, state, server)
}

/// Lets the node notice the reports.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

fn present(group: &SentinelGroup) -> Option<Promoted> {
    group.choice().borrow().master.clone()
}

fn op(action: Action) -> Op {
    let key = LockKey::new("order:42").unwrap();
    let spec = LockSpec::new(key, Mode::Exclusive, Dialect::Plain);
    Op::new(&spec, Token::random(Dialect::Plain), action)
}

/// An operator who has set the guard must not be sent to its page.
#[tokio::test]
async fn the_log_line_of_a_promotion_says_whether_a_guard_is_missing() {
    for (guard, remedy) in [
        (None, "; set restart_guard"),
        (Some(MINUTE), "; it grants no locks until they have ended"),
    ] {
        let logs = Logs::collect();
        #[cfg(feature = "metrics")]
        let counted = crate::telemetry::Counted::begin();
        let group = guarded_group("s1,s2,s3", guard);
        for epoch in [1, 2] {
            (0..3).for_each(|index| name(&group, index, 6379 + epoch, epoch.into()));
        }
        assert_eq!(logs.count("WARN", remedy), 1, "{:?}", logs.lines());
        assert_eq!(logs.count("WARN", "a server was promoted"), 1);
        #[cfg(feature = "metrics")]
        assert_eq!(counted.events("redlock_promotions_total").len(), 1);
    }
}

/// Otherwise one sentinel that is listed twice would be a majority of three.
#[tokio::test]
async fn a_sentinel_that_is_listed_twice_counts_once() {
    let group = group("s1,s1:26379,s2,s3");
    let names: Vec<_> = group.sentinels.iter().map(|sentinel| &**sentinel.name()).collect();
    assert_eq!(names, ["s1:26379", "s2:26379", "s3:26379"]);
}

#[tokio::test(start_paused = true)]
async fn the_first_master_needs_a_majority() {
    let group = group("s1,s2,s3");
    let choice = group.choice();
    name(&group, 0, 1, 9);
    fail(&group, 1);
    assert!(choice.borrow().master.is_none() && !choice.borrow().is_complete());
    fail(&group, 2);
    assert!(choice.borrow().master.is_none() && choice.borrow().is_complete());
    let error = choice.borrow().failure().to_string();
    assert!(error.contains("no majority of the sentinels names a master"), "{error}");
    assert!(error.contains("sentinel s1:26379 names 10.0.0.9:1"), "{error}");
    assert!(error.contains("sentinel s3:26379: not connected: refused"), "{error}");
    name(&group, 2, 1, 0);
    assert_eq!(present(&group).unwrap().address.port, 1);
}

/// A sentinel that was restarted knows no age. If it is among the first to reply, the others may correct it.
#[tokio::test(start_paused = true)]
async fn a_late_sentinel_may_confirm_a_longer_age() {
    tokio::time::advance(2 * MINUTE).await;
    let group = group("s1,s2,s3");
    let now = Instant::now();
    let name = |index: usize, port: u16, age: Duration| {
        let address = HostPort { host: "10.0.0.9".into(), port };
        let view = MasterView { address, epoch: 1, since: now - age, replied: now };
        group.report(index, Ok(view));
    };
    name(0, 1, MINUTE);
    name(1, 1, Duration::ZERO);
    assert_eq!(present(&group).unwrap().since, now);
    name(2, 1, MINUTE);
    assert_eq!(present(&group).unwrap().since, now - MINUTE);
}

#[tokio::test(start_paused = true)]
async fn the_log_says_once_why_a_master_is_unconfirmed() {
    let logs = Logs::collect();
    let group = group("unconfirmed1,unconfirmed2,unconfirmed3");
    for index in 0..3 {
        name(&group, index, 1, 1);
    }
    let lines = |words: &str| {
        let lines = logs.lines().into_iter();
        lines
            .filter(|line| line.contains("unconfirmed1") && line.contains(words))
            .collect::<Vec<_>>()
    };
    for _ in 0..5 {
        fail(&group, 0);
        fail(&group, 1);
        name(&group, 2, 1, 1);
        tokio::time::advance(INTERVAL).await;
    }
    let unconfirmed = lines("would not notice a failover");
    assert_eq!(unconfirmed.len(), 1, "{unconfirmed:?}");
    assert!(
        unconfirmed[0].contains("sentinel unconfirmed2:26379: not connected: refused"),
        "{unconfirmed:?}"
    );
    assert_eq!(present(&group).unwrap().address.port, 1);
    for _ in 0..5 {
        name(&group, 0, 1, 1);
    }
    assert_eq!(lines("names the master again").len(), 1);
}

/// The other master may be promoted already. It would not know locks that the present one grants.
#[tokio::test(start_paused = true)]
async fn in_a_dispute_the_present_master_grants_no_locks() {
    let logs = Logs::collect();
    let group = group("disputed1,disputed2,disputed3");
    let (node, state, mut server) = node(&group, Some(MINUTE)).await;
    let mut before = node.call(op(ACQUIRE));
    assert!(futures_util::poll!(&mut before).is_pending());
    name(&group, 0, 2, 2);
    settle().await;
    // A grant that arrives after the beginning counts no more.
    serve(&mut server, "SET", "+OK\r\n", || {}).await;
    let refused = [before.await.vote, node.call(op(ACQUIRE)).as_ready().unwrap().vote.clone()];
    for vote in refused {
        let Vote::Failed(NodeError::Disputed(reason)) = &vote else { panic!("{vote}") };
        assert_eq!(&**reason, "sentinel disputed1:26379 names another master: 10.0.0.9:2");
    }
    for (action, reply, vote) in [
        (Action::Extend { lease: MINUTE }, ":1\r\n", Vote::Agreed),
        (Action::Extend { lease: MINUTE }, ":0\r\n", Vote::NotHeld),
        (Action::Release { min_hold: None }, ":1\r\n", Vote::Agreed),
    ] {
        let reply = serve(&mut server, "EVALSHA", reply, || {});
        assert_eq!(tokio::join!(node.call(op(action)), reply).0.vote, vote, "{action:?}");
    }
    assert_eq!(present(&group).unwrap().address.port, 1);
    let count = |words: &str| {
        let lines = logs.lines().into_iter();
        lines.filter(|line| line.contains("disputed1") && line.contains(words)).count()
    };
    assert_eq!((count("it grants no locks"), count("has decided")), (1, 0));
    // The majority decides for the other master.
    let former = state.map.owner_of(0).unwrap();
    name(&group, 1, 2, 2);
    settle().await;
    let master = state.map.owner_of(0).unwrap();
    assert_eq!(**master.endpoint.name(), *"10.0.0.9:2");
    assert_eq!(master.gate.check_grants(), Ok(()));
    assert!(former.connection().is_err(), "grants that are on their way count no more");
    assert_eq!((count("has decided"), count("a server was promoted")), (1, 1));
}

/// The node has another master by then.
#[tokio::test(start_paused = true)]
async fn a_late_error_of_a_former_master_names_it_and_who_announced_it() {
    const LABEL: &str = "10.0.0.9:1 (announced by sentinels s1:26379, s2:26379, s3:26379): ";
    for (is_closed, words) in
        [(true, "the server closed the connection"), (false, "another server was promoted")]
    {
        let group = group("s1,s2,s3");
        let (node, state, mut server) = node(&group, None).await;
        let former = state.map.owner_of(0).unwrap();
        let mut acquire = node.call(op(ACQUIRE));
        assert!(futures_util::poll!(&mut acquire).is_pending());
        if is_closed {
            drop(server);
        } else {
            // The reply arrives before the change, and its caller polls the operation after it.
            serve(&mut server, "SET", "+OK\r\n", || {}).await;
        }
        settle().await;
        for index in 0..3 {
            name(&group, index, 2, 2);
        }
        settle().await;
        assert!(is_second(&state.map.owner_of(0).unwrap()));
        let reason: Arc<str> = format!("{LABEL}{words}").into();
        let broke = NodeError::ConnectionBroke(Arc::clone(&reason));
        assert_eq!(acquire.await.vote, Vote::Failed(broke));
        assert_eq!(former.connection().unwrap_err(), NodeError::NotConnected(reason));
    }
}

/// Returns whether the errors of the master name the second address.
fn is_second(master: &Server) -> bool {
    let error = master.explain(NodeError::NotConnected("refused".into()));
    error.to_string().contains("10.0.0.9:2 (announced by ")
}

/// The error of a failed start asks whether the product runs at the address in the name of the node.
#[tokio::test(start_paused = true)]
async fn a_node_names_its_product_unless_its_servers_are_at_announced_addresses() {
    for (url, product) in [
        ("redis://a", Some("Redis")),
        ("redis+sentinel://s1,s2,s3/shop", Some("Redis")),
        ("redis-cluster://a", None),
    ] {
        assert_eq!(played_node::node(url).product(), product, "{url}");
    }
    let one = played_node::node("redis://localhost");
    one.prepare(&settings(None)).map.insert_one("redis://localhost");
    assert_eq!(one.product(), Some("Redis"));
    let group = group("s1,s2,s3");
    let (node, _shared, _server) = node(&group, None).await;
    assert_eq!(node.product(), None);
}

/// Nobody connects to the former master any more.
#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_for_a_former_master_waits_for_its_successor() {
    for is_reached in [true, false] {
        let group = group("s1,s2,s3");
        let (node, state, _server) = node(&group, None).await;
        let down = || Err(NodeError::NotConnected("refused".into()));
        state.map.owner_of(0).unwrap().set(down());
        let mut reconnection = node.reconnect(&op(ACQUIRE).spec);
        assert!(futures_util::poll!(&mut reconnection).is_pending());
        for index in 0..3 {
            name(&group, index, 2, 2);
        }
        settle().await;
        assert!(futures_util::poll!(&mut reconnection).is_pending());
        let (connection, _server) = played_connection();
        let master = state.map.owner_of(0).unwrap();
        assert!(is_second(&master));
        if is_reached {
            master.set(Ok(Arc::new(connection)));
        } else {
            master.set(down());
            assert!(futures_util::poll!(&mut reconnection).is_pending());
            master.set(down());
        }
        assert_eq!(timeout(MINUTE, reconnection).await.unwrap(), is_reached);
    }
}

/// The server has set the lock, although the grant does not count.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_granted_in_a_dispute_is_released() {
    let group = group("s1,s2,s3");
    let (node, _shared, mut server) = node(&group, Some(MINUTE)).await;
    let locks = LockManager::builder().node(node).connect().await.unwrap();
    let played = async {
        serve(&mut server, "SET", "+OK\r\n", || name(&group, 0, 2, 2)).await;
        serve(&mut server, "release", ":1\r\n", || {}).await;
    };
    let acquire = async { locks.lock("order:42").try_acquire().await.unwrap_err() };
    let (error, ()) = timeout(MINUTE, async { tokio::join!(acquire, played) }).await.unwrap();
    assert!(error.diagnostics().to_string().contains("disagree about the master"), "{error}");
}

/// A sentinel of another group disputes the master from the start.
#[tokio::test(start_paused = true)]
async fn a_dispute_about_the_first_master_is_logged() {
    let logs = Logs::collect();
    let group = group("stray1,stray2,stray3");
    name(&group, 0, 2, 99);
    name(&group, 1, 1, 1);
    name(&group, 2, 1, 1);
    let is_line = |line: &String| line.contains("stray1") && line.contains("it grants no locks");
    assert_eq!(logs.lines().iter().filter(|line| is_line(line)).count(), 1);
}

/// Without the guard, a promoted server grants at once, so that the pause would protect nothing.
#[tokio::test(start_paused = true)]
async fn without_the_restart_guard_a_dispute_stops_nothing() {
    let group = group("s1,s2,s3");
    let (node, _shared, mut server) = node(&group, None).await;
    name(&group, 0, 2, 2);
    settle().await;
    let granted = serve(&mut server, "SET", "+OK\r\n", || {});
    assert_eq!(tokio::join!(node.call(op(ACQUIRE)), granted).0.vote, Vote::Agreed);
}

/// Another server was the master in between, and this process was cut off from the sentinels.
#[tokio::test(start_paused = true)]
async fn a_later_promotion_of_the_present_master_ends_its_connection() {
    tokio::time::advance(60 * MINUTE).await;
    let group = group("s1,s2,s3");
    let (_node, state, _server) = node(&group, Some(MINUTE)).await;
    let master = state.map.owner_of(0).unwrap();
    for index in 0..3 {
        name(&group, index, 1, 1);
    }
    settle().await;
    assert!(master.connection().is_ok(), "nothing has changed");
    for index in 0..3 {
        name(&group, index, 1, 3);
    }
    settle().await;
    let error = master.connection().unwrap_err().to_string();
    assert!(error.contains("the server was promoted again"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn sentinels_that_do_not_agree_on_a_first_master_are_logged() {
    let logs = Logs::collect();
    let group = group("split1,split2,split3");
    let node = played_node::node("redis+sentinel://split1,split2,split3/shop");
    let state = node.prepare(&settings(None));
    tokio::spawn(Arc::clone(&state.map).follow_sentinels(Arc::clone(&group)));
    for index in 0..3 {
        name(&group, index, u16::try_from(index).unwrap(), 1);
    }
    settle().await;
    let lines = logs.lines().into_iter();
    let lines: Vec<_> =
        lines.filter(|line| line.contains("split1") && line.contains("WARN")).collect();
    assert!(lines.iter().any(|line| line.contains("the sentinels name no master")), "{lines:?}");
}

/// The other server was not promoted after all.
#[tokio::test(start_paused = true)]
async fn after_a_dispute_the_present_master_grants_locks_again() {
    let group = group("s1,s2,s3");
    let (node, state, mut server) = node(&group, Some(MINUTE)).await;
    let gate = &state.map.owner_of(0).unwrap().gate;
    name(&group, 0, 2, 2);
    settle().await;
    assert!(matches!(gate.check_grants(), Err(NodeError::Disputed(_))));
    // A majority has decided for the present master.
    sleep(MINUTE).await;
    name(&group, 1, 1, 1);
    settle().await;
    assert!(matches!(gate.check_grants(), Err(NodeError::Disputed(_))));
    name(&group, 2, 1, 1);
    settle().await;
    let granted = serve(&mut server, "SET", "+OK\r\n", || {});
    let both = async { tokio::join!(node.call(op(ACQUIRE)), granted) };
    assert_eq!(timeout(MINUTE, both).await.unwrap().0.vote, Vote::Agreed);
}

/// Masters that listen on this machine.
#[cfg(feature = "unstable-simulation")]
mod listening {
    use tokio::runtime::Handle;

    use super::*;
    use crate::node::{NodeStatus, StatusReceiver, StatusSender};
    use crate::store::redis::server::played_redis::PlayedRedis;

    /// Makes all sentinels name a master of this machine.
    fn name(group: &SentinelGroup, port: u16, epoch: u64, since: Instant) {
        for index in 0..3 {
            let address = HostPort { host: "127.0.0.1".into(), port };
            let view = MasterView { address, epoch, since, replied: Instant::now() };
            group.report(index, Ok(view));
        }
    }

    /// Starts a node that follows the group.
    fn start(
        group: &Arc<SentinelGroup>,
        restart_guard: Option<Duration>,
    ) -> (Arc<RedisState>, StatusReceiver) {
        let url = RedisUrl::parse("redis+sentinel://s1,s2,s3/shop").unwrap();
        let settings = ServerSettings::for_tests(settings(restart_guard));
        let status = StatusSender::new(NodeStatus::Connecting);
        let state = RedisState::new(url, settings, status.clone(), &Handle::current());
        tokio::spawn(Arc::clone(&state.map).follow_sentinels(Arc::clone(group)));
        (state, status.subscribe())
    }

    async fn up(status: &StatusReceiver) {
        timeout(MINUTE, status.wait_for(NodeStatus::is_up)).await.unwrap();
    }

    /// Another server was the master in between.
    #[tokio::test]
    async fn a_later_promotion_of_the_present_master_closes_its_gate() {
        let (redis, group) = (PlayedRedis::new(), group("s1,s2,s3"));
        let port = redis.listen().await;
        name(&group, port, 1, Instant::now() - 3 * MINUTE);
        let (state, status) = start(&group, Some(MINUTE));
        up(&status).await;
        let master = state.map.owner_of(0).unwrap();
        assert_eq!(master.gate.check_grants(), Ok(()));
        name(&group, port, 3, Instant::now());
        // A connection that was made before the report changes nothing.
        let mut attempts = redis.attempts();
        let connect_again = async {
            for _ in 0..3 {
                let count = attempts.borrow().len();
                redis.close();
                attempts.wait_for(|attempts| attempts.len() > count).await.unwrap();
                master.status().wait_for(NodeStatus::is_up).await;
            }
        };
        timeout(MINUTE, connect_again).await.unwrap();
        let grants = master.gate.check_grants();
        assert!(matches!(grants, Err(NodeError::Promoted { .. })), "{grants:?}");
    }

    fn tasks() -> usize {
        Handle::current().metrics().num_alive_tasks()
    }

    /// Its subscriptions and its connection go, also while an operation on it is pending.
    #[tokio::test]
    async fn a_former_master_leaves_nothing_behind() {
        let group = group("s1,s2,s3");
        let masters = [PlayedRedis::new(), PlayedRedis::new()];
        let [first, second] = &masters;
        second.change(|fields| fields.run_id = "second");
        let ports = [first.listen().await, second.listen().await];
        name(&group, ports[0], 1, Instant::now());
        let (state, status) = start(&group, None);
        up(&status).await;
        let listen =
            || state.subscriptions.subscribe(&"order:42".into(), 0, false, Arc::new(|| {}));
        let subscription = listen();
        timeout(MINUTE, listen().take_ready().unwrap()).await.unwrap();
        let (before, former) = (tasks(), Arc::downgrade(&state.map.owner_of(0).unwrap()));
        first.change(|fields| fields.is_silent = true);
        let mut acquire = Arc::clone(&state).execute(op(ACQUIRE)).unwrap();
        assert!(futures_util::poll!(&mut acquire).is_pending());

        name(&group, ports[1], 2, Instant::now());
        let connected = async {
            second.connections().wait_for(|count| *count == 1).await.unwrap();
            state.map.owner_of(0).unwrap().status().wait_for(NodeStatus::is_up).await;
            // The subscription follows.
            while !second.answered().iter().any(|name| name == "SUBSCRIBE") {
                settle().await;
            }
        };
        timeout(MINUTE, connected).await.unwrap();
        assert!(former.upgrade().is_some(), "a pending operation has it");
        let Vote::Failed(reason) = timeout(MINUTE, acquire).await.unwrap().vote else { panic!() };
        assert!(reason.to_string().ends_with("another server was promoted"), "{reason}");
        assert!(former.upgrade().is_none());
        // The played server notices the end of the connection when it reads.
        first.change(|fields| fields.is_silent = false);
        let ended = async {
            first.connections().wait_for(|count| *count == 0).await.unwrap();
            while tasks() > before {
                settle().await;
            }
        };
        timeout(MINUTE, ended).await.unwrap();
        assert_eq!(tasks(), before);
        assert_eq!(first.attempts().borrow().len(), 1);
        drop(subscription);
    }

    #[tokio::test]
    async fn without_the_restart_guard_the_log_warns_about_each_successor() {
        let logs = Logs::collect();
        let group = group("s1,s2,s3");
        let (first, second) = (PlayedRedis::new(), PlayedRedis::new());
        second.change(|fields| fields.run_id = "second");
        let ports = [first.listen().await, second.listen().await];
        name(&group, ports[0], 1, Instant::now());
        let (state, status) = start(&group, None);
        up(&status).await;
        name(&group, ports[1], 2, Instant::now());
        let connected = async {
            second.attempts().wait_for(|attempts| !attempts.is_empty()).await.unwrap();
            state.map.owner_of(0).unwrap().status().wait_for(NodeStatus::is_up).await;
        };
        timeout(MINUTE, connected).await.unwrap();
        let count = |port: u16| {
            let (words, master) = ("a server was promoted", format!("master=127.0.0.1:{port}"));
            let lines = logs.lines().into_iter();
            lines.filter(|line| line.contains(words) && line.contains(&master)).count()
        };
        assert_eq!(ports.map(count), [0, 1]);
    }
}
