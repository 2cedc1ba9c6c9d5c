//! One connection to a server.

pub(crate) mod admission;
mod authentication;
pub(crate) mod endpoint;
mod frames;
mod health;
pub(crate) mod metered_socket;
mod outage_log;
pub(crate) mod pauses;
pub(super) mod pending_acquisitions;
#[cfg(test)]
pub(crate) mod played_server;
pub(crate) mod pool;
#[cfg(test)]
mod push_tests;
mod refusable;
mod rejection_reason;
pub(super) mod replication;
pub(crate) mod route;
mod slices;
pub(crate) mod socket;
#[cfg(test)]
mod socket_tests;
pub(crate) mod supervisor;
#[cfg(feature = "tls")]
pub(crate) mod tls;
pub(crate) mod traffic;

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};
use futures_util::future::{BoxFuture, OptionFuture};
use tokio::time::sleep;

use super::delayed_restart::quarantine::{Quarantine, Quarantines, VoteGate};
use super::delayed_restart::wall_clock::Reading;
use super::encode;
use super::script::Script;
use super::sentinel::Master;
use crate::error::NodeError;
use crate::node::Silence;
use authentication::ExpiringLogin;
use health::Health;
use pending_acquisitions::PendingAcquisitions;
use replication::Replication;
use traffic::{ReplyProgress, Traffic};

/// The pause between two checks whether a server is silent.
const SILENCE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// One connection to a server, shared by all callers. It belongs to one incarnation of the server, and ends
/// with it.
pub(crate) struct Connection {
    handle: MultiplexedConnection,
    health: Arc<Health>,
    scripts: [String; Script::COUNT],
    pub(crate) identity: Identity,
    /// The master of a Sentinel group to which the connection leads.
    pub(crate) master: Option<Master>,
    /// Set if the credentials of the connection expire.
    expiring_login: Option<ExpiringLogin>,
    vote_gate: VoteGate,
    /// Whether a lock was requested or extended since the last call of `was_used`.
    used: AtomicBool,
    traffic: Arc<Traffic>,
    /// The acquisitions by script without a reply.
    pub(crate) acquisitions: PendingAcquisitions,
}

/// The properties that a server reports. Each is `None` if the server does not report it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The ID of the incarnation. It changes with every start of the server.
    pub(crate) run_id: Option<String>,
    /// The time since the start of the server, in whole seconds.
    pub(crate) uptime: Option<Duration>,
    /// The eviction policy of the server for a full memory.
    pub(crate) maxmemory_policy: Option<String>,
    /// The time on the server's wall clock.
    pub(crate) time: Option<Reading>,
    /// The replication of the master of a Sentinel group.
    pub(crate) replication: Option<Replication>,
}

impl Identity {
    /// Returns the ID of the time since which the server has kept all locks: of its incarnation, and of its role as the
    /// master of a Sentinel group.
    pub(crate) fn generation(&self) -> Option<String> {
        let run_id = self.run_id.as_ref()?;
        let data = self.replication.as_ref().and_then(|replication| replication.id.as_ref());
        Some(data.map_or_else(|| run_id.clone(), |id| format!("{run_id}/{id}")))
    }
}

impl Connection {
    pub(crate) fn new(
        handle: MultiplexedConnection,
        health: Arc<Health>,
        traffic: Arc<Traffic>,
        scripts: [String; Script::COUNT],
        identity: Identity,
    ) -> Self {
        Self {
            handle,
            health,
            scripts,
            identity,
            master: None,
            expiring_login: None,
            vote_gate: VoteGate::default(),
            used: AtomicBool::new(false),
            traffic,
            acquisitions: PendingAcquisitions::default(),
        }
    }

    /// Keeps the server from granting locks until this quarantine is over.
    pub(crate) fn start(&self, quarantine: Quarantine) {
        self.vote_gate.start(quarantine);
    }

    /// Starts the quarantines of another server, whose locks this server has taken over.
    pub(crate) fn start_all(&self, quarantines: Quarantines) {
        self.vote_gate.start_all(quarantines);
    }

    /// Returns the quarantines of the server.
    pub(crate) fn quarantines(&self) -> Quarantines {
        self.vote_gate.quarantines()
    }

    /// Returns an error with the reason if the server must not grant locks.
    pub(crate) fn may_grant(&self) -> Result<(), NodeError> {
        self.vote_gate.check()
    }

    /// Returns an error with the reason if extensions by the server do not count.
    pub(crate) fn may_extend(&self) -> Result<(), NodeError> {
        self.vote_gate.check_extension()
    }

