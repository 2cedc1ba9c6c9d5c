//! A node whose locks end with its session, over the simulated ensemble. It has the capabilities and the rules of the node over
//! ZooKeeper, and the evidence of redlock-core.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redlock_core::node::{
    Action, Capabilities, Fencing, LockSpec, Node, NodeStatus, Notify, Op, Reply, ReplyFuture,
    StatusReceiver, StatusSender, Subscription, Token,
};
use redlock_core::{NodeError, Vote};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::ensemble::{Answer, Call, Calls, Ensemble, Request, TIMEOUT};
use super::evidence::Evidence;
use super::plan::Weakness;
use crate::clock::Moment;

/// How long the first place in a queue is kept for an acquisition.
const KEPT: Duration = Duration::from_millis(200);
/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone)]
pub(super) struct SessionNode {
    name: Arc<str>,
    status: StatusSender,
    shared: Arc<Shared>,
}

struct Shared {
    client: usize,
    ensemble: Ensemble,
    weakness: Weakness,
    began: Instant,
    /// How fast the clock of the client runs.
    rate: f64,
    state: Mutex<State>,
}

struct State {
    /// The session and its connection.
    link: Option<(u64, Calls)>,
    evidence: Evidence,
    locks: BTreeMap<Token, Znode>,
    places: BTreeMap<String, Place>,
    last_prefix: u64,
    /// The end of the pause of the client.
    paused: Instant,
    /// The number of grants and extensions that the evidence did not cover.
    unproven: u64,
    /// The number of places that an acquisition has taken over.
    taken: u64,
}

/// A child in the queue of a lock.
#[derive(Clone)]
struct Znode {
    lock: String,
    prefix: u64,
    session: u64,
    /// The end of the lease.
    end: Moment,
}

/// The place of this client in the queue of a lock.
#[derive(Default)]
struct Place {
    subscribers: BTreeMap<u64, Notify>,
    /// The child, while it is the first one.
    first: Option<Znode>,
}

/// The answer to a call over a session, which was sent at a moment.
struct Answered {
    sent: Moment,
    session: u64,
    answer: Answer,
}

impl SessionNode {
    pub(super) fn start(client: usize, ensemble: &Ensemble, weakness: Weakness, rate: f64) -> Self {
        let began = Instant::now();
        let state = State {
            link: None,
            evidence: Evidence::new(TIMEOUT, Moment::at(Duration::ZERO)),
            locks: BTreeMap::new(),
            places: BTreeMap::new(),
            last_prefix: (client as u64) << 32,
            paused: began,
            unproven: 0,
            taken: 0,
        };
        let ensemble = ensemble.clone();
        let shared =
            Arc::new(Shared { client, ensemble, weakness, began, rate, state: Mutex::new(state) });
        let status = StatusSender::new(NodeStatus::Connecting);
        tokio::spawn(Arc::clone(&shared).keep(status.clone()));
        Self { name: "ensemble".into(), status, shared }
    }

    /// Pauses the client: it sends nothing, and reads nothing.
    pub(super) fn pause(&self, time: Duration) {
        self.shared.state.lock().paused = Instant::now() + time;
    }

    /// Returns the numbers of grants and extensions that the evidence did not cover, and of places that were taken over.
    pub(super) fn counts(&self) -> (u64, u64) {
        let state = self.shared.state.lock();
        (state.unproven, state.taken)
    }
}

impl Node for SessionNode {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.longest_lease = TIMEOUT / 2;
        capabilities.fencing = Fencing::Alone;
        capabilities.min_hold = false;
        capabilities.only_node = true;
        capabilities.ordered = false;
        capabilities
    }

    fn call(&self, op: Op) -> ReplyFuture {
        let shared = Arc::clone(&self.shared);
        // In a task, because the caller may drop the future between two requests.
        ReplyFuture::new(async move {
            let executed = tokio::spawn(async move { shared.execute(&op).await }).await;
            executed.expect("no panic").unwrap_or_else(Reply::new)
        })
    }

    fn subscribe(&self, spec: &LockSpec, notify: Notify) -> Subscription {
        let (shared, lock) = (Arc::clone(&self.shared), spec.name().to_owned());
        let id = shared.new_prefix();
        let mut state = shared.state.lock();
        let is_new = !state.places.contains_key(&lock);
        state.places.entry(lock.clone()).or_default().subscribers.insert(id, notify);
        drop(state);
        if is_new {
            tokio::spawn(Arc::clone(&shared).keep_place(lock.clone()));
        }
        Subscription::new(move || {
            let mut state = shared.state.lock();
            if let Some(place) = state.places.get_mut(&lock) {
                place.subscribers.remove(&id);
            }
        })
    }

    fn status(&self) -> StatusReceiver {
        self.status.subscribe()
    }
}

impl Shared {
    fn now(&self) -> Moment {
        Moment::at(self.began.elapsed().mul_f64(self.rate))
    }

    fn new_prefix(&self) -> u64 {
        let state = &mut *self.state.lock();
        state.last_prefix += 1;
        state.last_prefix
    }

