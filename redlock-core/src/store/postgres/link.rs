//! One connection to a server, with the task that drives it.
//!
//! The task sends the statements in the order in which it gets them, and takes their replies itself. So a caller that polls its
//! future late, or drops it, delays nobody: tokio-postgres stops reading while a reply is not taken.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, Error};

use super::connect::Connected;
use super::error;
use super::schema::Findings;
use super::session::{Answer, Work};
use super::sql::Statement;
use super::unsettled::Unsettled;
use crate::clock::Clock;
use crate::error::{NodeError, legible};
use crate::node::{ServerReport, Silence};
use crate::store::kit::kept::KeptLink;
use crate::store::kit::link_state::LinkState;
use crate::store::kit::wall_clock::{READING_INTERVAL, Reading};

/// A connection ends when its server has been silent for this time, or for the node timeout if that is longer.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);
/// The functions of PostgreSQL that warn of something else than a lost write: of a database that needs a vacuum, and of
/// notifications that are not read. The words of a warning depend on the language of the server.
const HARMLESS: [&str; 2] = ["GetNewTransactionId", "asyncQueueFillWarning"];
/// How many requests the task takes at once.
const BATCH: usize = 64;

/// One connection. Its task ends when the last handle is dropped.
pub(super) struct ServerLink {
    pub(super) server: ServerReport,
    /// As in the [findings](Findings) of the connection.
    pub(super) may_forget: bool,
    pub(super) may_block: bool,
    requests: mpsc::UnboundedSender<Request>,
    state: Arc<LinkState>,
}

/// A request to the task of a connection.
struct Request {
    work: Work,
    reply: oneshot::Sender<Result<Answer, NodeError>>,
    context: RequestContext,
}

/// The effects of a reply to a request, apart from its caller.
#[derive(Default)]
pub(super) struct RequestContext {
    /// The acquisition, which a reply settles.
    pub(super) unsettled: Option<Unsettled>,
    /// The channel of the lock, whose release is announced.
    pub(super) released: Option<Box<str>>,
}

/// An event of a connection, for its node.
pub(super) enum LinkEvent {
    /// A lock was released, whose channel is to be notified.
    Released(Box<str>),
    /// A channel was notified.
    Notified(String),
    /// The time of the server.
    Time(Reading),
}

impl ServerLink {
    /// Sends a request at once. The future waits for the answer; the request stays when it is dropped.
    pub(super) fn send(
        &self,
        work: Work,
        context: RequestContext,
    ) -> impl Future<Output = Result<Answer, NodeError>> + Send + use<> {
        let (reply, answer) = oneshot::channel();
        let is_sent = self.requests.send(Request { work, reply, context }).is_ok();
        let state = Arc::clone(&self.state);
        async move {
            if !is_sent {
                return Err(NodeError::NotConnected(state.reason()));
            }
            answer.await.unwrap_or_else(|_| Err(NodeError::ConnectionBroke(state.reason())))
        }
    }
}

impl KeptLink for ServerLink {
    fn ended(&self) -> Option<Arc<str>> {
        self.state.ended()
    }

    fn silence(&self, limit: Duration) -> Silence {
        self.state.silence(limit)
    }
}

/// Drives a connection.
pub(super) struct LinkDriver {
    pub(super) connected: Connected,
    requests: mpsc::UnboundedReceiver<Request>,
    state: Arc<LinkState>,
    node_timeout: Duration,
    clock: Arc<dyn Clock>,
}

type Pending = FuturesUnordered<BoxFuture<'static, Done>>;

/// The result of a request or of a ping.
enum Done {
    Request(Result<Answer, Error>, oneshot::Sender<Result<Answer, NodeError>>, RequestContext),
    /// The time, and the session that has read it.
    Ping(Result<(Reading, Option<i64>), Error>),
}

impl LinkDriver {
    /// Makes a link over a new connection, and its driver.
    pub(super) fn new(
        connected: Connected,
        node_timeout: Duration,
        clock: Arc<dyn Clock>,
    ) -> (ServerLink, Self) {
        let (sender, requests) = mpsc::unbounded_channel();
        let state = Arc::<LinkState>::default();
        let mut server = ServerReport::new(&*connected.server, true);
        let Findings { server: (_, timeline), version, may_forget, may_block, .. } =
            &connected.findings;
        server.timeline = Some(*timeline);
        (server.product, server.version) = (Some("PostgreSQL"), Some(version.clone()));
        server.clock_offset_ms = connected.clock_offset_ms;
        let (may_forget, may_block) = (*may_forget, *may_block);
        let link = ServerLink {
            server,
            may_forget,
            may_block,
            requests: sender,
            state: Arc::clone(&state),
        };
        (link, Self { connected, requests, state, node_timeout, clock })
    }

    /// Drives the connection until it ends, and returns the reason. Pings the server after each use, and while `is_needed`
    /// returns true. Otherwise nothing is sent.
    pub(super) async fn run(
        mut self,
        on_event: impl FnMut(LinkEvent),
        is_needed: impl Fn() -> bool,
    ) -> Arc<str> {
        let mut pending = Pending::new();
        let reason = self.drive(&mut pending, on_event, is_needed).await;
        // Before the requests without a reply are dropped, whose callers read it.
        self.state.end(reason)
    }

