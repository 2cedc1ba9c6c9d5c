//! One connection to a server, with the task that drives it.
//!
//! The task sends the statements in the order in which it gets them, and takes their replies itself. So a caller that polls its
//! future late, or drops it, delays nobody: tokio-postgres stops reading while a reply is not taken.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::future::{BoxFuture, join};
use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::{FutureExt, TryStreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_postgres::error::Severity;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{AsyncMessage, Client, Error, Row};

use super::connect::Connected;
use super::error;
use super::schema::Statement;
use super::unsettled::Unsettled;
use crate::clock::{Clock, nanos};
use crate::error::{NodeError, legible};
use crate::node::Silence;
use crate::node::watch::wall_clock::{READING_INTERVAL, Reading};

/// A connection ends when its server has been silent for this time, or for the node timeout if that is longer.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);
/// How many requests the task takes at once.
const BATCH: usize = 64;

/// One connection. Its task ends when the last handle is dropped.
pub(super) struct Link {
    requests: mpsc::UnboundedSender<Request>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// The reason of the end.
    ended: OnceLock<Arc<str>>,
    /// For how long the server has owed a reply, in nanoseconds. The task measures it after it has read everything that has
    /// arrived: a late process does not count as a silent server.
    silent: AtomicU64,
}

/// A request to the task of a connection.
struct Request {
    work: Work,
    reply: oneshot::Sender<Result<Answer, NodeError>>,
    /// Ended by a reply.
    unsettled: Option<Unsettled>,
}

/// What a request asks the server for.
pub(super) enum Work {
    /// A statement over the table, and the channel to notify afterwards.
    Statement(Statement, Vec<Value>, Option<Box<str>>),
    /// A command without parameters.
    Command(String),
}

/// A parameter of a statement. `Debug` does not show it, because tokio-postgres logs parameters (secrets stay in).
pub(super) enum Value {
    Text(Box<str>),
    Number(i64),
}

/// The answer to a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Answer {
    pub(super) rows: usize,
    /// The number in the first row.
    pub(super) number: Option<i64>,
    /// The rest of another holder's lease in the first row.
    pub(super) rest: Option<Duration>,
}

/// What a connection tells its node.
pub(super) enum Event {
    /// A channel was notified.
    Notified(String),
    /// The time of the server.
    Time(Reading),
}

impl Answer {
    /// Returns the number as a time since 1970.
    fn time(self) -> Duration {
        Duration::from_micros(self.number.unwrap_or_default().unsigned_abs())
    }
}

impl Link {
    /// Sends a request at once. The future waits for the answer; the request stays when it is dropped.
    pub(super) fn send(
        &self,
        work: Work,
        unsettled: Option<Unsettled>,
    ) -> impl Future<Output = Result<Answer, NodeError>> + Send + use<> {
        let (reply, answer) = oneshot::channel();
        let is_sent = self.requests.send(Request { work, reply, unsettled }).is_ok();
        let state = Arc::clone(&self.state);
        async move {
            if !is_sent {
                return Err(NodeError::NotConnected(state.reason()));
            }
            answer.await.unwrap_or_else(|_| Err(NodeError::ConnectionBroke(state.reason())))
        }
    }

    /// Returns whether the server owes a reply, and for how long.
    pub(super) fn silence(&self, limit: Duration) -> Silence {
        let silent = Duration::from_nanos(self.state.silent.load(Ordering::Acquire));
        match limit.checked_sub(silent) {
            None | Some(Duration::ZERO) => Silence::Silent(silent),
            Some(rest) => Silence::CheckAgainAfter(rest.max(limit / 8)),
        }
    }

    /// Returns the reason of the end, if the connection has ended.
    pub(super) fn ended(&self) -> Option<Arc<str>> {
        self.state.ended.get().cloned()
    }
}

impl State {
    fn reason(&self) -> Arc<str> {
        self.ended.get().cloned().unwrap_or_else(|| "the connection was closed".into())
    }
}

/// Drives a connection.
pub(super) struct Driver {
    connected: Connected,
    requests: mpsc::UnboundedReceiver<Request>,
    state: Arc<State>,
    node_timeout: Duration,
    clock: Arc<dyn Clock>,
}

type Pending = FuturesUnordered<BoxFuture<'static, Done>>;

/// The result of a request or of a ping.
enum Done {
    Request(Result<Answer, Error>, oneshot::Sender<Result<Answer, NodeError>>, Option<Unsettled>),
    Ping(Result<Reading, Error>),
}

impl Driver {
    /// Makes a link over a new connection, and its driver.
    pub(super) fn new(
        connected: Connected,
        node_timeout: Duration,
        clock: Arc<dyn Clock>,
    ) -> (Link, Self) {
        let (sender, requests) = mpsc::unbounded_channel();
        let state = Arc::<State>::default();
        let link = Link { requests: sender, state: Arc::clone(&state) };
        (link, Self { connected, requests, state, node_timeout, clock })
    }

    /// Drives the connection until it ends, and returns the reason.
    pub(super) async fn run(mut self, on_event: impl FnMut(Event)) -> Arc<str> {
        let mut pending = Pending::new();
        let reason: Arc<str> = self.drive(&mut pending, on_event).await.into();
        // Before the requests without a reply are dropped, whose callers read it.
        self.state.ended.get_or_init(|| Arc::clone(&reason));
        reason
    }

