//! One connection to a server.

use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{FromRedisValue, RedisError};
use futures_util::future::try_join_all;
use tokio::time::sleep;

use super::identity::Identity;
use super::native::NativeCommands;
use super::rights::MissingRight;
use crate::node::Silence;
use crate::store::kit::kept::KeptLink;
use crate::store::redis::encode;
use crate::store::redis::link::Link;
use crate::store::redis::script::Script;

/// One connection to a server, which all callers use. It belongs to one incarnation of the server, and ends
/// with it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) link: Link,
    pub(super) shas: Shas,
    pub(super) identity: Identity,
    /// The rights that the user lacks, and without which it still has locks.
    pub(super) missing: Vec<MissingRight>,
    /// The commands that replace a script.
    pub(crate) native: NativeCommands,
    /// Whether other commands may follow a subscription, see [`Link::takes_subscriptions`].
    pub(crate) takes_subscriptions: bool,
}

impl Connection {
    /// Ends the connection when the server has been silent for `limit`, and then completes. A device on the
    /// way may accept the commands without delivering them, and TCP does not notice that.
    ///
    /// The server may still execute commands that were sent before. Their clean-up follows them on the same
    /// connection, as long as `limit` is longer than a ballot waits for a silent node (an abandoned attempt
    /// leaves nothing behind).
    pub(super) async fn end_when_silent_for(&self, limit: Duration) {
        while let Silence::CheckAgainAfter(pause) = self.link.silence(limit) {
            sleep(pause).await;
        }
        self.link.end(&format!("no reply for {limit:?}"));
    }

    /// Returns whether the server may track keys for the connection, as far as it is known. A server with RESP2's rules has no
    /// messages beside the replies.
    pub(in crate::store::redis) fn tracks(&self) -> bool {
        self.takes_subscriptions && !self.link.is_tracking_refused()
    }

    /// Returns the SHA-1 sum by which the server knows a script.
    pub(in crate::store::redis) fn sha(&self, script: Script) -> &str {
        self.shas.of(script)
    }
}

impl KeptLink for Connection {
    fn ended(&self) -> Option<Arc<str>> {
        self.link.reason()
    }

    fn silence(&self, limit: Duration) -> Silence {
        self.link.silence(limit)
    }
}

/// The SHA-1 sums by which a server knows the scripts.
#[derive(Debug)]
pub(super) struct Shas([String; Script::ALL.len()]);

impl Shas {
    /// Loads all scripts over a new link.
    pub(super) async fn load(link: &Link) -> Result<Self, RedisError> {
        let loads = Script::ALL.map(|script| async move {
            let sha = String::from_redis_value(link.send(&encode::load(script)).await?)?;
            Ok::<_, RedisError>(sha)
        });
        let mut shas = try_join_all(loads).await?.into_iter();
        Ok(Self(Script::ALL.map(|_| shas.next().unwrap_or_default())))
    }

    pub(super) fn of(&self, script: Script) -> &str {
        // Each script is at its index in `Script::ALL`, which is as long as this array.
        &self.0[script as usize]
    }

    /// Returns names in place of the sums.
    #[cfg(test)]
    pub(super) fn played() -> Self {
        Self(Script::ALL.map(|script| script.name().to_owned()))
    }
}

#[cfg(test)]
impl Connection {
    /// [Sends](Link::send) a command.
    pub(crate) fn send(
        &self,
        command: &bb8_redis::redis::Cmd,
    ) -> impl Future<Output = Result<bb8_redis::redis::Value, RedisError>> + use<'_> {
        self.link.send(command)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::{BoxFuture, pending, ready};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::super::played_server::{played_connection, played_connection_through, serve};
    use super::*;
    use crate::error::NodeError;
    use crate::store::kit::link_contract::{PlayedLink, link_contract};
    use crate::store::redis::error;

    impl PlayedLink for DuplexStream {
        type Link = Connection;
        type Request = ();
        const LIMIT: Duration = Duration::from_secs(5);
        const SENDS_DROPPED: bool = false;
        const FINDS_UNREAD: bool = true;
        const NONSENSE: &'static [u8] = b"no RESP\r\n";
        const CUT: &'static str = "closed";

        async fn connect(capacity: usize) -> (Self, Arc<Connection>, BoxFuture<'static, ()>) {
            let (connection, server) = played_connection_through(capacity, |_| {});
            let connection = Arc::new(connection);
            let watched = Arc::clone(&connection);
            let driver = async move {
                tokio::select! {
                    _ = watched.link.ended() => {}
                    () = watched.end_when_silent_for(Self::LIMIT) => {}
                }
            };
            (server, connection, driver.boxed())
        }

        fn send(link: &Connection, number: usize) -> BoxFuture<'_, Result<usize, NodeError>> {
            if let Some(reason) = link.ended() {
                return ready(Err(NodeError::NotConnected(reason))).boxed();
            }
            let reply = link.send(bb8_redis::redis::cmd("GET").arg(format!("{number:04}")));
            let number = |reply| usize::from_redis_value(reply).unwrap();
            reply.map(move |reply| reply.map(number).map_err(|e| error::node_error(&e))).boxed()
        }

        async fn take(&mut self) -> (usize, ()) {
            let mut command = *b"*2\r\n$3\r\nGET\r\n$4\r\n0000\r\n";
            self.read_exact(&mut command).await.unwrap();
            (std::str::from_utf8(&command[17..21]).unwrap().parse().unwrap(), ())
        }

        async fn answer(&mut self, number: usize, (): &()) {
            self.write_all(format!(":{number}\r\n").as_bytes()).await.unwrap();
        }

        async fn answer_pings(&mut self) {
            pending::<()>().await;
        }

        fn socket(&mut self) -> &mut DuplexStream {
            self
        }
    }

    link_contract!(DuplexStream);

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
                while !connection.link.silence(NODE_TIMEOUT).is_silent() {
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
        assert!(connection.link.is_alive());
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
