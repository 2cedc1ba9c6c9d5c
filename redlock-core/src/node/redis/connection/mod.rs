//! One connection to a server.

pub(crate) mod admission;
mod authentication;
pub(crate) mod endpoint;
mod outage_log;
pub(crate) mod pauses;
pub(super) mod pending_acquisitions;
#[cfg(test)]
pub(crate) mod played_server;
pub(crate) mod pool;
mod refusable;
mod rejection_reason;
pub(super) mod replication;
pub(crate) mod route;
#[cfg(test)]
mod socket_tests;
pub(crate) mod supervisor;
#[cfg(feature = "tls")]
pub(crate) mod tls;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bb8_redis::redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::sleep;

use super::delayed_restart::quarantine::{Quarantine, Quarantines, VoteGate};
use super::delayed_restart::wall_clock::Reading;
use super::encode;
use super::link::Link;
use super::script::Script;
use super::sentinel::Master;
use crate::error::NodeError;
use crate::node::Silence;
use authentication::ExpiringLogin;
use pending_acquisitions::PendingAcquisitions;
use replication::Replication;

/// One connection to a server, shared by all callers. It belongs to one incarnation of the server, and ends
/// with it.
pub(crate) struct Connection {
    pub(crate) link: Link,
    scripts: [String; Script::COUNT],
    pub(crate) identity: Identity,
    /// The master of a Sentinel group to which the connection leads.
    pub(crate) master: Option<Master>,
    /// Set if the credentials of the connection expire.
    expiring_login: Option<ExpiringLogin>,
    vote_gate: VoteGate,
    /// Whether a lock was requested or extended since the last call of `was_used`.
    used: AtomicBool,
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
    pub(crate) fn new(link: Link, scripts: [String; Script::COUNT], identity: Identity) -> Self {
        Self {
            link,
            scripts,
            identity,
            master: None,
            expiring_login: None,
            vote_gate: VoteGate::default(),
            used: AtomicBool::new(false),
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
        self.link.is_alive()
    }

    /// Ends the connection when the server has been silent for `limit`, and then completes. A device on the
    /// way may accept the commands without delivering them, and TCP does not notice that.
    ///
    /// The server may still execute commands that were sent before. Their clean-up follows them on the same
    /// connection, as long as `limit` is longer than a ballot waits for a silent node (an abandoned attempt
    /// leaves nothing behind).
    pub(crate) async fn end_when_silent_for(&self, limit: Duration) {
        while let Silence::CheckAgainAfter(pause) = self.silence(limit) {
            sleep(pause).await;
        }
        self.link.end(&format!("no reply for {limit:?}"));
    }

    /// Sends one command, and returns the future of its reply. If the future is dropped, the command may still be sent.
    ///
    /// No command is sent after the end of the connection: its clean-up would use another connection, and
    /// might overtake it (an abandoned attempt leaves nothing behind).
    pub(crate) fn send(
        &self,
        command: &Cmd,
    ) -> impl Future<Output = Result<Value, RedisError>> + use<'_> {
        self.send_packed(encode::packed(command), false)
    }

    /// [Sends](Self::send) a command in its encoded form. `asking` is set for a server of a cluster to which the slot of the
    /// keys is moving.
    pub(crate) fn send_packed(
        &self,
        command: Arc<[u8]>,
        asking: bool,
    ) -> impl Future<Output = Result<Value, RedisError>> + use<'_> {
        let reply = self.link.send_packed(command, asking);
        async move {
            reply.await.inspect_err(|error| {
                // After a failover, the name of the server may resolve to the new master: connect again.
                if is_read_only(error) {
                    self.link.end(&super::error::server_message(error));
                }
            })
        }
    }

    /// Returns the SHA-1 sum by which the server knows a script.
    pub(crate) fn sha(&self, script: Script) -> &str {
        &self.scripts[script.index()]
    }

    /// Sends the command of a script that may run twice. Loads the script again if the server has forgotten it.
    pub(crate) async fn send_script(
        &self,
        script: Script,
        command: Arc<[u8]>,
        asking: bool,
    ) -> Result<Value, RedisError> {
        match self.send_packed(Arc::clone(&command), asking).await {
            Ok(reply) => Ok(reply),
            Err(error) => {
                let resend = async { self.send_packed(command, asking).await };
                self.recover(script, error, resend).await
            }
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
            reply = self.send(&encode::load(script)).await;
            if reply.is_ok() {
                // Only one retry: if the script is flushed again, the caller gets the error.
                reply = resend.await;
            }
        }
        reply.map_err(|error| super::error::name_commands(&script.commands(), error))
    }

    /// Returns how long the server has been silent, or `None` if it has not been silent for `limit`.
    pub(crate) fn silent_for(&self, limit: Duration) -> Option<Duration> {
        match self.silence(limit) {
            Silence::Silent(time) => Some(time),
            Silence::CheckAgainAfter(_) => None,
        }
    }

    /// Returns whether the server has been silent for `limit`.
    pub(crate) fn silence(&self, limit: Duration) -> Silence {
        self.link.traffic().silence(limit)
    }
}