    /// Records that a lock is requested or extended.
    pub(crate) fn record_use(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    /// Returns whether a lock was requested or extended since the last call.
    pub(crate) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.health.is_alive()
    }

    /// Ends the connection when the server has been silent for `limit`, and then completes. A device on the
    /// way may accept the commands without delivering them, and TCP does not notice that.
    ///
    /// The server may still execute commands that were sent before. Their clean-up follows them on the same
    /// connection, as long as `limit` is longer than a ballot waits for a silent node (an abandoned attempt
    /// leaves nothing behind).
    pub(crate) async fn end_when_silent_for(&self, limit: Duration) {
        let time = encode::time();
        // The connection's own command, so that the server owes a reply. A denial (ACL) is a reply too.
        let mut probe = pin!(OptionFuture::from(None));
        let mut before = ReplyProgress::default();
        while !self.traffic.silence(limit).is_silent() {
            let is_unknown = tokio::select! {
                biased;
                Some(_) = probe.as_mut() => {
                    probe.set(None.into());
                    false
                }
                () = self.traffic.reply_unknown() => true,
                () = sleep(SILENCE_CHECK_INTERVAL) => {
                    // Callers wait for replies, and none has arrived since the last check.
                    let progress = self.traffic.reply_progress();
                    progress.is_awaited && progress == std::mem::replace(&mut before, progress)
                }
            };
            if is_unknown && !self.traffic.is_owed() {
                probe.set(Some(self.send_boxed(&time)).into());
            }
        }
        self.end(&format!("no reply for {limit:?}"));
    }

    /// Ends the connection, so that another one can replace it.
    pub(crate) fn end(&self, reason: &str) {
        self.health.end(reason);
        self.traffic.shut_down();
    }

    /// Waits until the connection is broken, and returns the reason.
    pub(crate) async fn broken(&self) -> Arc<str> {
        self.health.broken().await
    }

    /// Sends one command and waits for the reply. If the future is dropped after the first poll, the command
    /// may still be sent.
    ///
    /// No command is sent after the end of the connection: its clean-up would use another connection, and
    /// might overtake it (an abandoned attempt leaves nothing behind).
    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value, RedisError> {
        let mut handle = self.handle.clone();
        // Unconstrained, so that the first poll sends the command even if the task has used up its budget:
        // commands must be sent in the order of their first polls (an abandoned attempt leaves nothing
        // behind).
        let reply = pin!(tokio::task::unconstrained(handle.send_packed_command(command)));
        self.await_reply(reply, Value::extract_error).await
    }

    /// [Sends](Self::send) a command to a server of a cluster to which the slot of its keys is moving. `ASKING` and the
    /// command are one message of the connection, so that no other command comes between them.
    pub(crate) async fn send_asking(&self, command: &Cmd) -> Result<Value, RedisError> {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").ignore().add_command(command.clone());
        let mut handle = self.handle.clone();
        let replies =
            pin!(tokio::task::unconstrained(handle.send_packed_commands(&pipeline, 0, 2)));
        let last = |mut replies: Vec<Value>| replies.pop().unwrap_or(Value::Nil).extract_error();
        self.await_reply(replies, last).await
    }

