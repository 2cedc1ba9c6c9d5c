//! The health of a connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bb8_redis::redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::sync::Notify;

/// The health of a connection: alive, broken, or ended.
#[derive(Debug, Default)]
pub(crate) struct Health {
    broken: AtomicBool,
    /// Whether the connection has ended: it sends no commands, and waits for no replies.
    ended: AtomicBool,
    notify: Notify,
    reason: Mutex<Option<Arc<str>>>,
}

impl Health {
    pub(crate) fn is_alive(&self) -> bool {
        !self.broken.load(Ordering::Acquire)
    }

    /// Marks the connection as broken. Pending replies may still arrive.
    pub(crate) fn mark_broken(&self, reason: &str) {
        if let Ok(mut kept) = self.reason.lock() {
            kept.get_or_insert_with(|| reason.into());
        }
        self.broken.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    /// Ends the connection. Pending commands get no reply.
    pub(crate) fn end(&self, reason: &str) {
        // Set first, so that no command is sent over this connection once there is another one.
        self.ended.store(true, Ordering::Release);
        self.mark_broken(reason);
    }

    /// Returns an error for commands if the connection has ended.
    pub(crate) fn ended_error(&self) -> Option<RedisError> {
        let error =
            || (ErrorKind::Io, "the connection has ended", self.reason().to_string()).into();
        self.ended.load(Ordering::Acquire).then(error)
    }

    fn reason(&self) -> Arc<str> {
        let reason = self.reason.lock().ok().and_then(|kept| kept.clone());
        reason.unwrap_or_else(|| "the connection broke".into())
    }

    /// Marks the connection as broken if this error shows that it is.
    ///
    /// The connection does not end: pending replies may still arrive, and existing handles may still send.
    pub(crate) fn record_error(&self, error: &RedisError) {
        // After a failover, the name of the server may resolve to the new master: connect again.
        if is_read_only(error) || error.is_unrecoverable_error() || error.is_io_error() {
            self.mark_broken(&crate::node::redis::error::server_message(error));
        }
    }

    /// Waits until the connection is broken, and returns the reason.
    pub(crate) async fn broken(&self) -> Arc<str> {
        loop {
            let notified = self.notify.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if !self.is_alive() {
                return self.reason();
            }
            notified.await;
        }
    }
}

/// Returns whether the error shows that a former master is a replica now. Inside a script, Redis 6.2 reports
/// this by an error of another kind.
fn is_read_only(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || error.detail().is_some_and(|detail| detail.contains("-READONLY "))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use bb8_redis::redis::aio::MultiplexedConnection;
    use bb8_redis::redis::{RedisConnectionInfo, cmd};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::*;
    use crate::node::redis::connection::played_server::played_connection;
    use crate::node::redis::connection::pool::settings;

    /// A socket that fails every write, but stays open.
    struct Unwritable;

    impl AsyncRead for Unwritable {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Unwritable {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// The driver (redis 1.8.1) ends after such an error, and does not report the disconnection.
    #[tokio::test]
    async fn a_failed_write_marks_the_connection_as_broken() {
        let info = RedisConnectionInfo::default().set_skip_set_lib_name();
        let connected = MultiplexedConnection::new_with_config(&info, Unwritable, settings()).await;
        let (mut connection, driver) = connected.unwrap();
        tokio::spawn(driver);
        let error = connection.send_packed_command(&cmd("PING")).await.unwrap_err();
        let health = Health::default();
        health.record_error(&error);
        assert!(!health.is_alive(), "{error:?}");
    }

    #[tokio::test]
    async fn a_reply_that_is_cut_off_marks_the_connection_as_broken() {
        let (connection, server) = played_connection().await;
        drop(server);
        assert!(connection.send(&cmd("PING")).await.unwrap_err().is_io_error());
        assert!(!connection.is_alive());
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
}