    async fn drive(&mut self, pending: &mut Pending, mut on_event: impl FnMut(Event)) -> String {
        let limit = SILENCE_LIMIT.max(self.node_timeout);
        let check = (self.node_timeout / 8).max(Duration::from_millis(1));
        // A pooler may give the connection to the server to another client as soon as one transaction has ended.
        let (batch_size, pipelined) =
            if self.connected.session.is_pooled() { (1, false) } else { (BATCH, true) };
        let mut batch = Vec::with_capacity(batch_size);
        let mut owed_since = Instant::now();
        let mut next_ping = Instant::now() + READING_INTERVAL;
        let mut timer = pin!(sleep_until(next_ping));
        loop {
            tokio::select! {
                biased;
                count = self.requests.recv_many(&mut batch, batch_size), if pipelined || pending.is_empty() => {
                    if count == 0 {
                        return "the lock manager was dropped".to_owned();
                    }
                    if pending.is_empty() {
                        owed_since = Instant::now();
                        timer.as_mut().reset(next_ping.min(owed_since + check));
                    }
                    pending.extend(batch.drain(..).map(|request| self.start(request)));
                }
                Some(done) = pending.next() => {
                    owed_since = Instant::now();
                    self.state.silent.store(0, Ordering::Release);
                    if let Err(reason) = Self::finish(done, &mut on_event) {
                        return reason;
                    }
                }
                message = poll_fn(|cx| self.connected.connection.poll_message(cx)) => match message {
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        on_event(Event::Notified(notification.channel().to_owned()));
                    }
                    // A server gives up the wait for its standby with a warning, and then reports success.
                    Some(Ok(AsyncMessage::Notice(notice)))
                        if notice.parsed_severity() == Some(Severity::Warning) =>
                    {
                        return format!("the server warned: {}", legible(notice.message()));
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return error::message(&error),
                    None => return "the server has closed the connection".to_owned(),
                },
                () = timer.as_mut() => {
                    let now = Instant::now();
                    if !pending.is_empty() {
                        let silent = now - owed_since;
                        self.state.silent.store(nanos(silent), Ordering::Release);
                        if silent >= limit {
                            return format!("no reply within {limit:?}");
                        }
                    } else if now >= next_ping {
                        owed_since = now;
                    }
                    if now >= next_ping && (pipelined || pending.is_empty()) {
                        next_ping = now + READING_INTERVAL;
                        pending.push(self.ping());
                    }
                    let next = if pending.is_empty() { next_ping } else { next_ping.max(now).min(now + check) };
                    timer.as_mut().reset(next);
                }
            }
        }
    }

    fn start(&self, Request { work, reply, unsettled }: Request) -> BoxFuture<'static, Done> {
        let session = Arc::clone(&self.connected.session);
        async move { Done::Request(session.execute(work).await, reply, unsettled) }.boxed()
    }

    fn ping(&self) -> BoxFuture<'static, Done> {
        let (session, clock) = (Arc::clone(&self.connected.session), Arc::clone(&self.clock));
        async move {
            let work = Work::Statement(Statement::Time, Vec::new(), None);
            let time = async { session.execute(work).await.map(Answer::time) };
            Done::Ping(Reading::take(&*clock, time).await)
        }
        .boxed()
    }

    /// Passes a result on. An error ends the connection.
    fn finish(done: Done, on_event: &mut impl FnMut(Event)) -> Result<(), String> {
        let result = match done {
            Done::Ping(result) => result.map(|reading| on_event(Event::Time(reading))),
            Done::Request(result, reply, unsettled) => {
                let answer = result.as_ref().copied().map_err(error::of_operation);
                if let Some(unsettled) = unsettled
                    && !matches!(answer, Err(NodeError::ConnectionBroke(_)))
                {
                    unsettled.settle();
                }
                // The caller may have dropped its future.
                let _ = reply.send(answer);
                result.map(drop)
            }
        };
        match result {
            Err(reason) if error::is_read_only(&reason) => {
                Err(format!("the server is a replica now: {}", error::message(&reason)))
            }
            _ => Ok(()),
        }
    }
}

/// Executes work over a client.
pub(super) struct Session {
    pub(super) client: Client,
    /// The prepared statements; none behind a pooler, which may send a statement to a session that has not prepared it.
    pub(super) prepared: Vec<tokio_postgres::Statement>,
    /// The schema of the table.
    pub(super) schema: String,
}

impl Session {
    fn is_pooled(&self) -> bool {
        self.prepared.is_empty()
    }

    /// Executes work. The first poll sends it.
    async fn execute(&self, work: Work) -> Result<Answer, Error> {
        let (statement, values, channel) = match work {
            Work::Command(command) => {
                return self.client.batch_execute(&command).await.map(|()| Answer::default());
            }
            Work::Statement(statement, values, channel) => (statement, values, channel),
        };
        let work = self.query(statement, values);
        let Some(channel) = channel else { return work.await };
        // If it fails, waiters poll.
        let notify = self.query(Statement::Notify, vec![Value::Text(channel)]);
        if self.is_pooled() {
            let answer = work.await;
            let _ = notify.await;
            answer
        } else {
            join(work, notify).await.0
        }
    }

    async fn query(&self, statement: Statement, values: Vec<Value>) -> Result<Answer, Error> {
        let rows = if let Some(prepared) = self.prepared.get(statement as usize) {
            self.client.query_raw(prepared, values).await?
        } else {
            let typed = values.into_iter().zip(statement.types().iter().cloned());
            self.client.query_typed_raw(&statement.sql(&self.schema), typed).await?
        };
        let rows: Vec<Row> = rows.try_collect().await?;
        let Some(first) = rows.first() else { return Ok(Answer::default()) };
        let rest: Option<i64> = first.try_get(1)?;
        let rest = rest.map(|micros| Duration::from_micros(micros.max(0).unsigned_abs()));
        Ok(Answer { rows: rows.len(), number: first.try_get(0)?, rest })
    }
}

impl ToSql for Value {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Text(text) => text.as_ref().to_sql(kind, out),
            Self::Number(number) => number.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::TEXT, Type::INT8].contains(kind)
    }

    to_sql_checked!();
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(..)")
    }
}
