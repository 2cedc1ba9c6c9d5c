//! One connection of the session, and the driver that sends the requests and takes the replies.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::evidence::Evidence;
use super::frames::{FrameReader, ServerStream, put_frame};
use super::jute::JuteReader;
use super::requests::{
    ReplyHeader, RequestError, ZookeeperRequest, close_session, sync, watch_deletion,
};
use super::url::ZookeeperUrl;
use crate::clock::Moment;
use crate::error::NodeError;
use crate::node::{NodeSettings, ServerReport, Silence};
use crate::store::kit::kept::KeptLink;
use crate::store::kit::link_state::LinkState;

/// A connection ends when its server has owed a reply for this time, or for a quarter of the session timeout if that is
/// shorter: then three quarters are left to reconnect.
const SILENCE_LIMIT: Duration = Duration::from_secs(2);
/// How long the answer to the end of a session may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// How many requests are sent at once.
const BATCH: usize = 64;
/// The `xid` of an event, which is not a reply.
const EVENT: i32 = -1;

/// Waits for the reply to a request that was sent. Dropping it does not withdraw the request.
pub(super) type PendingReply<T> = BoxFuture<'static, Result<T, RequestError>>;

/// Waits until the watched node was deleted, or the connection has ended. If the request of the watch fails, it may complete at
/// any time.
pub(super) type Watch = BoxFuture<'static, ()>;

/// One connection. Its driver has the other end.
pub(super) struct SessionLink {
    /// The number of the session.
    pub(super) number: u64,
    pub(super) server: ServerReport,
    requests: mpsc::UnboundedSender<Outgoing>,
    state: Arc<LinkState>,
}

/// A request to the driver.
struct Outgoing {
    /// The content of the frame after the `xid`.
    content: Vec<u8>,
    reply: ReplySender,
    watch: Option<(String, oneshot::Sender<()>)>,
}

type ReplySender = oneshot::Sender<Result<BytesMut, RequestError>>;

impl SessionLink {
    /// Creates a link of the session with this number, and the receiver of its requests for the driver.
    pub(super) fn new(number: u64, server: ServerReport) -> (Self, LinkRequests) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let state = Arc::<LinkState>::default();
        let requests = LinkRequests { receiver, state: Arc::clone(&state) };
        (Self { number, server, requests: sender, state }, requests)
    }

    /// Sends a request. The request stays when the future is dropped.
    pub(super) fn send<T: 'static>(
        &self,
        request: ZookeeperRequest<T>,
    ) -> Result<PendingReply<T>, NodeError> {
        self.send_with(request, None)
    }

    /// Watches an ephemeral node.
    pub(super) fn watch(&self, path: &str) -> Result<(PendingReply<()>, Watch), NodeError> {
        let (sender, receiver) = oneshot::channel();
        let reply = self.send_with(watch_deletion(path), Some((path.to_owned(), sender)))?;
        // The sender is only dropped.
        Ok((reply, Box::pin(async move { drop(receiver.await) })))
    }

    fn send_with<T: 'static>(
        &self,
        ZookeeperRequest { content, decode }: ZookeeperRequest<T>,
        watch: Option<(String, oneshot::Sender<()>)>,
    ) -> Result<PendingReply<T>, NodeError> {
        let (reply, answer) = oneshot::channel();
        let outgoing = Outgoing { content, reply, watch };
        self.requests.send(outgoing).map_err(|_| NodeError::NotConnected(self.state.reason()))?;
        let state = Arc::clone(&self.state);
        Ok(Box::pin(async move {
            let broke = |_| Err(RequestError::ConnectionBroke(state.reason()));
            let frame = answer.await.unwrap_or_else(broke)?;
            let mut reader = JuteReader(&frame);
            let value = ReplyHeader::decode(&mut reader).and_then(|_| decode(&mut reader));
            value.ok_or(RequestError::Unexpected)
        }))
    }
}

impl KeptLink for SessionLink {
    fn ended(&self) -> Option<Arc<str>> {
        self.state.ended()
    }

    fn silence(&self, limit: Duration) -> Silence {
        self.state.silence(limit)
    }
}

/// The requests of a link.
pub(super) struct LinkRequests {
    receiver: mpsc::UnboundedReceiver<Outgoing>,
    state: Arc<LinkState>,
}

/// The replies and the events that the server owes.
#[derive(Default)]
struct Owed {
    replies: VecDeque<(i32, OwedReply)>,
    /// The time of the last reply, or of the first request since then.
    since: Option<Instant>,
    watches: HashMap<String, Vec<oneshot::Sender<()>>>,
    xid: i32,
}

enum OwedReply {
    Request(ReplySender, Option<String>),
    /// A beat, which was sent at this moment.
    Beat(Moment),
}

impl Owed {
    /// Numbers a request, and appends its frame.
    fn add(&mut self, out: &mut Vec<u8>, content: &[u8], reply: OwedReply) {
        self.xid = self.xid.checked_add(1).unwrap_or(1);
        self.replies.push_back((self.xid, reply));
        self.since.get_or_insert_with(Instant::now);
        put_frame(out, &[&self.xid.to_be_bytes(), content]);
    }

    fn add_request(&mut self, out: &mut Vec<u8>, Outgoing { content, reply, watch }: Outgoing) {
        let path = watch.map(|(path, watch)| {
            let watches = self.watches.entry(path.clone()).or_default();
            watches.retain(|watch| !watch.is_closed());
            watches.push(watch);
            path
        });
        self.add(out, &content, OwedReply::Request(reply, path));
    }
}