/// Returns whether the error shows that a former master is a replica now. Inside a script, Redis 6.2 reports
/// this by an error of another kind.
fn is_read_only(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || error.detail().is_some_and(|detail| detail.contains("-READONLY "))
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
    use crate::node::redis::connection::played_server::{played_connection, serve};

    /// The peer of the connection is gone, but the connection does not break.
    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_when_its_server_owes_a_reply_for_too_long() {
        const LIMIT: Duration = Duration::from_secs(5);
        let (connection, _server) = played_connection();
        let connection = Arc::new(connection);
        let ask = || {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.send(&bb8_redis::redis::cmd("PING")).await })
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

    /// The reply to an earlier command says nothing about the later ones.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_falls_silent_between_two_replies_is_noticed() {
        const LIMIT: Duration = Duration::from_secs(5);
        let (connection, mut server) = played_connection();
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

    /// Late replies delay only the time at which the server counts as silent.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_falls_silent_after_a_late_reply_is_noticed() {
        const NODE_TIMEOUT: Duration = Duration::from_millis(50);
        let (connection, mut server) = played_connection();
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
        let (connection, mut server) = played_connection();
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
        let (connection, mut server) = played_connection();
        let sent = bb8_redis::redis::cmd("PING");
        let mut before = Box::pin(connection.send(&sent));
        assert!(futures_util::poll!(&mut before).is_pending());
        // The driver, which runs in another task, has sent the command.
        let mut arrived = vec![0; sent.get_packed_command().len()];
        server.read_exact(&mut arrived).await.unwrap();
        connection.link.end("the test ends it");
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
        let (connection, _server) = played_connection();
        let connection = Arc::new(connection);
        let waiting = {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.send(&bb8_redis::redis::cmd("PING")).await })
        };
        // The command is sent, and its caller waits for the reply.
        tokio::time::sleep(Duration::from_millis(1)).await;
        connection.link.end("the server closed the connection");
        let ended = tokio::time::timeout(Duration::from_secs(5), waiting).await;
        assert!(ended.unwrap().unwrap().unwrap_err().is_io_error());
    }

    #[test]
    fn a_demoted_server_is_recognized_by_its_error_in_scripts_too() {
        let error = |text: &str| {
            let reply = bb8_redis::redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
            reply.unwrap().extract_error().unwrap_err()
        };
        assert!(is_read_only(&error("READONLY You can't write against a read only replica.")));
        // Redis 6.2
        assert!(is_read_only(&error(
            "ERR Error running script (call to f_1): @user_script:5: @user_script: 5: -READONLY \
             You can't write against a read only replica."
        )));
        assert!(!is_read_only(&error("ERR unknown command 'READONLY'")));
    }

    /// After a failover, the name of the server may resolve to the new master. Otherwise each command would be refused.
    #[tokio::test]
    async fn the_connection_to_a_demoted_server_ends() {
        let (connection, mut server) = played_connection();
        let set = bb8_redis::redis::cmd("SET");
        let refuse = serve(&mut server, "SET", "-READONLY You can't write.\r\n", || {});
        let (reply, ()) = tokio::join!(connection.send(&set), refuse);
        assert!(reply.is_err());
        assert!(connection.link.ended().await.contains("READONLY"));
        assert!(connection.send(&set).await.unwrap_err().is_io_error());
    }
}