    async fn drive(
        &mut self,
        pending: &mut Pending,
        mut on_event: impl FnMut(LinkEvent),
        is_needed: impl Fn() -> bool,
    ) -> String {
        let limit = SILENCE_LIMIT.max(self.node_timeout);
        let check = (self.node_timeout / 8).max(Duration::from_millis(1));
        // A pooler may give the connection to the server to another client as soon as one transaction has ended.
        let (batch_size, pipelined) =
            if self.connected.session.is_pooled() { (1, false) } else { (BATCH, true) };
        let mut batch = Vec::with_capacity(batch_size);
        let (mut owed_since, mut last_check) = (Instant::now(), Instant::now());
        let mut next_ping = Instant::now() + READING_INTERVAL;
        let mut is_used = false;
        let mut timer = pin!(sleep_until(next_ping));
        loop {
            tokio::select! {
                biased;
                count = self.requests.recv_many(&mut batch, batch_size), if pipelined || (pending.is_empty() && Instant::now() < next_ping) => {
                    if count == 0 {
                        return "the lock manager was dropped".to_owned();
                    }
                    is_used = true;
                    if pending.is_empty() {
                        owed_since = Instant::now();
                        timer.as_mut().reset(next_ping.min(owed_since + check));
                    }
                    pending.extend(batch.drain(..).map(|request| self.start(request)));
                }
                Some(done) = pending.next() => {
                    owed_since = Instant::now();
                    self.state.set_silent(Duration::ZERO);
                    if !pipelined {
                        // A ping that is due goes before the next request.
                        timer.as_mut().reset(next_ping);
                    }
                    if let Err(reason) = self.finish(done, &mut on_event) {
                        return reason;
                    }
                }
                message = poll_fn(|cx| self.connected.connection.poll_message(cx)) => match message {
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        on_event(LinkEvent::Notified(notification.channel().to_owned()));
                    }
                    // A server gives up the wait for its standby with a warning, and then reports success.
                    Some(Ok(AsyncMessage::Notice(notice)))
                        if notice.parsed_severity() == Some(Severity::Warning)
                            && !HARMLESS.map(Some).contains(&notice.routine()) =>
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
                        // Until the last check: a reply that has arrived since then may not be read yet.
                        let silent = last_check - owed_since;
                        self.state.set_silent(silent);
                        if silent >= limit {
                            return format!("no reply within {limit:?}");
                        }
                    } else if now >= next_ping {
                        owed_since = now;
                    }
                    last_check = now;
                    if now >= next_ping && (pipelined || pending.is_empty()) {
                        next_ping = now + READING_INTERVAL;
                        if std::mem::take(&mut is_used) || is_needed() {
                            pending.push(self.ping());
                        }
                    }
                    // A ping that waits for the end of the pending request needs no timer.
                    let next = match next_ping {
                        next_ping if pending.is_empty() => next_ping,
                        next_ping if next_ping > now => next_ping.min(now + check),
                        _ => now + check,
                    };
                    timer.as_mut().reset(next);
                }
            }
        }
    }

    fn start(&self, Request { work, reply, context }: Request) -> BoxFuture<'static, Done> {
        let session = Arc::clone(&self.connected.session);
        async move { Done::Request(session.execute(work).await, reply, context) }.boxed()
    }

    fn ping(&self) -> BoxFuture<'static, Done> {
        let (session, clock) = (Arc::clone(&self.connected.session), Arc::clone(&self.clock));
        async move {
            let work = Work::Statement(Statement::Time, Vec::new());
            let mut executed_by = None;
            let time = async {
                let answer = session.execute(work).await?;
                executed_by = answer.session;
                Ok(answer.time())
            };
            let reading = Reading::take(&*clock, time).await;
            Done::Ping(reading.map(|reading| (reading, executed_by)))
        }
        .boxed()
    }

    /// Returns whether another session than that of the connection has executed a statement. A pooler in transaction mode does
    /// that, and may lead to another server.
    fn is_foreign(&self, executed_by: Option<i64>) -> bool {
        let Connected { session, findings, .. } = &self.connected;
        !session.is_pooled() && executed_by.is_some_and(|session| session != findings.session)
    }

    /// Passes a result on. An error ends the connection.
    fn finish(&self, done: Done, on_event: &mut impl FnMut(LinkEvent)) -> Result<(), String> {
        let result = match done {
            Done::Ping(Ok((_, executed_by))) if self.is_foreign(executed_by) => {
                return Err(error::no_session().to_string());
            }
            Done::Ping(result) => result.map(|(reading, _)| on_event(LinkEvent::Time(reading))),
            Done::Request(Ok(answer), reply, _) if self.is_foreign(answer.session) => {
                // The pooler may lead to a server that the node has not checked.
                let _ = reply.send(Err(error::no_session()));
                return Err(error::no_session().to_string());
            }
            Done::Request(result, reply, RequestContext { unsettled, released }) => {
                let answer = result.as_ref().cloned().map_err(error::of_operation);
                if let Some(unsettled) = unsettled
                    && !matches!(answer, Err(NodeError::ConnectionBroke(_)))
                {
                    unsettled.settle();
                }
                if let (Some(channel), Ok(Answer { rows: 1, .. })) = (released, &answer) {
                    on_event(LinkEvent::Released(channel));
                }
                // The caller may have dropped its future.
                let _ = reply.send(answer);
                result.map(drop)
            }
        };
        let outdated = |reason| Some((error::outdated(&reason)?, reason));
        result
            .err()
            .and_then(outdated)
            .map_or(Ok(()), |(words, reason)| Err(format!("{words}: {}", error::message(&reason))))
    }
}
