//! The state that the operations and the tasks of a node share.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use futures_util::future::{BoxFuture, FutureExt, pending};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::channels::{Channels, channel, notify};
use super::connect::{Connected, connect};
use super::error;
use super::link::{LinkDriver, LinkEvent, RequestContext, ServerLink};
use super::schema::{Backend, Findings};
use super::session::{Answer, SqlValue, Work, driven};
use super::socket::NamedAddress;
use super::sql::Statement;
use super::unsettled::UnsettledTokens;
use super::url::PostgresUrl;
use crate::error::{NodeError, Vote};
use crate::jitter::jitter;
use crate::lock::Token;
use crate::log_limit::LogLimit;
use crate::node::{Action, NodeSettings, NodeStatus, Op, Reply, Silence, StatusSender};
use crate::store::kit::gate::{Closures, Gate};
use crate::store::kit::kept::{Keeper, Kept, KeptLink, silence_of};
use crate::store::kit::names;
use crate::store::kit::outage_log::OutageLog;
use crate::store::kit::wall_clock::Reading;
use crate::{log_limited, telemetry};

/// The time between two clean-ups in seconds, which the jitter spreads over the processes.
const CLEAN_UP: std::ops::Range<u64> = 1800..5400;
/// The longest time of a clean-up, which may read a large table.
const CLEANING: Duration = Duration::from_secs(600);
/// How many channels are notified at once.
const ANNOUNCED: usize = 64;
/// How many rows one clean-up deletes at most, before it is repeated.
const CLEANED: usize = 1000;

/// The state of a node.
pub(super) struct PostgresState {
    pub(super) name: Arc<str>,
    pub(super) url: PostgresUrl,
    pub(super) settings: NodeSettings,
    pub(super) gate: Gate,
    pub(super) channels: Arc<Channels>,
    pub(super) store_id: OnceLock<Arc<str>>,
    /// The connections for operations, and behind them the one for notifications, which does not exist behind a pooler. The
    /// name of a lock decides over which connection its operations are sent.
    slots: Vec<Kept<ServerLink>>,
    status: StatusSender,
    log_limit: LogLimit,
    outages: Mutex<OutageLog>,
    /// The system and the timeline of the server of the latest connection.
    last: Mutex<watch::Sender<Option<(i64, i32)>>>,
    /// The database of the latest connection, with its system and the schema.
    last_store: Mutex<Option<Arc<str>>>,
    last_reading: Mutex<Option<Reading>>,
    /// Of the latest reading of the clock, over any connection.
    pub(super) last_round_trip: Mutex<Option<Duration>>,
    unsettled: Arc<UnsettledTokens>,
    /// The channels of released locks, for the task that notifies them.
    released: mpsc::UnboundedSender<Box<str>>,
}

impl PostgresState {
    /// Creates the state of a node, and starts the tasks that keep the connections, notify channels, and clean the table up.
    pub(super) fn start(
        name: Arc<str>,
        url: PostgresUrl,
        settings: NodeSettings,
        status: StatusSender,
        runtime: &Handle,
    ) -> (Arc<Self>, Vec<AbortOnDropHandle<()>>) {
        let (released, receiver) = mpsc::unbounded_channel();
        let state = Arc::new(Self::new(name, url, settings, status, released));
        let this = || Arc::clone(&state);
        let others = [this().announce(receiver).boxed(), this().clean_up().boxed()];
        let tasks = (0..state.slots.len()).map(|index| this().keep(index).boxed()).chain(others);
        let spawn = |task: BoxFuture<'static, ()>| AbortOnDropHandle::new(runtime.spawn(task));
        let tasks = tasks.map(spawn).collect();
        (state, tasks)
    }