    /// Waits until the client is not paused.
    async fn awake(&self) {
        loop {
            let end = self.state.lock().paused;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }

    /// Keeps the session connected, and sends beats.
    async fn keep(self: Arc<Self>, status: StatusSender) {
        let (mut session, mut began) = (None, Moment::at(Duration::ZERO));
        loop {
            self.awake().await;
            let connecting = timeout(TIMEOUT / 4, self.connect(session)).await;
            if let Ok(Some((before, connected, granted, calls))) = connecting {
                if session.replace(connected) != Some(connected) {
                    began = before;
                }
                if granted < TIMEOUT {
                    self.state.lock().evidence.end(before);
                    self.ensemble.cut(self.client);
                    sleep(PAUSE).await;
                    continue;
                }
                let state = &mut *self.state.lock();
                state.evidence.connected(began, before);
                state.link = Some((connected, calls));
                status.send(NodeStatus::Up);
            } else {
                sleep(PAUSE).await;
                continue;
            }
            while self.beat().await {
                sleep(Evidence::beat_interval(TIMEOUT)).await;
            }
            self.ensemble.cut(self.client);
            self.state.lock().link = None;
            let reason = NodeError::NotConnected("the connection has ended".into());
            status.send(NodeStatus::Down(reason));
        }
    }

    /// Connects to a follower. Returns `None` if the session would be shortened.
    async fn connect(&self, session: Option<u64>) -> Option<(Moment, u64, Duration, Calls)> {
        let follower = self.ensemble.any_follower();
        if session.is_some() && self.weakness != Weakness::NoLimitBeforeTheSession {
            let granted = self.ensemble.granted_timeout(follower).await;
            self.awake().await;
            if granted < TIMEOUT {
                return None;
            }
        }
        let before = self.now();
        let connecting = self.ensemble.connect(self.client, session, follower);
        let (session, granted, calls) = connecting.await;
        Some((before, session, granted, calls))
    }

    /// Sends a beat. Returns `false` if the client needs a new connection.
    async fn beat(&self) -> bool {
        self.awake().await;
        let is_stale = self.state.lock().evidence.is_stale(self.now());
        if is_stale && self.weakness != Weakness::NoEvidence {
            return false;
        }
        let beat = self.call(String::new(), 0, Request::Beat);
        let Ok(Ok(Answered { sent, .. })) = timeout(TIMEOUT / 4, beat).await else {
            return false;
        };
        self.state.lock().evidence.answered(sent, self.now());
        true
    }

    async fn call(
        &self,
        lock: String,
        prefix: u64,
        request: Request,
    ) -> Result<Answered, NodeError> {
        self.awake().await;
        let sent = self.now();
        let not_connected = || NodeError::NotConnected("no connection".into());
        let (session, calls) = self.state.lock().link.clone().ok_or_else(not_connected)?;
        let (sender, reply) = oneshot::channel();
        let call = Call { lock, prefix, request };
        calls.send((call, sender)).map_err(|_| not_connected())?;
        let broke = |_| NodeError::ConnectionBroke("the connection has ended".into());
        let answer = reply.await.map_err(broke)?;
        self.awake().await;
        Ok(Answered { sent, session, answer })
    }

    async fn execute(self: Arc<Self>, op: &Op) -> Result<Reply, Vote> {
        match op.action {
            Action::Acquire { lease, ask, .. } => {
                self.acquire(op.spec.name(), op.token, lease, ask.waits).await
            }
            Action::Extend { lease, .. } => {
                let znode = self.state.lock().locks.get(&op.token).cloned().ok_or(Vote::NotHeld)?;
                let end = self.now().plus(lease).max(znode.end);
                self.hold(op.token, Znode { end, ..znode.clone() });
                let written = self.call(znode.lock, znode.prefix, Request::Write(lease)).await;
                let Answered { sent, session, answer } = written.map_err(Vote::Failed)?;
                if !answer.existed || session != znode.session {
                    return Err(Vote::NotHeld);
                }
                self.vouch(sent, lease)?;
                Ok(Vote::Agreed.into())
            }
            Action::Release { .. } => {
                let znode = self.state.lock().locks.get(&op.token).cloned().ok_or(Vote::NotHeld)?;
                let was_held = self.remove(&znode).await.map_err(Vote::Failed)?;
                self.state.lock().locks.remove(&op.token);
                Ok(if was_held { Vote::Agreed } else { Vote::NotHeld }.into())
            }
            _ => Err(Vote::Failed(NodeError::Server("unknown action".into()))),
        }
    }

    async fn acquire(
        self: &Arc<Self>,
        lock: &str,
        token: Token,
        lease: Duration,
        waits: bool,
    ) -> Result<Reply, Vote> {
        let place = if waits { self.offer(lock, None) } else { None };
        let is_place = place.is_some();
        let (prefix, request) = match place {
            Some(place) => (place.prefix, Request::Write(lease)),
            None => (self.new_prefix(), Request::Create(lease)),
        };
        if !is_place {
            let listed = self.call(lock.to_owned(), prefix, Request::List).await;
            if let Some((_, rest)) = listed.map_err(Vote::Failed)?.answer.first {
                return Err(Vote::held(Some(rest)));
            }
        }
        let entered = self.call(lock.to_owned(), prefix, request).await;
        let session = self.state.lock().link.as_ref().map(|(session, _)| *session);
        let mut znode = Znode {
            lock: lock.to_owned(),
            prefix,
            session: session.unwrap_or_default(),
            end: self.now().plus(lease),
        };
        let Answered { sent, session, answer } = match entered {
            Ok(answered) => answered,
            Err(error) => {
                tokio::spawn(Arc::clone(self).remove_later(znode));
                return Err(Vote::Failed(error));
            }
        };
        (znode.session, znode.end) = (session, sent.plus(lease));
        let is_first = answer.first.is_some_and(|(first, _)| first == prefix);
        if !is_first && self.weakness != Weakness::NoListAfterTheCreation {
            tokio::spawn(Arc::clone(self).remove_later(znode));
            return Err(Vote::held(answer.first.map(|(_, rest)| rest)));
        }
        self.state.lock().taken += u64::from(is_place);
        self.hold(token, znode);
        self.vouch(sent, lease)?;
        Ok(Reply::new(Vote::Agreed).with_number(answer.number))
    }

    fn vouch(&self, sent: Moment, lease: Duration) -> Result<(), Vote> {
        if self.weakness == Weakness::NoEvidence {
            return Ok(());
        }
        let state = &mut *self.state.lock();
        let vouched = state.evidence.vouch(sent, lease);
        state.unproven += u64::from(vouched.is_err());
        vouched.map_err(Vote::Failed)
    }

    /// Records a lock, and removes its child at the end of its lease.
    fn hold(self: &Arc<Self>, token: Token, znode: Znode) {
        let (shared, end) = (Arc::clone(self), znode.end);
        self.state.lock().locks.insert(token, znode);
        tokio::spawn(async move {
            sleep(end.since(shared.now()).div_f64(shared.rate)).await;
            let is_over = |znode: &Znode| znode.end == end;
            let held = shared.state.lock().locks.get(&token).cloned();
            if let Some(znode) = held.filter(is_over) {
                shared.state.lock().locks.remove(&token);
                shared.remove_later(znode).await;
            }
        });
    }

    /// Removes a child. Returns whether it existed. The children of a session that has ended are gone.
    async fn remove(&self, znode: &Znode) -> Result<bool, NodeError> {
        let deleted = self.call(znode.lock.clone(), znode.prefix, Request::Delete).await?;
        Ok(deleted.answer.existed && deleted.session == znode.session)
    }

    async fn remove_later(self: Arc<Self>, znode: Znode) {
        while self.remove(&znode).await.is_err() {
            sleep(PAUSE).await;
        }
    }

    /// Keeps a place in the queue of a lock as long as there are subscriptions.
    async fn keep_place(self: Arc<Self>, lock: String) {
        while self.is_wanted(&lock) {
            let prefix = self.new_prefix();
            let created = self.call(lock.clone(), prefix, Request::Create(Duration::ZERO)).await;
            let session = created.as_ref().map_or(0, |answered| answered.session);
            let end = self.now();
            let znode = Znode { lock: lock.clone(), prefix, session, end };
            if created.is_err() || !self.wait_in_place(&znode).await {
                Arc::clone(&self).remove_later(znode).await;
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns whether there are subscriptions. Otherwise, the place ends.
    fn is_wanted(&self, lock: &str) -> bool {
        let mut state = self.state.lock();
        let is_wanted = state.places.get(lock).is_some_and(|place| !place.subscribers.is_empty());
        if !is_wanted {
            state.places.remove(lock);
        }
        is_wanted
    }

    /// Waits until an acquisition has taken the place. Returns `false` if none does.
    async fn wait_in_place(&self, znode: &Znode) -> bool {
        loop {
            let listed = self.call(znode.lock.clone(), znode.prefix, Request::List).await;
            let Ok(Answered { session, answer, .. }) = listed else { return false };
            if !answer.existed || session != znode.session {
                return false;
            }
            if answer.first.is_some_and(|(first, _)| first == znode.prefix) {
                break;
            }
            let _ = timeout(TIMEOUT / 8, self.ensemble.changed()).await;
            let is_left = |place: &Place| place.subscribers.is_empty();
            if self.state.lock().places.get(&znode.lock).is_none_or(is_left) {
                return false;
            }
        }
        self.offer(&znode.lock, Some(znode.clone()));
        let subscribers = {
            let state = self.state.lock();
            state.places.get(&znode.lock).map(|place| place.subscribers.clone())
        };
        for notify in subscribers.unwrap_or_default().values() {
            notify();
        }
        sleep(KEPT).await;
        // Nobody takes it from now on.
        self.offer(&znode.lock, None).is_none()
    }

    /// Offers the first place in the queue of a lock to acquisitions, or none. Returns the place that was offered before.
    fn offer(&self, lock: &str, first: Option<Znode>) -> Option<Znode> {
        let mut state = self.state.lock();
        state.places.get_mut(lock).and_then(|place| std::mem::replace(&mut place.first, first))
    }
}

impl fmt::Debug for SessionNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionNode").field("name", &self.name).finish_non_exhaustive()
    }
}
