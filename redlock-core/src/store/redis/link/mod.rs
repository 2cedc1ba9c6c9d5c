//! A link: one connection to a server, on which many callers send commands.
//!
//! The safety of a lock depends on the pairing of commands and replies. A [`driver`], which is a task of its own,
//! pairs them.

mod driver;
#[cfg(test)]
mod driver_tests;
pub(crate) mod open;
pub(crate) mod socket;
#[cfg(test)]
mod socket_tests;
#[cfg(feature = "tls")]
mod tls;
pub(crate) mod tracking;
pub(crate) mod traffic;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{Cmd, ErrorKind, PushKind, RedisError, Value, cmd};
use futures_util::future::AbortHandle;
use tokio::sync::{SetOnce, mpsc, oneshot};

pub(crate) use driver::Prefix;
use driver::{Command, Driver, Inbox, Recipient};
use socket::Socket;
use tracking::{LinkTracking, ReadId, TrackingState};
use traffic::Traffic;

use super::error::{Secrets, is_only_for_others, is_read_only, server_message};
use super::url::Login;
use crate::node::Silence;

#[cfg(test)]
pub(crate) use driver::BATCH_FROM;

/// The reason if the driver is gone and has left none.
const RUNTIME_ENDED: &str = "the runtime of the connection has ended";

/// One connection to a server. It ends when it is dropped.
pub(crate) struct Link {
    commands: mpsc::UnboundedSender<Command>,
    life: Arc<Life>,
    traffic: Arc<Traffic>,
    /// The login to repeat before its credentials expire, and their life.
    renewal: Option<(Login, Duration)>,
    /// The address of the server, if it was reached by TCP.
    pub(crate) address: Option<SocketAddr>,
}

/// The life of a link, which its handle and its driver share.
struct Life {
    /// The error of all commands from now on. Set when the link ends.
    error: SetOnce<RedisError>,
    /// Interrupts the driver.
    driver: AbortHandle,
    /// The passwords that were sent over the link.
    secrets: Secrets,
    /// Whether the server tracks keys for the link.
    tracking: LinkTracking,
}

impl Life {
    /// Ends the link. The first error stays.
    fn end(&self, error: RedisError) {
        let _ = self.error.set(error);
        self.driver.abort();
    }
}

/// Returns the error of a link that has ended for this reason.
fn ended(reason: &str) -> RedisError {
    (ErrorKind::Io, "the connection has ended", reason.to_owned()).into()
}

/// A message of a server that is no reply to a command, or the reply to a subscription.
#[derive(Debug)]
pub(crate) enum Event {
    /// A push that is no confirmation.
    Push(PushKind, Vec<Value>),
    /// The reply to the subscription to a channel with this ID.
    Subscribed { id: u64, channel: Arc<str>, result: Result<(), RedisError> },
    /// The server does not track keys. Comes once.
    TrackingRefused(RedisError),
    /// The reply to a [read](Link::read_tracked).
    Read { id: ReadId, reply: Result<Value, RedisError> },
    /// All bytes that have arrived were read, and some of them said that keys have changed.
    AllRead,
}

impl Link {
    /// Starts a link over a socket. `on_event` receives each event in order, and must not block. The replies to several commands are read in slices if `in_slices` is set.
    pub(crate) fn start(
        socket: Socket,
        in_slices: bool,
        on_event: impl Fn(Event) + Send + Sync + 'static,
    ) -> Self {
        let (sender, commands) = mpsc::unbounded_channel();
        let traffic = Arc::new(Traffic::of(socket.descriptor));
        let (driver, end) = AbortHandle::new_pair();
        let (error, secrets, tracking) = Default::default();
        let life = Arc::new(Life { error, driver, secrets, tracking });
        let (life_of_driver, traffic_of_driver) = (Arc::clone(&life), Arc::clone(&traffic));
        let driver =
            Driver::new(life_of_driver, traffic_of_driver, in_slices, socket.max_frame, on_event);
        let inbox = Inbox { life: Arc::clone(&life), commands };
        tokio::spawn(driver.run(socket.stream, inbox, end));
        Self { commands: sender, life, traffic, renewal: None, address: None }
    }