    pub(super) fn new(
        name: Arc<str>,
        url: PostgresUrl,
        settings: NodeSettings,
        status: StatusSender,
        released: mpsc::UnboundedSender<Box<str>>,
    ) -> Self {
        Self {
            name,
            slots: (0..url.connections + usize::from(!url.has_pooler))
                .map(|_| Kept::new())
                .collect(),
            log_limit: LogLimit::new(Arc::clone(&settings.clock)),
            url,
            settings,
            status,
            gate: Gate::default(),
            channels: Arc::default(),
            store_id: OnceLock::new(),
            outages: Mutex::default(),
            last: Mutex::default(),
            last_store: Mutex::default(),
            last_reading: Mutex::default(),
            last_round_trip: Mutex::default(),
            unsettled: Arc::default(),
            released,
        }
    }

    /// Keeps the connection with this index.
    async fn keep(self: Arc<Self>, index: usize) {
        self.slots[index].keep(&mut SlotKeeper { state: &self, index, former: None }).await;
    }

    /// Connects to a primary server that no other one has replaced.
    async fn connect(&self, former: Option<Backend>) -> Result<Connected, NodeError> {
        connect(&self.url, &self.settings, former, |findings| self.admit(findings)).await
    }

    /// Completes when the name behind a connection leads to another server. The next connection then says which one.
    async fn moved(&self, address: Option<NamedAddress>, server: (i64, i32), database: String) {
        let Some(name) = address else { return pending().await };
        let is_another = async || {
            let connected = connect(&self.url, &self.settings, None, |_| Ok(())).await;
            connected.is_ok_and(|Connected { findings, .. }| {
                (findings.server, findings.database) != (server, database.clone())
            })
        };
        names::moved(name.address, async || name.look_up().await, is_another).await;
    }

    async fn begin_listening(&self, link: Arc<ServerLink>) {
        self.channels.use_link(&link).await;
        match self.channels.are_notified(&link).await {
            Ok(true) => {}
            Ok(false) => log_limited!(
                self.log_limit, "notifications", &self.name, warn, node = %self.name,
                "notifications of the server do not arrive, so that waiters poll; if a pooler in transaction mode is in \
                 between, add pooler=transaction to the URL"
            ),
            Err(reason) => self.warn_not_notified("notify", &reason),
        }
    }

    /// Each kind of reason has its own limit, so that a missing connection does not hide the words of the server.
    fn warn_not_notified(&self, kind: &'static str, reason: &NodeError) {
        log_limited!(
            self.log_limit, kind, &self.name, warn, node = %self.name, %reason,
            "releases are not notified, so that waiters poll"
        );
    }

    /// Notifies the channels of released locks, several at once if they are released faster than the server notifies.
    pub(super) async fn announce(self: Arc<Self>, mut released: mpsc::UnboundedReceiver<Box<str>>) {
        let mut channels = Vec::new();
        while released.recv_many(&mut channels, ANNOUNCED).await > 0 {
            let channels = std::mem::take(&mut channels);
            // The connection for notifications if it is up, or else one for operations. If it fails, waiters poll.
            let mut links = self.slots.iter().rev().map(Kept::link);
            let unlinked = |reason: &NodeError| self.warn_not_notified("listener", reason);
            if let Some(link) = links.find_map(|link| link.inspect_err(unlinked).ok()) {
                let refused = |reason: &NodeError| self.warn_not_notified("notify", reason);
                let _ = notify(&link, channels).await.inspect_err(refused);
            }
        }
    }

    async fn clean_up(self: Arc<Self>) {
        loop {
            sleep(Duration::from_secs(jitter(CLEAN_UP))).await;
            // Over a connection of its own, which may be silent for longer than the others.
            let clean_up = async {
                let Connected { session, mut connection, .. } = self.connect(None).await?;
                let work = || session.execute(Work::Statement(Statement::CleanUp, Vec::new()));
                let failed = |error| error::of_operation(&error);
                let clean = async {
                    while work().await.map_err(failed)?.rows == CLEANED {}
                    Ok(())
                };
                driven(&mut connection, clean).await
            };
            let late = |_| Err(NodeError::NoReply(CLEANING));
            if let Err(reason) = timeout(CLEANING, clean_up).await.unwrap_or_else(late) {
                tracing::warn!(node = %self.name, "the clean-up of old locks has failed, and will be repeated: {reason}");
            }
        }
    }

