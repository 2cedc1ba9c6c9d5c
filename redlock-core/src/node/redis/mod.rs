//! A node that is a Redis or Valkey server.

mod channels;
mod clock_watch;
mod commands;
mod connect;
mod connector;
mod endpoint;
mod fencing;
mod health;
mod link;
mod lives;
#[cfg(test)]
mod order_tests;
mod outage_log;
mod plain;
mod probation;
mod reachable;
mod redisson;
mod reply;
mod script;
mod scripted;
mod socket;
#[cfg(test)]
mod subscription_tests;
#[cfg(feature = "tls")]
mod tls;
mod traffic;
mod turned_away;
mod wall_clock;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use bb8_redis::redis::{RedisError, Value};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Answer, Claim, Dialect, Listening, LockName, Node, Ready, Ring, Silence};
use crate::ballot::validity;
use crate::clock::Clock;
use crate::error::{NodeError, Vote};
use crate::log_limit::LogLimit;
use crate::runtimes::Service;
use crate::telemetry;

pub(crate) use commands::SharedCommand;
pub(crate) use connect::{Servers, connect_all};
pub(crate) use endpoint::Endpoint;

use channels::Channels;
use clock_watch::ClockWatch;
use connect::{FirstAttempt, Supervisor};
use link::Link;
use lives::Lives;
use reachable::Reachable;
use script::Script;

/// One server, spoken to over one connection that is replaced when it breaks.
///
/// There is never more than one usable connection, so that what is sent later also arrives later
/// (invariant 6). While there is none, the node fails to vote at once and nobody waits for it.
pub(crate) struct RedisNode {
    endpoint: Endpoint,
    node_timeout: Duration,
    connect_timeout: Duration,
    /// How long it has to be running, with a steady clock, before it grants locks.
    restart_guard: Option<Duration>,
    /// The one that leases are measured on.
    clock: Arc<dyn Clock>,
    /// Beside the pool, so that a command takes no lock to find its connection.
    current: ArcSwap<Connection>,
    reachable: Arc<Reachable>,
    /// Tells the task that keeps it connected that nobody needs it any more.
    dropped: CancellationToken,
    _cancel_on_drop: DropGuard,
    channels: Arc<Channels>,
    servers: Arc<Servers>,
    lives: Mutex<Lives>,
    clock_watch: Arc<ClockWatch>,
    /// Of the lines about this node's connections.
    log_limit: Arc<LogLimit>,
    /// Of the present supervisor. Cancelled when another one takes over, in another runtime.
    tenure: Mutex<CancellationToken>,
    /// What keeps it connected, between the first attempt to connect and the task that goes on.
    first_attempt: Mutex<Option<FirstAttempt>>,
    this: Weak<Self>,
}

/// The connection to a server, or the reason why there is none.
#[derive(Debug, Clone)]
enum Connection {
    Up(Arc<Link>),
    Down(NodeError),
}

impl RedisNode {
    pub(crate) fn new(
        endpoint: Endpoint,
        node_timeout: Duration,
        connect_timeout: Duration,
        restart_guard: Option<Duration>,
        clock: Arc<dyn Clock>,
        servers: &Arc<Servers>,
    ) -> Arc<Self> {
        let down = Connection::Down(NodeError::NotConnected("not connected yet".into()));
        let dropped = CancellationToken::new();
        let log_limit = Arc::default();
        let clock_watch = ClockWatch::new(endpoint.name(), &clock, restart_guard, &log_limit);
        Arc::new_cyclic(|this| Self {
            endpoint,
            node_timeout,
            connect_timeout,
            restart_guard,
            clock,
            current: ArcSwap::from_pointee(down),
            reachable: Arc::default(),
            _cancel_on_drop: dropped.clone().drop_guard(),
            dropped,
            channels: Arc::default(),
            servers: Arc::clone(servers),
            lives: Mutex::default(),
            clock_watch: Arc::new(clock_watch),
            log_limit,
            tenure: Mutex::default(),
            first_attempt: Mutex::default(),
            this: Weak::clone(this),
        })
    }

    fn set(&self, connection: Connection) {
        let up = matches!(connection, Connection::Up(_));
        telemetry::node_up(self.endpoint.name(), up);
        self.current.store(Arc::new(connection));
        self.reachable.set(up);
    }

    /// Changes the connection, unless the tenure of the supervisor that asks for it is over. Returns
    /// whether it did.
    fn set_during(&self, tenure: &CancellationToken, connection: Connection) -> bool {
        let _current = self.tenure.lock();
        let is_current = !tenure.is_cancelled();
        if is_current {
            self.set(connection);
        }
        is_current
    }

    fn link(&self) -> Result<Arc<Link>, NodeError> {
        match &**self.current.load() {
            Connection::Up(link) if link.is_alive() => Ok(Arc::clone(link)),
            Connection::Up(_) => Err(NodeError::NotConnected("the connection broke".into())),
            Connection::Down(reason) => Err(reason.clone()),
        }
    }