    /// [Sends](Self::send) a command in a future of its own. Only the commands of locks, which are frequent, should be
    /// compiled into the futures of their callers.
    pub(crate) fn send_boxed<'a>(
        &'a self,
        command: &'a Cmd,
    ) -> BoxFuture<'a, Result<Value, RedisError>> {
        Box::pin(self.send(command))
    }

    /// Waits for a reply. Returns an error if the connection has ended, or ends meanwhile.
    ///
    /// A command that is queued while the connection ends never gets a reply as long as another handle keeps
    /// the connection open, and its future is not woken. So the future must be polled periodically
    /// ([`poll_periodically`](crate::node::poll_periodically)), unless it is polled for another reason.
    async fn await_reply<T, R>(
        &self,
        mut reply: Pin<&mut impl Future<Output = Result<T, RedisError>>>,
        decode: fn(T) -> Result<R, RedisError>,
    ) -> Result<R, RedisError> {
        if let Some(error) = self.health.ended_error() {
            return Err(error);
        }
        let awaited = self.traffic.expect_reply();
        let reply = std::future::poll_fn(|cx| {
            let reply = reply.as_mut().poll(cx);
            // A reply that arrives after the end may belong to another command, see the pushes in `pool`.
            match self.health.ended_error() {
                Some(error) => Poll::Ready(Err(error)),
                None => reply.map(Ok),
            }
        });
        let reply = reply.await?;
        awaited.answered();
        reply.and_then(decode).inspect_err(|error| self.health.record_error(error))
    }

    /// Returns the SHA-1 sum by which the server knows a script.
    pub(crate) fn sha(&self, script: Script) -> &str {
        &self.scripts[script.index()]
    }

    /// Sends the command of a script that may run twice. Loads the script again if the server has forgotten it.
    pub(crate) async fn send_script(
        &self,
        script: Script,
        command: &Cmd,
    ) -> Result<Value, RedisError> {
        match self.send_boxed(command).await {
            Ok(reply) => Ok(reply),
            Err(error) => self.recover(script, error, self.send_boxed(command)).await,
        }
    }

    /// Handles the error of a script. If the server has forgotten the script (`SCRIPT FLUSH`), loads it again,
    /// and then runs `resend`, which sends the command again.
    pub(crate) async fn recover(
        &self,
        script: Script,
        error: RedisError,
        resend: impl Future<Output = Result<Value, RedisError>>,
    ) -> Result<Value, RedisError> {
        let mut reply = Err(error);
        if reply.as_ref().is_err_and(is_no_script) {
            reply = self.send_boxed(&encode::load(script)).await;
            if reply.is_ok() {
                // Only one retry: if the script is flushed again, the caller gets the error.
                reply = resend.await;
            }
        }
        reply.map_err(|error| super::error::name_commands(&script.commands(), error))
    }

    /// Subscribes to channels, and waits until the server has confirmed the subscriptions.
    pub(crate) async fn subscribe(&self, channels: &[Arc<str>]) -> Result<(), RedisError> {
        let channels: Vec<&str> = channels.iter().map(|channel| &**channel).collect();
        let mut handle = self.handle.clone();
        self.await_reply(pin!(handle.subscribe(channels)), Ok).await
    }

    /// Unsubscribes from channels.
    pub(crate) async fn unsubscribe(&self, channels: &[Arc<str>]) -> Result<(), RedisError> {
        let channels: Vec<&str> = channels.iter().map(|channel| &**channel).collect();
        let mut handle = self.handle.clone();
        self.await_reply(pin!(handle.unsubscribe(channels)), Ok).await
    }

    /// Returns how long the server has been silent, or `None` if it has not been silent for `limit`.
    pub(crate) fn silent_for(&self, limit: Duration) -> Option<Duration> {
        match self.traffic.silence(limit) {
            Silence::Silent(time) => Some(time),
            Silence::CheckAgainAfter(_) => None,
        }
    }

    /// Returns whether the server is silent, for a caller that waits for its reply.
    pub(crate) fn silence(&self, limit: Duration) -> Silence {
        self.traffic.silence_for_caller(limit)
    }
}

fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("alive", &self.is_alive())
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::node::poll_periodically;
    use crate::node::redis::connection::played_server::{played_connection, serve};

    /// The peer of the connection is gone, but the connection does not break.
    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_when_its_server_owes_a_reply_for_too_long() {
        const LIMIT: Duration = Duration::from_secs(5);
        let (connection, _server) = played_connection().await;
        let connection = Arc::new(connection);
        let ask = || {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move {
                poll_periodically(connection.send(&bb8_redis::redis::cmd("PING"))).await
            })
        };
        let before = ask();
        let silent = tokio::time::timeout(LIMIT / 2, connection.end_when_silent_for(LIMIT)).await;
        assert!(silent.is_err() && connection.is_alive(), "the connection ended too soon");
        tokio::time::timeout(LIMIT, connection.end_when_silent_for(LIMIT)).await.unwrap();
        assert!(!connection.is_alive());
        let ended = async { (before.await.unwrap(), ask().await.unwrap()) };
        let (before, after) = tokio::time::timeout(LIMIT, ended).await.unwrap();
        assert!(before.unwrap_err().is_io_error());
        assert!(after.unwrap_err().is_io_error());
    }

    /// After only a part of the replies, the connection does not know whether the server owes any,
    /// so it sends a command of its own.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_falls_silent_between_two_replies_is_noticed() {
        const LIMIT: Duration = Duration::from_secs(5);
        let (connection, mut server) = played_connection().await;
        let ping = bb8_redis::redis::cmd("PING");
        let (mut first, mut second) =
            (Box::pin(connection.send(&ping)), Box::pin(connection.send(&ping)));
        let probe = async {
            futures_util::join!(&mut first, async {
                assert!(futures_util::poll!(&mut second).is_pending());
                serve(&mut server, "PING", "+PONG\r\n", || {}).await;
            })
        };
        probe.await.0.unwrap();
        let noticed = tokio::time::timeout(3 * LIMIT, connection.end_when_silent_for(LIMIT));
        noticed.await.unwrap();
        assert!(!connection.is_alive());
        assert!(second.await.unwrap_err().is_io_error());
    }

    /// The reply to an earlier command says nothing about the later ones.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_falls_silent_after_a_late_reply_is_asked_again() {
        const NODE_TIMEOUT: Duration = Duration::from_millis(50);
        let (connection, mut server) = played_connection().await;
        let ping = bb8_redis::redis::cmd("PING");
        let mut callers: Vec<_> = (0..3).map(|_| Box::pin(connection.send(&ping))).collect();
        for caller in &mut callers {
            assert!(futures_util::poll!(caller).is_pending());
        }
        let replies = async {
            let mut begun = [0; 4096];
            assert!(server.read(&mut begun).await.unwrap() > 0);
            // After each reply, a caller that still waits checks the silence of the server.
            for _ in 0..2 {
                server.write_all(b"+PONG\r\n").await.unwrap();
                // The connection reads the reply.
                tokio::time::sleep(Duration::from_millis(1)).await;
                while !connection.silence(NODE_TIMEOUT).is_silent() {
                    tokio::time::sleep(NODE_TIMEOUT).await;
                }
            }
        };
        tokio::select! {
            biased;
            () = connection.end_when_silent_for(Duration::from_secs(60)) => unreachable!(),
            noticed = tokio::time::timeout(8 * NODE_TIMEOUT, replies) => noticed.unwrap(),
        }
    }

    /// A caller may poll its acquisition once and not again. The reply arrives all the same.
    #[tokio::test(start_paused = true)]
    async fn a_reply_that_no_task_reads_does_not_end_the_connection() {
        const LIMIT: Duration = Duration::from_secs(5);
        let (connection, mut server) = played_connection().await;
        let ping = bb8_redis::redis::cmd("PING");
        let mut parked = Box::pin(connection.send(&ping));
        assert!(futures_util::poll!(&mut parked).is_pending());
        let answer = async {
            loop {
                serve(&mut server, "", "+PONG\r\n", || {}).await;
            }
        };
        tokio::select! {
            biased;
            () = connection.end_when_silent_for(LIMIT) => panic!("the server has replied"),
            () = answer => unreachable!(),
            () = tokio::time::sleep(10 * LIMIT) => {}
        }
        assert!(connection.is_alive());
        parked.await.unwrap();
    }

    /// The clean-up uses the next connection, and does not wait until the commands of this one have
    /// arrived (an abandoned attempt leaves nothing behind). Commands that were already sent may
    /// still be delivered.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_is_sent_on_a_connection_after_its_end() {
        let (connection, mut server) = played_connection().await;
        let sent = bb8_redis::redis::cmd("PING");
        let mut before = Box::pin(connection.send(&sent));
        assert!(futures_util::poll!(&mut before).is_pending());
        // The driver, which runs in another task, has sent the command.
        let mut arrived = vec![0; sent.get_packed_command().len()];
        server.read_exact(&mut arrived).await.unwrap();
        connection.end("the test ends it");
        let late = bb8_redis::redis::cmd("SET");
        for _ in 0..1000 {
            assert!(connection.send(&late).await.unwrap_err().is_io_error());
            tokio::task::yield_now().await;
        }
        assert!(before.await.unwrap_err().is_io_error());
        drop(connection);
        let mut rest = String::new();
        server.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "");
    }

    /// If the command stayed pending, a release that is sent at that moment would never be
    /// repeated.
    #[tokio::test(start_paused = true)]
    async fn pending_commands_end_with_their_connection() {
        let (connection, _server) = played_connection().await;
        let connection = Arc::new(connection);
        let waiting = {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move {
                poll_periodically(connection.send(&bb8_redis::redis::cmd("PING"))).await
            })
        };
        // The command is sent, and its caller waits for the reply.
        tokio::time::sleep(Duration::from_millis(1)).await;
        connection.health.end("the server closed the connection");
        let ended = tokio::time::timeout(Duration::from_secs(5), waiting).await;
        assert!(ended.unwrap().unwrap().unwrap_err().is_io_error());
    }
}