    /// Sets the status of the node: the node is up if all of its connections for operations are.
    fn update_status(&self) {
        let mut outages = self.outages.lock();
        let statuses = self.operation_slots().iter().map(|slot| slot.status().get());
        let status = statuses.fold(NodeStatus::Up, |one, other| match (&one, &other) {
            (NodeStatus::Down(_), _) | (NodeStatus::Connecting, NodeStatus::Up) => one,
            _ => other,
        });
        outages.record(&self.name, &status);
        self.status.send(status);
    }

    /// Learns to which server a new connection leads. Returns an error for a primary server that another one has replaced: it may
    /// grant locks that its successor has granted. With a `restart_guard`, the votes of a server that was promoted do not count for
    /// some time, because it may lack the last grants of its predecessor.
    pub(super) fn admit(&self, findings: &Findings) -> Result<(), NodeError> {
        let server @ (system, timeline) = findings.server;
        // Locked until the gate is closed: no other connection uses the server before.
        let last = self.last.lock();
        let former = *last.borrow();
        if is_replaced(server, former) {
            let reason =
                format!("a standby has replaced this server, whose timeline is {timeline}");
            return Err(NodeError::Server(reason.into()));
        }
        let store = format!("postgres:{system}:{}:{}", findings.database, self.url.schema);
        let store: Arc<str> = store.into();
        self.store_id.get_or_init(|| Arc::clone(&store));
        let former_store = self.last_store.lock().replace(Arc::clone(&store));
        if findings.may_block {
            log_limited!(
                self.log_limit, "lock_timeout", &self.name, warn, node = %self.name,
                "if somebody locks a row of the table, the other locks of the connection wait without a time limit: \
                 alter role .. set lock_timeout = '500ms'"
            );
        }
        last.send_replace(Some(server));
        let was_replaced = former.is_some_and(|former| former != server);
        if let Some(former) = former_store.filter(|former| *former != store) {
            log_limited!(
                self.log_limit, "another_store", &self.name, warn, node = %self.name, %former, present = %store,
                "the URL of a node leads to another database than before, which does not know the locks of the former one, so \
                 two callers may hold a lock; stop the former one, and wait for the longest lease, before the URL leads to another"
            );
        } else if was_replaced {
            telemetry::promoted(&self.name, 1);
            tracing::warn!(
                node = %self.name, timeline,
                "another server has taken over; without a synchronous standby, it may lack the last locks"
            );
        }
        let Some(longest_lease) = self.settings.restart_guard else {
            if findings.may_forget {
                log_limited!(
                    self.log_limit, "synchronous_commit", &self.name, warn, node = %self.name,
                    "synchronous_commit is off, so that a crash of the server forgets the last locks; \
                     synchronous_commit = on prevents this, or a restart_guard without a pooler"
                );
            }
            return Ok(());
        };
        if was_replaced || (former.is_none() && timeline > 1) {
            // A former server that this node has used may have granted locks until now.
            let ago = findings.promoted_ago.filter(|_| former.is_none()).unwrap_or_default();
            let margin = self.settings.failover_margin.unwrap_or_default();
            let now = Instant::now();
            let since = now.checked_sub(ago).unwrap_or(now);
            self.gate.close(Closures::after_promotion(longest_lease, margin, since));
        }
        if findings.may_forget {
            self.gate.close(Closures::after_restart(longest_lease, Some(findings.uptime), None));
        }
        Ok(())
    }

    fn compare_clock(&self, reading: Reading) {
        let step = self.last_reading.lock().get_or_insert(reading).compare(reading);
        if let Some(step) = step {
            step.report(&self.name, &self.gate, self.settings.restart_guard, &self.log_limit);
        }
    }

    pub(super) fn operation_slots(&self) -> &[Kept<ServerLink>] {
        &self.slots[..self.url.connections]
    }