    /// How long the server has been silent, if that is for too long. Commands that are sent then pile up
    /// there, and are of no use any more when it wakes up.
    fn silent_for(&self) -> Option<Duration> {
        self.link().ok()?.silent_for(self.node_timeout)
    }

    /// Asks, if there is a connection.
    fn ask<F>(&self, question: impl FnOnce(Arc<Link>) -> F) -> Answer
    where
        F: Future<Output = Vote> + Send + 'static,
    {
        match self.link() {
            Ok(link) => Answer::pending(question(link)),
            Err(reason) => Answer::Ready(Vote::Failed(reason)),
        }
    }
}

impl Service for RedisNode {
    /// Keeps the node connected. A connection that was driven by another runtime is replaced.
    fn start(&self, runtime: &Handle, _: &CancellationToken) {
        let first = self.first_attempt.lock().take();
        if first.is_none() {
            self.leave_connection("its runtime has ended or stands still");
        }
        let tenure = self.tenure.lock().clone();
        let (node, ends) = (Weak::clone(&self.this), tenure.clone());
        let keep_connected = async move {
            let (supervisor, first) = match first {
                Some(attempt) => attempt.await,
                None => match node.upgrade() {
                    Some(node) => Supervisor::new(&node, tenure).first_attempt().await,
                    None => return,
                },
            };
            supervisor.keep_connected(first).await;
        };
        runtime.spawn(async move {
            tokio::select! {
                biased;
                () = ends.cancelled() => {}
                () = keep_connected => {}
            }
        });
    }
}

impl RedisNode {
    /// Ends the connection and its supervisor, so that there can be others.
    fn leave_connection(&self, reason: &str) {
        // Together: a supervisor sets no connection once its tenure is over.
        let mut tenure = self.tenure.lock();
        std::mem::take(&mut *tenure).cancel();
        if let Connection::Up(link) = &**self.current.load() {
            self.lives.lock().disconnected(link.identity.run_id.as_deref());
            link.end(reason);
        }
        self.set(Connection::Down(NodeError::NotConnected(reason.into())));
    }
}

impl Node for RedisNode {
    fn name(&self) -> &Arc<str> {
        self.endpoint.name()
    }

    fn acquire(&self, claim: &Arc<Claim>, expire: Duration) -> Answer {
        let link = match self.link().and_then(|link| link.may_grant().map(|()| link)) {
            Ok(link) => link,
            Err(reason) => return Answer::Ready(Vote::Failed(reason)),
        };
        if let Some(waited) = link.silent_for(self.node_timeout) {
            return Answer::Ready(Vote::Failed(NodeError::NoAnswer(waited)));
        }
        link.note_use();
        let claim = Arc::clone(claim);
        // A short lease ends the round, and with it the time in which a vote counts.
        let round = self.node_timeout.min(validity::remaining(expire, Duration::ZERO));
        let look_until = Instant::now() + round * 4 / 5;
        Answer::pending(async move { set(&link, &claim, expire, look_until).await })
    }

    fn extend(&self, claim: &Arc<Claim>, expire: Duration) -> Answer {
        if let Some(waited) = self.silent_for() {
            return Answer::Ready(Vote::Failed(NodeError::NoAnswer(waited)));
        }
        let claim = Arc::clone(claim);
        self.ask(|link| async move {
            link.note_use();
            let millis = commands::millis(expire);
            let arguments = [claim.token().as_bytes(), millis.as_bytes()];
            let script = Script::extend(claim.dialect());
            reply::owned(&link.run(script, &[claim.name().as_str()], &arguments).await)
        })
    }

    fn confirm(&self, claim: &Arc<Claim>, number: i64) -> Answer {
        if let Some(waited) = self.silent_for() {
            return Answer::Ready(Vote::Failed(NodeError::NoAnswer(waited)));
        }
        let claim = Arc::clone(claim);
        self.ask(|link| async move {
            let (number, counter) = (number.to_string(), claim.counter().unwrap_or_default());
            let arguments = [claim.token().as_bytes(), number.as_bytes()];
            let script = Script::confirm(claim.dialect());
            reply::owned(&link.run(script, &[claim.name().as_str(), counter], &arguments).await)
        })
    }

    fn release(&self, claim: &Arc<Claim>) -> Answer {
        let claim = Arc::clone(claim);
        self.ask(|link| async move {
            let reply = release(&link, &claim).await;
            let (vote, listeners) = reply::released(&reply);
            claim.note_listeners(listeners);
            vote
        })
    }

    fn listen(&self, name: &LockName, ring: Ring) -> (Listening, Ready) {
        self.channels.listen(&channel(name), ring)
    }

    fn silence(&self, limit: Duration, waited: Duration) -> Silence {
        match self.link() {
            Ok(link) => link.silence(limit),
            // What was asked fails at its next poll.
            Err(_) => Silence::Lasts(waited),
        }
    }

    fn is_cluster(&self) -> bool {
        self.link().is_ok_and(|link| link.identity.is_cluster)
    }

