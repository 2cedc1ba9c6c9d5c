//! The driver of a link: a task that writes commands, and pairs the replies with them.
//!
//! Only a frame that is no push is a reply, and replies come in the order of the commands. A push is a confirmation if the
//! oldest command without a reply asks for this change of this channel. Every other push is handed on: a server of a
//! cluster sends `sunsubscribe` unasked when a slot moves, and a server that tracks keys says that one has changed. Any other frame ends the link, because it would shift the
//! replies, and a refusal could become a grant.
//!
//! The driver reads while it writes. A server may take no commands before its replies are read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;

use bb8_redis::redis::{PushKind, RedisError, Value, parse_redis_value_async};
use futures_util::future::{AbortRegistration, Abortable};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};

use super::socket::ByteStream;
use super::tracking::{self, ReadId};
use super::traffic::{Metered, Traffic};
use super::{Event, Life, RUNTIME_ENDED, ended};
use crate::store::redis::error::server_message;

/// The number of other commands in flight from which a write waits for the callers that are ready.
///
/// A batch of fewer commands saves little, and the pause costs processor time.
pub(crate) const BATCH_FROM: usize = 8;

/// The number of bytes after which the driver writes, even if more commands are ready. A server reads at most 16 KiB at
/// once (`PROTO_IOBUF_LEN` of Redis), so a longer write would only need a larger buffer.
const WRITE_BOUNDARY: usize = 16 * 1024;

/// The parser reads 64 bytes at a time from this buffer. The replies to the commands of one write are shorter.
const READ_BUFFER: usize = 4 * 1024;

/// The memory of a batch that stays, even if the next batches need only a small part of it. The scripts that a new connection
/// loads need ten times as much.
pub(super) const KEPT_BATCH: usize = 4 * 1024;

/// The number of slices in which the replies to all commands in flight are read.
///
/// Fewer slices let the client and the server work in turns, more of them need more system calls. With six slices, 12 to 256
/// callers make 1 to 7 % fewer pairs a second. With four, 64 callers make 3 % more, but 256 callers lost up to a third.
pub(super) const SLICES: usize = 5;

/// The highest number of frames that are read before commands are written, and other tasks run. A server could otherwise
/// keep the driver from writing by an endless flow of pushes.
const LONGEST_TURN: usize = 1024;

/// A command that a caller has sent.
pub(super) struct Command {
    pub(super) bytes: Arc<[u8]>,
    pub(super) prefix: Prefix,
    pub(super) recipient: Recipient,
}

/// A command that precedes another one. No other command comes between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefix {
    None,
    /// The command concerns a slot of a cluster that is moving to the server.
    Asking,
    /// The server tracks the keys that the command reads.
    Caching,
}

/// The recipient of the reply to a command.
pub(super) enum Recipient {
    /// Nobody needs the reply to `ASKING`.
    Nobody,
    Reply(oneshot::Sender<Value>),
    /// The replies to two commands that were sent as one.
    Pair(oneshot::Sender<[Value; 2]>),
    /// The reply to the subscription to a channel, with its ID: a push that names the channel, or an error.
    Subscribed(u64, Arc<str>),
    /// The reply to the end of a subscription, also a push or an error.
    Unsubscribed(Arc<str>),
    /// The reply to a subscription that tests the server, see [`Link::takes_subscriptions`](super::Link::takes_subscriptions).
    /// It may be an array, and the caller learns whether it is none.
    Tested(oneshot::Sender<bool>, Arc<str>),
    /// The reply to a command by which the server tracks keys.
    Tracking,
    /// The value at a key, which the server tracks from now on.
    Read(ReadId),
}

impl Recipient {
    /// Returns whether this push is the reply.
    fn is_confirmed_by(&self, kind: &PushKind, data: &[Value]) -> bool {
        let (expected, channel) = match self {
            Self::Nobody | Self::Reply(_) | Self::Pair(_) | Self::Tracking | Self::Read(_) => {
                return false;
            }
            Self::Subscribed(_, channel) | Self::Tested(_, channel) => {
                (PushKind::Subscribe, channel)
            }
            Self::Unsubscribed(channel) => (PushKind::Unsubscribe, channel),
        };
        *kind == expected && is_text(data.first(), channel)
    }