    /// Sends one command, and returns the future of its reply. Commands are sent in the order of the calls.
    ///
    /// If the future is dropped before the driver takes the command, the command is not sent. Nothing is sent, and no
    /// reply counts, after the end of the link: its clean-up would use another link, and might overtake the command (an
    /// abandoned attempt leaves nothing behind).
    pub(crate) fn send(
        &self,
        command: &Cmd,
    ) -> impl Future<Output = Result<Value, RedisError>> + use<'_> {
        self.send_packed(command.get_packed_command().into(), Prefix::None)
    }

    /// Sends a command whose reply nobody needs.
    pub(crate) fn send_and_forget(&self, command: &Cmd) {
        let bytes = command.get_packed_command().into();
        self.put(Command { bytes, prefix: Prefix::None, recipient: Recipient::Nobody });
    }

    /// [Sends](Self::send) a command in its encoded form, behind this other command.
    pub(crate) fn send_packed(
        &self,
        bytes: Arc<[u8]>,
        prefix: Prefix,
    ) -> impl Future<Output = Result<Value, RedisError>> + use<'_> {
        let (sender, reply) = oneshot::channel();
        let recipient = Recipient::Reply(sender);
        match prefix {
            Prefix::Caching => self.put_tracked(bytes, recipient),
            _ => self.put(Command { bytes, prefix, recipient }),
        }
        async move {
            let reply = self.reply_to(reply).await?;
            reply.extract_error().map_err(|error| self.refused(error))
        }
    }

    /// [Sends](Self::send) two encoded commands in one write, without another command between them. Returns both replies as they
    /// are, also errors of the server.
    pub(crate) fn send_pair(
        &self,
        bytes: Arc<[u8]>,
    ) -> impl Future<Output = Result<[Value; 2], RedisError>> + use<'_> {
        let (sender, replies) = oneshot::channel();
        self.put(Command { bytes, prefix: Prefix::None, recipient: Recipient::Pair(sender) });
        self.reply_to(replies)
    }

    /// [Sends](Self::send) an encoded command, and returns the reply as it is, also an error of the server.
    pub(crate) fn send_raw(
        &self,
        bytes: Arc<[u8]>,
    ) -> impl Future<Output = Result<Value, RedisError>> + use<'_> {
        let (sender, reply) = oneshot::channel();
        self.put(Command { bytes, prefix: Prefix::None, recipient: Recipient::Reply(sender) });
        self.reply_to(reply)
    }

    /// Waits for a reply, or for the end of the link.
    async fn reply_to<T>(&self, reply: oneshot::Receiver<T>) -> Result<T, RedisError> {
        // A command that is sent at the moment of the end may stay in the channel.
        if let Some(error) = self.life.error.get() {
            return Err(error.clone());
        }
        // A reply that has arrived before the end is lost with the link.
        match (reply.await, self.life.error.get()) {
            (Ok(reply), None) => Ok(reply),
            (_, error) => Err(error.cloned().unwrap_or_else(|| ended(RUNTIME_ENDED))),
        }
    }

    /// Masks the passwords in an error of the server. Ends the link to a master that is a replica now: after a failover, the
    /// name of the server may resolve to the new master.
    fn refused(&self, error: RedisError) -> RedisError {
        let error = self.life.secrets.mask(error);
        if is_read_only(&error) {
            self.end(&server_message(&error));
        }
        error
    }

    /// Subscribes to a channel. The reply is an [event](Event::Subscribed) with this ID, unless the link ends before.
    pub(crate) fn subscribe(&self, channel: &Arc<str>, id: u64) {
        let recipient = Recipient::Subscribed(id, Arc::clone(channel));
        self.change_subscription("SUBSCRIBE", channel, recipient);
    }

    /// Sends a read, and lets the server track the keys that it reads. The reply is an [event](Event::Read) with this ID,
    /// unless the link ends before.
    pub(crate) fn read_tracked(&self, bytes: Arc<[u8]>, id: ReadId) {
        self.put_tracked(bytes, Recipient::Read(id));
    }

    /// Sends a command, and lets the server track the keys that it reads, unless the server has refused to.
    fn put_tracked(&self, bytes: Arc<[u8]>, recipient: Recipient) {
        self.life.tracking.begin(|tracking| {
            if tracking == TrackingState::Off {
                let (bytes, recipient) = (tracking::ON.into(), Recipient::Tracking);
                self.put(Command { bytes, prefix: Prefix::None, recipient });
            }
            let is_refused = tracking == TrackingState::Refused;
            let prefix = if is_refused { Prefix::None } else { Prefix::Caching };
            self.put(Command { bytes, prefix, recipient });
        });
    }

    /// Returns whether the server has refused to track keys.
    pub(crate) fn is_tracking_refused(&self) -> bool {
        self.life.tracking.is_refused()
    }

    /// Unsubscribes from a channel.
    pub(crate) fn unsubscribe(&self, channel: &Arc<str>) {
        let recipient = Recipient::Unsubscribed(Arc::clone(channel));
        self.change_subscription("UNSUBSCRIBE", channel, recipient);
    }

    /// Subscribes to a channel on which nobody publishes, sends `other`, and unsubscribes. Returns whether the server keeps the
    /// rules of RESP3 meanwhile: it confirms the subscription by a push, and executes `other`. A server that knows only the rules
    /// of RESP2 would shift the replies, or refuse the commands of every caller while one of them waits.
    ///
    /// A server that refuses the subscription, or does not reply, keeps the rules.
    pub(crate) fn takes_subscriptions(
        &self,
        channel: &Arc<str>,
        other: &Cmd,
    ) -> impl Future<Output = bool> + use<'_> {
        let (sender, confirmed) = oneshot::channel();
        let recipient = Recipient::Tested(sender, Arc::clone(channel));
        self.change_subscription("SUBSCRIBE", channel, recipient);
        let other = self.send(other);
        self.unsubscribe(channel);
        async move {
            let is_executed = other.await.err().is_none_or(|error| !is_only_for_others(&error));
            confirmed.await.unwrap_or(true) && is_executed
        }
    }

    fn change_subscription(&self, name: &str, channel: &str, recipient: Recipient) {
        let bytes = cmd(name).arg(channel).get_packed_command().into();
        self.put(Command { bytes, prefix: Prefix::None, recipient });
    }

    fn put(&self, command: Command) {
        // The driver may still run. Without the command, the reply is known to be lost.
        if self.is_alive() {
            let _ = self.commands.send(command);
        }
    }

    /// Ends the link, so that another one can replace it. Returns at once; see [`stopped`](Self::stopped).
    pub(crate) fn end(&self, reason: &str) {
        self.life.end(ended(reason));
        self.traffic.shut_down();
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.life.error.get().is_none()
    }

    /// Waits for the end of the link, and returns the reason.
    pub(crate) async fn ended(&self) -> Arc<str> {
        server_message(self.life.error.wait().await).into()
    }

    /// Returns why the link has ended, if it has.
    pub(crate) fn reason(&self) -> Option<Arc<str>> {
        self.life.error.get().map(|error| server_message(error).into())
    }

    /// Waits until the driver has stopped after the end of the link: it writes nothing any more.
    pub(crate) async fn stopped(&self) {
        self.commands.closed().await;
    }

    /// Returns whether the server has been silent for `limit`.
    pub(crate) fn silence(&self, limit: Duration) -> Silence {
        self.traffic.silence(limit)
    }
}

impl Drop for Link {
    /// Ends the link at once: every caller that waits for a reply has the link. A server that has stopped would otherwise
    /// keep the socket and the driver of each attempt to connect.
    fn drop(&mut self) {
        self.end("the connection is not needed any more");
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("error", &self.life.error.get()).finish_non_exhaustive()
    }
}
