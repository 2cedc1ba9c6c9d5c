//! A simulated ensemble: a leader and its followers, with sessions and with the queues of the locks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::SmallRng;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// The session timeout, T.
pub(super) const TIMEOUT: Duration = Duration::from_millis(1600);
/// The longest session that a limited follower allows.
const LIMIT: Duration = Duration::from_millis(200);
/// The tick of the ensemble.
const TICK: Duration = Duration::from_millis(200);
/// The longest time, in milliseconds, that a message takes from one machine to another.
const LATENCY: u64 = 5;
/// The number of the leader. The followers have the numbers from 1.
pub(super) const LEADER: usize = 0;
pub(super) const FOLLOWERS: usize = 2;

#[derive(Clone)]
pub(super) struct Ensemble(Arc<Shared>);

struct Shared {
    began: Instant,
    /// Whether the last follower allows only short sessions.
    is_limited: bool,
    state: Mutex<State>,
    /// Notifies of each change of a queue.
    changes: Notify,
}

/// A session at the leader.
struct Session {
    /// The last time at which the leader has heard of it.
    heard: Instant,
    timeout: Duration,
}

struct State {
    random: SmallRng,
    zxid: i64,
    queues: BTreeMap<String, Queue>,
    sessions: BTreeMap<u64, Session>,
    last_session: u64,
    /// The sessions that each follower has heard of since its last reply to a ping.
    tables: [BTreeSet<u64>; FOLLOWERS],
    /// The ends of the pauses of the leader and the followers.
    paused: [Instant; FOLLOWERS + 1],
    /// The connections of the clients.
    connections: BTreeMap<usize, AbortHandle>,
}

#[derive(Default)]
struct Queue {
    children: Vec<Child>,
    pzxid: i64,
}

/// An ephemeral child of a session in the queue of a lock.
#[derive(Clone)]
struct Child {
    prefix: u64,
    session: u64,
    lease: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// A request through the leader without an effect.
    Beat,
    List,
    /// Creates the child with this lease as its data, and lists the queue.
    Create(Duration),
    Write(Duration),
    Delete,
}

/// A request that concerns the child with this prefix in the queue of this lock.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) lock: String,
    pub(super) prefix: u64,
    pub(super) request: Request,
}

/// The state of the queue after a request.
#[derive(Debug)]
pub(super) struct Answer {
    /// The prefix and the lease of the first child.
    pub(super) first: Option<(u64, Duration)>,
    /// Whether the child existed before the request.
    pub(super) existed: bool,
    /// The transaction number of the last change of the queue, or of the write.
    pub(super) number: i64,
}

pub(super) type Calls = mpsc::UnboundedSender<(Call, oneshot::Sender<Answer>)>;

impl Ensemble {
    pub(super) fn start(random: SmallRng, is_limited: bool) -> Self {
        let now = Instant::now();
        let state = State {
            random,
            zxid: 0,
            queues: BTreeMap::new(),
            sessions: BTreeMap::new(),
            last_session: 0,
            tables: Default::default(),
            paused: [now; FOLLOWERS + 1],
            connections: BTreeMap::new(),
        };
        let changes = Notify::new();
        let state = Mutex::new(state);
        let ensemble = Self(Arc::new(Shared { began: now, is_limited, state, changes }));
        tokio::spawn(ensemble.clone().ping());
        tokio::spawn(ensemble.clone().end_sessions());
        ensemble
    }