    /// Returns whether a frame that is no push cannot be the reply. If a server confirms the test subscription by an array, as in
    /// RESP2, the node sends it no further subscription.
    fn is_shifted_by(&self, frame: &Value) -> bool {
        let array = match frame {
            Value::ServerError(_) => return false,
            Value::Array(array) => &array[..],
            _ => &[],
        };
        let is = |word, channel| is_text(array.first(), word) && is_text(array.get(1), channel);
        match self {
            Self::Nobody | Self::Reply(_) | Self::Pair(_) | Self::Tracking | Self::Read(_) => false,
            Self::Subscribed(..) => true,
            Self::Unsubscribed(channel) => !is("unsubscribe", channel),
            Self::Tested(_, channel) => !is("subscribe", channel),
        }
    }
}

fn is_text(value: Option<&Value>, text: &str) -> bool {
    matches!(value, Some(Value::BulkString(bytes)) if bytes == text.as_bytes())
}

/// The commands in flight.
#[derive(Default)]
struct Flight {
    /// The recipients of the commands without a reply, the oldest first.
    waiting: VecDeque<Recipient>,
    /// The first reply to the oldest command, if it is a pair.
    first_of_pair: Option<Value>,
    /// The number of replies since the last write began. Their callers may be about to send their next commands.
    replied: usize,
    /// The number of commands in flight that were not written yet.
    unwritten: usize,
    /// Whether the ready tasks have run since the last write began. One pause for each write is enough.
    has_yielded: bool,
}

pub(super) struct Driver<P> {
    life: Arc<Life>,
    traffic: Arc<Traffic>,
    in_slices: bool,
    /// The longest frame.
    max_frame: u64,
    on_event: P,
    flight: Mutex<Flight>,
}

/// The commands that callers send to a driver.
///
/// When the driver is dropped before the end of its link, by a panic or with its runtime, the link ends before the commands
/// are dropped, so that a command that is sent meanwhile finds the error.
pub(super) struct Inbox {
    pub(super) life: Arc<Life>,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.life.end(ended(RUNTIME_ENDED));
    }
}

impl<P: Fn(Event) + Sync> Driver<P> {
    pub(super) fn new(
        life: Arc<Life>,
        traffic: Arc<Traffic>,
        in_slices: bool,
        max_frame: u64,
        on_event: P,
    ) -> Self {
        Self { life, traffic, in_slices, max_frame, on_event, flight: Mutex::default() }
    }

    /// Runs until the link ends.
    pub(super) async fn run(
        self,
        socket: Box<dyn ByteStream>,
        mut inbox: Inbox,
        end: AbortRegistration,
    ) {
        let (reader, writer) = tokio::io::split(socket);
        let reader = Metered { reader, traffic: Arc::clone(&self.traffic) };
        let transfer = async {
            tokio::select! {
                biased;
                error = self.read(reader) => error,
                error = self.write(writer, &mut inbox.commands) => error,
            }
        };
        // Before the callers wake, which need the error.
        if let Ok(error) = Abortable::new(transfer, end).await {
            self.life.end(error);
        }
        // A command that is sent at this moment would stay in the channel, and its caller would wait. The callers that have
        // sent their commands wake when this driver is dropped.
        inbox.commands.close();
        while inbox.commands.recv().await.is_some() {}
    }