    /// Returns the place of the connection for the operations of a lock. The operations with one token have one name, so that
    /// they keep their order.
    pub(super) fn slot(&self, name: &str) -> &Kept<ServerLink> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let slots = self.operation_slots();
        let index = hasher.finish() % slots.len() as u64;
        &slots[usize::try_from(index).unwrap_or_default()]
    }

    /// Returns an error if an operation would not be sent.
    pub(super) fn check(&self, op: &Op) -> Result<Arc<ServerLink>, NodeError> {
        if let Action::Acquire { .. } = op.action {
            self.gate.check_grants()?;
        }
        // Other operations would be useless by the time at which a silent server executes them.
        match op.action {
            Action::Release { .. } => self.slot(op.spec.name()).link(),
            _ => self.answering_link(op.spec.name()),
        }
    }

    /// Returns the connection for the operations of a lock, unless its server is silent.
    pub(super) fn answering_link(&self, name: &str) -> Result<Arc<ServerLink>, NodeError> {
        let link = self.slot(name).link()?;
        match link.silence(self.settings.node_timeout) {
            Silence::Silent(time) => Err(NodeError::NoReply(time)),
            Silence::CheckAgainAfter(_) => Ok(link),
        }
    }

    /// Executes an operation. The first poll sends it.
    pub(super) async fn execute(self: Arc<Self>, op: Op) -> Reply {
        self.try_execute(&op).await.unwrap_or_else(|error| Vote::Failed(error).into())
    }

    async fn try_execute(&self, op: &Op) -> Result<Reply, NodeError> {
        use Action::{Acquire, Confirm, Extend, Release};
        let link = self.check(op)?;
        let not_counted = self.gate.check_extensions();
        let (name, token) = (op.spec.name(), op.token);
        let (statement, number) = match op.action {
            Acquire { lease, .. } => (Statement::Acquire, Some(micros(lease))),
            Extend { lease } => (Statement::Extend, Some(micros(lease))),
            Confirm { number } => (Statement::Confirm, Some(number)),
            Release { min_hold: Some(time) } => (Statement::Shorten, Some(micros(time))),
            Release { min_hold: None } => (Statement::Release, None),
            _ => return Err(NodeError::Server("this node does not know the action".into())),
        };
        let mut values = vec![SqlValue::Text(name.into()), SqlValue::Text(token.digest_text())];
        values.extend(number.map(SqlValue::Number));
        if let Acquire { .. } = op.action {
            values.extend(owner(token));
        }
        let is_release = matches!(op.action, Release { .. });
        let released = is_release.then(|| channel(name));
        let unsettled = match op.action {
            Acquire { lease, .. } if self.url.has_pooler => {
                Some(self.unsettled.begin(token, lease))
            }
            _ => None,
        };
        let context = RequestContext { unsettled, released };
        let answer = link.send(Work::Statement(statement, values), context).await?;
        match (op.action, answer) {
            (Acquire { fenced, .. }, Answer { number: Some(number), .. }) => {
                // A step of the clock, or another server, was noticed meanwhile.
                self.gate.check_grants()?;
                let granted = Reply::new(Vote::Agreed);
                Ok(if fenced { granted.with_number(number) } else { granted })
            }
            (Acquire { .. }, Answer { rows: 0, .. }) => lost_race(&link, name, token).await,
            (Acquire { .. }, Answer { rest: remaining, holder, label, .. }) => {
                Ok(Vote::Held { holder, label, remaining }.into())
            }
            (_, Answer { rows: 0, .. }) if is_release && self.unsettled.contains(token) => Err(
                NodeError::ConnectionBroke("the server may still execute the acquisition".into()),
            ),
            (_, Answer { rows: 0, .. }) => Ok(Vote::NotHeld.into()),
            (Extend { .. }, _) => {
                not_counted.and_then(|()| self.gate.check_extensions())?;
                Ok(Vote::Agreed.into())
            }
            _ => Ok(Vote::Agreed.into()),
        }
    }

    /// Returns whether any connection is silent. The caller waits for one of them, and this method does not know for which.
    pub(super) fn silence(&self, limit: Duration, waited: Duration) -> Silence {
        let links = self.operation_slots().iter().filter_map(|slot| slot.link().ok());
        silence_of(links.map(|link| link.silence(limit)), limit.saturating_sub(waited), waited)
    }
}