/// Drives a connection.
pub(super) struct SessionDriver<'a> {
    url: &'a ZookeeperUrl,
    settings: &'a NodeSettings,
    evidence: &'a Mutex<Evidence>,
    /// Cancelled when the session is to be closed.
    closing: &'a CancellationToken,
    owed: Mutex<Owed>,
    /// Notified when the server owes a reply.
    is_owed: Notify,
}

impl<'a> SessionDriver<'a> {
    pub(super) fn new(
        url: &'a ZookeeperUrl,
        settings: &'a NodeSettings,
        evidence: &'a Mutex<Evidence>,
        closing: &'a CancellationToken,
    ) -> Self {
        Self { url, settings, evidence, closing, owed: Mutex::default(), is_owed: Notify::new() }
    }

    /// Drives a connection until it ends, and returns the reason. Sets `last_zxid` to the greatest transaction number of all
    /// replies.
    pub(super) async fn run(
        self,
        LinkRequests { mut receiver, state }: LinkRequests,
        ServerStream { frames, output }: ServerStream,
        last_zxid: &mut i64,
    ) -> Arc<str> {
        let reason = tokio::select! {
            biased;
            reason = self.read(frames, &state, last_zxid) => reason,
            reason = self.watch_silence(&state) => reason,
            reason = self.write(&mut receiver, output) => reason,
        };
        // Before the requests without a reply are dropped, whose callers read it.
        state.end(reason)
    }

    /// Takes replies and events, until the connection ends.
    async fn read(
        &self,
        mut frames: FrameReader,
        state: &LinkState,
        last_zxid: &mut i64,
    ) -> String {
        loop {
            let taken = match frames.next().await {
                Ok(frame) => self.take(frame, state),
                Err(error) => return error.to_string(),
            };
            match taken {
                Some(zxid) => *last_zxid = zxid.max(*last_zxid),
                None => return "unexpected reply from the server".to_owned(),
            }
        }
    }

    /// Takes a reply or an event, and returns its transaction number. Returns `None` if the server owes no such reply.
    fn take(&self, frame: BytesMut, state: &LinkState) -> Option<i64> {
        let mut reader = JuteReader(&frame);
        let header = ReplyHeader::decode(&mut reader)?;
        let mut owed = self.owed.lock();
        if header.xid == EVENT {
            let (_kind, _state) = (reader.int()?, reader.int()?);
            // The watchers wake when their senders are dropped.
            owed.watches.remove(reader.text()?);
            return Some(header.zxid);
        }
        let (_, reply) = owed.replies.pop_front().filter(|(xid, _)| *xid == header.xid)?;
        owed.since = (!owed.replies.is_empty()).then(Instant::now);
        state.set_silent(Duration::ZERO);
        match (reply, header.error) {
            (OwedReply::Beat(sent), None) => {
                self.evidence.lock().answered(sent, self.settings.clock.now());
            }
            // Without evidence, the connection ends.
            (OwedReply::Beat(_), Some(_)) => {}
            // The caller may have dropped its future.
            (OwedReply::Request(reply, _), None) => drop(reply.send(Ok(frame))),
            (OwedReply::Request(reply, path), Some(code)) => {
                path.map(|path| owed.watches.remove(&path));
                drop(reply.send(Err(RequestError::Code(code))));
            }
        }
        Some(header.zxid)
    }

    /// Measures the silence of the server. Returns when it is too long.
    async fn watch_silence(&self, state: &LinkState) -> String {
        let limit = SILENCE_LIMIT.min(self.url.session_timeout / 4);
        let interval = (limit.min(self.settings.node_timeout) / 8).max(Duration::from_millis(1));
        loop {
            let last_check = Instant::now();
            sleep(interval).await;
            let since = self.owed.lock().since;
            let Some(since) = since else {
                self.is_owed.notified().await;
                continue;
            };
            // Until the last check: a reply that has arrived since then may not be read yet.
            let silent = last_check.saturating_duration_since(since);
            state.set_silent(silent);
            if silent >= limit {
                return format!("no reply within {limit:?}");
            }
        }
    }

    /// Sends requests and beats in their order, and in the end closes the session.
    async fn write(
        &self,
        requests: &mut mpsc::UnboundedReceiver<Outgoing>,
        mut output: impl AsyncWrite + Unpin,
    ) -> String {
        let (mut out, mut batch) = (Vec::new(), Vec::with_capacity(BATCH));
        let mut is_closed = false;
        let mut next_beat = pin!(sleep_until(Instant::now()));
        while !is_closed {
            tokio::select! {
                biased;
                () = next_beat.as_mut() => {
                    let now = self.settings.clock.now();
                    if self.evidence.lock().is_stale(now) {
                        return "this process or the ensemble has paused".to_owned();
                    }
                    let beat = sync(self.url.root()).content;
                    self.owed.lock().add(&mut out, &beat, OwedReply::Beat(now));
                    let interval = Evidence::beat_interval(self.url.session_timeout);
                    next_beat.as_mut().reset(Instant::now() + interval);
                }
                // The session has the link, so that there is at least one request.
                _ = requests.recv_many(&mut batch, BATCH) => {
                    let mut owed = self.owed.lock();
                    batch.drain(..).for_each(|request| owed.add_request(&mut out, request));
                }
                () = self.closing.cancelled() => {
                    let reply = OwedReply::Request(oneshot::channel().0, None);
                    self.owed.lock().add(&mut out, &close_session().content, reply);
                    is_closed = true;
                }
            }
            self.is_owed.notify_one();
            let written = async {
                output.write_all(&out).await?;
                output.flush().await
            };
            if let Err(error) = written.await {
                return error.to_string();
            }
            out.clear();
        }
        // The server answers and closes the connection, which ends the reader.
        sleep(CLOSE_LIMIT).await;
        "the lock manager was dropped".to_owned()
    }
}