    /// Waits until a message has arrived at a machine that is not paused.
    async fn travel(&self, to: usize) {
        let latency = self.0.state.lock().random.random_range(0..=LATENCY);
        sleep(Duration::from_millis(latency)).await;
        loop {
            let end = self.0.state.lock().paused[to];
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }

    /// The leader pings the followers. Their replies name the sessions that they have heard of.
    async fn ping(self) {
        loop {
            sleep(TICK / 2).await;
            self.travel(LEADER).await;
            for follower in 1..=FOLLOWERS {
                let ensemble = self.clone();
                tokio::spawn(async move {
                    ensemble.travel(follower).await;
                    let touched = std::mem::take(&mut ensemble.0.state.lock().tables[follower - 1]);
                    ensemble.travel(LEADER).await;
                    let state = &mut *ensemble.0.state.lock();
                    for session in touched {
                        state.touch(session);
                    }
                });
            }
        }
    }

    /// The leader ends the sessions that it has not heard of for the timeout, at multiples of the tick.
    async fn end_sessions(self) {
        for tick in 1.. {
            sleep_until(self.0.began + TICK * tick).await;
            self.travel(LEADER).await;
            let state = &mut *self.0.state.lock();
            state.sessions.retain(|_, session| session.heard.elapsed() < session.timeout);
            let State { queues, sessions, zxid, .. } = state;
            for queue in queues.values_mut() {
                let before = queue.children.len();
                queue.children.retain(|child| sessions.contains_key(&child.session));
                if queue.children.len() < before {
                    *zxid += 1;
                    queue.pzxid = *zxid;
                }
            }
            self.0.changes.notify_waiters();
        }
    }

    /// Returns a follower to connect to.
    pub(super) fn any_follower(&self) -> usize {
        self.0.state.lock().random.random_range(1..=FOLLOWERS)
    }

    /// Opens a session for a moment, and returns the timeout that a follower grants it.
    pub(super) async fn granted_timeout(&self, follower: usize) -> Duration {
        self.travel(follower).await;
        self.travel(LEADER).await;
        self.travel(follower).await;
        self.timeout_of(follower)
    }

    fn timeout_of(&self, follower: usize) -> Duration {
        if self.0.is_limited && follower == FOLLOWERS { LIMIT } else { TIMEOUT }
    }

    /// Connects a client to a follower. Returns the session, which is a new one if the former one has ended, and its timeout.
    pub(super) async fn connect(
        &self,
        client: usize,
        session: Option<u64>,
        follower: usize,
    ) -> (u64, Duration, Calls) {
        self.cut(client);
        let timeout = self.timeout_of(follower);
        self.travel(follower).await;
        self.travel(LEADER).await;
        let session = {
            let state = &mut *self.0.state.lock();
            let alive = session.filter(|session| state.sessions.contains_key(session));
            let session = alive.unwrap_or(state.last_session + 1);
            state.last_session = state.last_session.max(session);
            state.sessions.insert(session, Session { heard: Instant::now(), timeout });
            session
        };
        self.travel(follower).await;
        let (sender, calls) = mpsc::unbounded_channel();
        let serving = tokio::spawn(self.clone().serve(calls, follower, session));
        self.0.state.lock().connections.insert(client, serving.abort_handle());
        (session, timeout, sender)
    }

    async fn serve(
        self,
        mut calls: mpsc::UnboundedReceiver<(Call, oneshot::Sender<Answer>)>,
        follower: usize,
        session: u64,
    ) {
        while let Some((call, reply)) = calls.recv().await {
            self.travel(follower).await;
            self.0.state.lock().tables[follower - 1].insert(session);
            if call.request != Request::List {
                self.travel(LEADER).await;
            }
            let answer = self.0.state.lock().execute(&call, session);
            let Some(answer) = answer else { return };
            if !matches!(call.request, Request::Beat | Request::List) {
                self.0.changes.notify_waiters();
            }
            self.travel(follower).await;
            let _ = reply.send(answer);
        }
    }

    /// Waits for the next change of a queue.
    pub(super) async fn changed(&self) {
        self.0.changes.notified().await;
    }

    /// Pauses the leader or a follower.
    pub(super) fn pause(&self, server: usize, time: Duration) {
        self.0.state.lock().paused[server] = Instant::now() + time;
    }

    /// Ends the connection of a client.
    pub(super) fn cut(&self, client: usize) {
        if let Some(connection) = self.0.state.lock().connections.remove(&client) {
            connection.abort();
        }
    }

    /// Returns the locks whose queues are not empty.
    pub(super) fn locks(&self) -> Vec<String> {
        let state = self.0.state.lock();
        let used = state.queues.iter().filter(|(_, queue)| !queue.children.is_empty());
        used.map(|(lock, _)| lock.clone()).collect()
    }
}

impl State {
    fn touch(&mut self, session: u64) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.heard = Instant::now();
        }
    }

    /// Executes a request. Returns `None` if the session has ended.
    fn execute(&mut self, call: &Call, session: u64) -> Option<Answer> {
        if !self.sessions.contains_key(&session) {
            return None;
        }
        let queue = self.queues.entry(call.lock.clone()).or_default();
        let index = queue.children.iter().position(|child| child.prefix == call.prefix);
        let mut number = queue.pzxid;
        match (call.request, index) {
            (Request::Create(lease), None) => {
                queue.children.push(Child { prefix: call.prefix, session, lease });
            }
            (Request::Delete, Some(index)) => drop(queue.children.remove(index)),
            (Request::Write(lease), Some(index)) => queue.children[index].lease = lease,
            _ => {}
        }
        if matches!(call.request, Request::Create(_) | Request::Write(_) | Request::Delete) {
            self.zxid += 1;
            number = self.zxid;
            if !matches!(call.request, Request::Write(_)) {
                queue.pzxid = number;
            }
        }
        let first = queue.children.first().map(|child| (child.prefix, child.lease));
        Some(Answer { first, existed: index.is_some(), number })
    }
}