    /// Reads frames until the link ends, and returns the error.
    async fn read(&self, socket: impl AsyncRead + Unpin) -> RedisError {
        let max_frame = self.max_frame;
        let mut socket = BufReader::with_capacity(READ_BUFFER, socket.take(max_frame));
        #[expect(clippy::default_trait_access, reason = "the type has no public name")]
        let mut decoder = Default::default();
        let (mut left_of_turn, mut has_invalidated) = (LONGEST_TURN, false);
        // Whether the parser has read a part of the next frame.
        let mut is_begun = false;
        loop {
            let mut short = None;
            if !is_begun {
                short = match socket.fill_buf().await {
                    Ok(bytes) => short_frame(bytes),
                    Err(error) => return broken(error.into()),
                };
            }
            let frame = match short {
                Some((frame, length)) => {
                    socket.consume(length);
                    Ok(frame)
                }
                None => parse_redis_value_async(&mut decoder, &mut socket).await,
            };
            let frame = match frame {
                Ok(frame) => frame,
                Err(_) if socket.get_ref().limit() == 0 => {
                    return ended(&format!(
                        "the server sent a reply of more than {max_frame} bytes"
                    ));
                }
                Err(error) => return broken(error),
            };
            is_begun = !decoder.buffer().is_empty();
            socket.get_mut().set_limit(max_frame);
            has_invalidated |= matches!(&frame, Value::Push { kind: PushKind::Invalidate, .. });
            let in_flight = match self.pair(frame) {
                Ok(Some(in_flight)) => in_flight,
                // No caller is ready yet, so that the turn does not end.
                Ok(None) => continue,
                Err(error) => return error,
            };
            if self.in_slices && in_flight > 1 {
                left_of_turn = left_of_turn.min(in_flight.div_ceil(SLICES));
            }
            left_of_turn -= 1;
            // A release sends an invalidation and a message. Both together are one event.
            if has_invalidated && (socket.buffer().is_empty() || left_of_turn == 0) {
                has_invalidated = false;
                (self.on_event)(Event::AllRead);
            }
            if left_of_turn == 0 {
                left_of_turn = LONGEST_TURN;
                self.flight.lock().has_yielded = true;
                let_ready_tasks_run().await;
            }
        }
    }

    /// Passes a frame on to its recipient, and returns the number of commands in flight before. Returns `None` for the first of
    /// two replies. An error ends the link.
    fn pair(&self, mut frame: Value) -> Result<Option<usize>, RedisError> {
        while let Value::Attribute { data, .. } = frame {
            frame = *data;
        }
        let mut flight = self.flight.lock();
        if let Value::Push { kind, data } = frame {
            let oldest = flight.waiting.front();
            if !oldest.is_some_and(|recipient| recipient.is_confirmed_by(&kind, &data)) {
                drop(flight);
                (self.on_event)(Event::Push(kind, data));
                return Ok(Some(0));
            }
            frame = Value::Okay;
        } else if flight.waiting.front().is_some_and(|oldest| oldest.is_shifted_by(&frame)) {
            return Err(ended("the server sent a reply in place of a confirmation"));
        }
        let in_flight = flight.waiting.len();
        if matches!(flight.waiting.front(), Some(Recipient::Pair(_)))
            && flight.first_of_pair.is_none()
        {
            flight.first_of_pair = Some(frame);
            self.traffic.record_reply(true);
            return Ok(None);
        }
        let mut event = None;
        match flight.waiting.pop_front() {
            Some(Recipient::Nobody | Recipient::Unsubscribed(_)) => {}
            // Fails if the caller is gone.
            Some(Recipient::Reply(caller)) => {
                let _ = caller.send(frame);
            }
            Some(Recipient::Pair(caller)) => {
                let first = flight.first_of_pair.take().unwrap_or(Value::Nil);
                let _ = caller.send([first, frame]);
            }
            Some(Recipient::Tested(caller, _)) => {
                let _ = caller.send(!matches!(frame, Value::Array(_)));
            }
            Some(Recipient::Tracking) => {
                let refused = frame.extract_error().err();
                let refused = refused.filter(|_| self.life.tracking.refuse());
                event = refused.map(Event::TrackingRefused);
            }
            Some(Recipient::Read(id)) => {
                event = Some(Event::Read { id, reply: frame.extract_error() });
            }
            Some(Recipient::Subscribed(id, channel)) => {
                let result = frame.extract_error().map(drop);
                event = Some(Event::Subscribed { id, channel, result });
            }
            // A server that rejects a client says why before it reads a command.
            None => {
                let reason = match frame {
                    Value::ServerError(error) => {
                        server_message(&self.life.secrets.mask(error.into()))
                    }
                    _ => "the server sent a reply to no command".to_owned(),
                };
                return Err(ended(&reason));
            }
        }
        flight.replied += 1;
        self.traffic.record_reply(flight.waiting.len() > flight.unwritten);
        drop(flight);
        if let Some(event) = event {
            (self.on_event)(event);
        }
        Ok(Some(in_flight))
    }