    fn is_up(&self) -> bool {
        self.link().is_ok()
    }

    fn recovered(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        // A node that is gone for good is waited for until the caller's patience ends.
        Box::pin(Arc::clone(&self.reachable).wait())
    }
}

/// Sets the lock. What is granted while the server is found to be one that grants none does not count:
/// where the answer was on its way for long, the step may be older than the question.
async fn set(link: &Link, claim: &Claim, expire: Duration, look_until: Instant) -> Vote {
    let vote = match (claim.dialect(), claim.counter()) {
        (Dialect::Plain, None) => plain::acquire(link, claim, expire, look_until).await,
        _ => scripted::acquire(link, claim, expire).await,
    };
    match link.may_grant() {
        Err(reason) if vote == Vote::Granted => Vote::Failed(reason),
        _ => vote,
    }
}

/// Removes the lock, or shortens its time to live where it has to stay.
async fn release(link: &Link, claim: &Claim) -> Result<Value, RedisError> {
    match claim.dialect() {
        Dialect::Plain => plain::release(link, claim).await,
        Dialect::Redisson => redisson::release(link, claim).await,
    }
}

/// What the releases of a lock are announced on.
fn channel(name: &LockName) -> Arc<str> {
    match name.dialect() {
        Dialect::Plain => plain::channel(name),
        Dialect::Redisson => redisson::channel(name),
    }
}

/// What a server is asked to run, each by its name.
#[cfg(test)]
pub(crate) fn scripts() -> impl Iterator<Item = (String, &'static str)> {
    Script::ALL.into_iter().map(|script| (format!("{script:?}"), script.source()))
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode")
            .field("name", self.endpoint.name())
            .field("connected", &self.link().is_ok())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::scripted::tests::{link, serve};
    use super::*;
    use crate::clock::fake::RuntimeClock;
    use crate::key::LockKey;

    /// Commands would pile up there, and have no effect that anybody wants when it wakes up.
    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_sent_nothing_but_releases() {
        const NODE_TIMEOUT: Duration = Duration::from_millis(50);
        const LEASE: Duration = Duration::from_secs(30);
        let key = LockKey::new("order:42").unwrap();
        let endpoint = Endpoint::parse("redis://localhost").unwrap();
        let clock = Arc::new(RuntimeClock::new());
        let node =
            RedisNode::new(endpoint, NODE_TIMEOUT, NODE_TIMEOUT, None, clock, &Arc::default());
        let (link, mut server) = link().await;
        node.set(Connection::Up(Arc::new(link)));
        let claim = || {
            let name = LockName::new("", &key, Dialect::Plain);
            Arc::new(Claim::new(name, key.clone()).fenced(&Arc::from("counter")))
        };
        let mut first = node.acquire(&claim(), LEASE);
        assert!(futures_util::poll!(&mut first).is_pending());
        tokio::time::sleep(NODE_TIMEOUT * 2).await;
        for answer in
            [node.acquire(&claim(), LEASE), node.extend(&claim(), LEASE), node.confirm(&claim(), 1)]
        {
            assert!(
                matches!(answer, Answer::Ready(Vote::Failed(NodeError::NoAnswer(_)))),
                "{answer:?}"
            );
        }
        let mut release = node.release(&claim());
        assert!(futures_util::poll!(&mut release).is_pending());
        // The answer to the first command shows that the server works.
        serve(&mut server, "PlainFenced", "$1\r\n7\r\n", || {}).await;
        assert_eq!(first.await, Vote::Granted);
        assert!(matches!(node.extend(&claim(), LEASE), Answer::Pending(_)));
    }

    /// That it is held is known; to find out for how long shall not let the vote come too late.
    #[tokio::test(start_paused = true)]
    async fn who_holds_a_lock_is_looked_into_for_no_longer_than_the_round_lasts() {
        const SECOND: Duration = Duration::from_secs(1);
        let key = LockKey::new("order:42").unwrap();
        for (node_timeout, expire, round) in [
            (SECOND, 30 * SECOND, SECOND),
            (30 * SECOND, SECOND, validity::remaining(SECOND, Duration::ZERO)),
        ] {
            let endpoint = Endpoint::parse("redis://localhost").unwrap();
            let clock = Arc::new(RuntimeClock::new());
            let node = RedisNode::new(endpoint, node_timeout, SECOND, None, clock, &Arc::default());
            let (link, mut server) = link().await;
            node.set(Connection::Up(Arc::new(link)));
            let name = LockName::new("", &key, Dialect::Plain);
            let claim = Arc::new(Claim::new(name, key.clone()));
            let refuse = serve(&mut server, "SET", "_\r\n", || {});
            let vote = async { tokio::join!(node.acquire(&claim, expire), refuse).0 };
            let vote = tokio::time::timeout(round, vote).await;
            assert_eq!(vote.unwrap(), Vote::Held { remaining: None }, "{expire:?}");
        }
    }
}