/// Makes the connections of one slot.
struct SlotKeeper<'a> {
    state: &'a PostgresState,
    index: usize,
    /// The process behind the former connection.
    former: Option<Backend>,
}

impl Keeper for SlotKeeper<'_> {
    type Link = ServerLink;
    type Driver = LinkDriver;

    async fn connect(&mut self) -> Result<(Arc<ServerLink>, LinkDriver), NodeError> {
        // Boxed, because the future of the connection that is kept would be as large all the time.
        let connected = Box::pin(self.state.connect(self.former)).await?;
        self.former = Some(connected.findings.backend);
        let NodeSettings { node_timeout, clock, .. } = &self.state.settings;
        let (link, driver) = LinkDriver::new(connected, *node_timeout, Arc::clone(clock));
        Ok((Arc::new(link), driver))
    }

    async fn serve(&mut self, link: Arc<ServerLink>, driver: LinkDriver) -> Arc<str> {
        let Self { state, index, .. } = *self;
        let is_listener = index == state.url.connections;
        let on_event = |event| match event {
            LinkEvent::Time(reading) => {
                *state.last_round_trip.lock() = Some(reading.round_trip());
                if index == 0 {
                    state.compare_clock(reading);
                }
            }
            LinkEvent::Notified(channel) => state.channels.notify(&channel),
            // The task ends with the node.
            LinkEvent::Released(channel) => drop(state.released.send(channel)),
        };
        // The guard compares the clock of the server. Without a ping, nobody would notice that no notification arrives.
        let has_guard = state.settings.restart_guard.is_some();
        let is_needed =
            || (has_guard && index == 0) || (is_listener && !state.channels.are_unused());
        let Connected { findings, address, .. } = &driver.connected;
        let server = findings.server;
        let moved = state.moved(address.clone(), server, findings.database.clone());
        let mut last = state.last.lock().subscribe();
        let listen = async {
            if is_listener {
                state.begin_listening(link).await;
            }
            pending().await
        };
        tokio::select! {
            reason = driver.run(on_event, is_needed) => reason,
            never = listen => never,
            // Another connection leads to the standby.
            _ = last.wait_for(|last| is_replaced(server, *last)) => {
                "a standby has replaced this server".into()
            }
            () = moved => "the name of the server leads to another server".into(),
        }
    }

    fn changed(&mut self, _: NodeStatus, _: bool) {
        self.state.update_status();
    }
}

/// Returns the refusal of a caller that has lost a race for a lock. It names the winner: of several servers, each caller may
/// have won another one, so that nobody has the lock.
async fn lost_race(link: &ServerLink, name: &str, token: Token) -> Result<Reply, NodeError> {
    let values = vec![SqlValue::Text(name.into()), SqlValue::Text(token.digest_text())];
    let work = Work::Statement(Statement::Holder, values);
    let answer = link.send(work, RequestContext::default()).await?;
    // Without a row, the winner has left the lock.
    let remaining = answer.rest.or((answer.rows == 0).then_some(Duration::ZERO));
    Ok(Vote::Held { holder: answer.holder, label: answer.label, remaining }.into())
}

/// Returns the label and the seconds of a token, as parameters.
fn owner(token: Token) -> [SqlValue; 2] {
    let label = token.label().map(|label| SqlValue::Text(label.as_str().into()));
    let since = token.since().and_then(|since| since.duration_since(UNIX_EPOCH).ok());
    let seconds = since.and_then(|since| since.as_secs().try_into().ok()).map(SqlValue::Number);
    [label, seconds].map(|value| value.unwrap_or(SqlValue::Null))
}

/// Returns whether another server with the same data was promoted later.
fn is_replaced((system, timeline): (i64, i32), last: Option<(i64, i32)>) -> bool {
    last.is_some_and(|(other, newest)| other == system && newest > timeline)
}

/// Returns a time in microseconds, rounded up: a server must not forget a lock before its holder does.
fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}