    /// Writes commands until the link ends, and returns the error.
    async fn write(
        &self,
        mut socket: impl AsyncWrite + Unpin,
        commands: &mut mpsc::UnboundedReceiver<Command>,
    ) -> RedisError {
        let mut batch = Vec::new();
        while let Some(first) = commands.recv().await {
            self.take(first, &mut batch);
            if self.waits() {
                let_ready_tasks_run().await;
            }
            while batch.len() < WRITE_BOUNDARY
                && let Ok(command) = commands.try_recv()
            {
                self.take(command, &mut batch);
            }
            if batch.is_empty() {
                continue;
            }
            self.begin_write();
            let written = async {
                socket.write_all(&batch).await?;
                socket.flush().await
            };
            if let Err(error) = written.await {
                return error.into();
            }
            batch = emptied(batch);
        }
        // The link ends with its handle.
        std::future::pending().await
    }

    /// Adds a command to a batch, unless its caller is gone.
    fn take(&self, command: Command, batch: &mut Vec<u8>) {
        let Command { bytes, prefix, recipient } = command;
        let is_gone = match &recipient {
            Recipient::Reply(caller) => caller.is_closed(),
            Recipient::Pair(caller) => caller.is_closed(),
            _ => false,
        };
        if is_gone {
            return;
        }
        let mut flight = self.flight.lock();
        let before = match prefix {
            Prefix::None => None,
            Prefix::Asking => Some((&b"*1\r\n$6\r\nASKING\r\n"[..], Recipient::Nobody)),
            Prefix::Caching => Some((tracking::CACHING, Recipient::Tracking)),
        };
        if let Some((bytes, recipient)) = before {
            batch.extend_from_slice(bytes);
            flight.waiting.push_back(recipient);
            flight.unwritten += 1;
        }
        batch.extend_from_slice(&bytes);
        flight.waiting.push_back(recipient);
        flight.unwritten += 1;
    }

    /// Records that the commands in flight are written from now on, even if the server takes none of them.
    fn begin_write(&self) {
        let mut flight = self.flight.lock();
        (flight.replied, flight.unwritten, flight.has_yielded) = (0, 0, false);
        self.traffic.record_written();
    }

    /// Returns whether a write waits until the tasks that are ready have run.
    ///
    /// Tokio's multi-threaded runtime runs the driver before the other callers that are ready. So the driver would find
    /// two or three commands for each write, however many callers there are. If many commands are in flight, the driver
    /// then writes the commands of all of them at once. There is no timer, and the order of the commands stays.
    fn waits(&self) -> bool {
        let flight = self.flight.lock();
        !flight.has_yielded && flight.waiting.len() + flight.replied > BATCH_FROM
    }
}

/// Returns an empty batch with the memory of a batch that was written, unless that was far too much for it.
pub(super) fn emptied(mut batch: Vec<u8>) -> Vec<u8> {
    if batch.capacity() > KEPT_BATCH.max(8 * batch.len()) {
        return Vec::new();
    }
    batch.clear();
    batch
}

/// Returns a whole frame at the beginning of some bytes, and its length, if it is the usual reply to a command of a lock. The
/// parser of the redis crate would need about a tenth of the processor time of a lone caller.
fn short_frame(bytes: &[u8]) -> Option<(Value, usize)> {
    match bytes {
        [b'+', b'O', b'K', b'\r', b'\n', ..] => Some((Value::Okay, 5)),
        [b'_', b'\r', b'\n', ..] => Some((Value::Nil, 3)),
        [b':', digit @ b'0'..=b'9', b'\r', b'\n', ..] => {
            Some((Value::Int(i64::from(digit - b'0')), 4))
        }
        _ => None,
    }
}

/// Returns the error of a link whose socket has failed, or whose server does not speak RESP.
fn broken(error: RedisError) -> RedisError {
    if error.is_connection_dropped() {
        ended("the server closed the connection")
    } else if error.is_io_error() {
        error
    } else {
        ended(&server_message(&error))
    }
}

/// Lets the tasks run that are ready: this task runs again after them.
async fn let_ready_tasks_run() {
    let mut has_yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
