//! Distinguishes a silent server from a late process.
//!
//! A server is silent if it owes a reply and sends none, although this process would have read it. A delay of this process
//! (a burst of requests, a throttled or stopped process) does not count as silence. So the evidence comes from the socket:
//!
//! * The server owes a reply from the moment at which its command is written to the socket. A command that still
//!   waits in this process does not count.
//! * Only a whole reply shows that the server works. Messages of channels show that other clients reach the server, but
//!   this process may not (a partition in one direction).
//! * A reply counts as soon as it lies in the kernel's buffer. If no task has read it yet, this process is
//!   late, not the server.

use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bb8_redis::redis::io::tcp::socket2::Socket;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use crate::clock::nanos;
use crate::node::Silence;

/// The shortest pause before the next check while there are unread bytes. It limits the load of the checks,
/// because thousands of callers may check at once in a process that is already late.
const UNREAD_CHECK_PAUSE: Duration = Duration::from_millis(5);

/// The traffic of one link, which shows whether the server is silent.
#[derive(Debug)]
pub(crate) struct Traffic {
    begun: Instant,
    /// The time since which the server owes a reply and has sent none, in nanoseconds after `begun`; `NEVER` if it owes
    /// no reply, and `NOW` if it has sent a reply and owes others.
    owed_since: AtomicU64,
    /// Whether the reader has processed all received bytes, and found no more.
    drained: AtomicBool,
    /// The socket, for as long as it is open.
    socket: Mutex<Option<Socket>>,
}

const NEVER: u64 = u64::MAX;
/// Replaced by the present time when all received bytes are processed.
const NOW: u64 = u64::MAX - 1;

impl Traffic {
    /// Begins to record the traffic of a socket.
    pub(super) fn of(descriptor: Option<Socket>) -> Self {
        Self {
            begun: Instant::now(),
            owed_since: AtomicU64::new(NEVER),
            drained: AtomicBool::new(true),
            socket: Mutex::new(descriptor),
        }
    }

    /// Returns whether the server has been silent for at least `limit`.
    pub(crate) fn silence(&self, limit: Duration) -> Silence {
        let since = self.owed_since.load(Ordering::Acquire);
        let lasts = match since {
            NEVER | NOW => Duration::ZERO,
            since => self.begun.elapsed().saturating_sub(Duration::from_nanos(since)),
        };
        if lasts < limit {
            return Silence::CheckAgainAfter(limit.saturating_sub(lasts));
        }
        let is_late = !self.drained.load(Ordering::Acquire)
            || self.has_unread()
            // A reply arrived during this check.
            || self.owed_since.load(Ordering::Acquire) != since;
        if is_late {
            Silence::CheckAgainAfter(UNREAD_CHECK_PAUSE.max(limit / 4))
        } else {
            Silence::Silent(lasts)
        }
    }

    /// Returns whether the kernel has bytes, or the end of the connection, that were not read yet.
    fn has_unread(&self) -> bool {
        let socket = self.socket.lock();
        let Some(socket) = &*socket else { return false };
        // The socket does not block. After an interrupted check, the caller checks again soon.
        let peeked = socket.peek(&mut [MaybeUninit::uninit()]);
        !peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Shuts the socket down in both directions, even if other tasks still hold it.
    pub(super) fn shut_down(&self) {
        if let Some(socket) = &*self.socket.lock() {
            // Fails if the server has already closed the connection.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Records that bytes are written from now on, even if the server takes none.
    pub(super) fn record_written(&self) {
        if self.owed_since.load(Ordering::Relaxed) == NEVER {
            self.owed_since.store(self.now(), Ordering::Release);
        }
    }

    /// Records a reply. `owes_more` says whether the server owes others.
    pub(super) fn record_reply(&self, owes_more: bool) {
        self.owed_since.store(if owes_more { NOW } else { NEVER }, Ordering::Release);
    }

    fn record_drained(&self) {
        if self.owed_since.load(Ordering::Relaxed) == NOW {
            self.owed_since.store(self.now(), Ordering::Release);
        }
        self.drained.store(true, Ordering::Release);
    }

    fn now(&self) -> u64 {
        nanos(self.begun.elapsed()).min(NOW - 1)
    }
}

/// The reading half of a socket, which records what was read.
pub(super) struct Metered<R> {
    pub(super) reader: R,
    pub(super) traffic: Arc<Traffic>,
}

impl<R> Drop for Metered<R> {
    /// Closes the second descriptor, which would keep the socket open.
    fn drop(&mut self) {
        self.traffic.socket.lock().take();
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Metered<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Before the read: bytes that have left the kernel's buffer count as unread.
        self.traffic.drained.store(false, Ordering::Release);
        let read = Pin::new(&mut self.reader).poll_read(cx, buffer);
        if read.is_pending() {
            self.traffic.record_drained();
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::store::redis::link::socket::{self, ByteStream};

    const LIMIT: Duration = Duration::from_millis(20);

    type TestSocket = Metered<Box<dyn ByteStream>>;

    async fn connection() -> (TestSocket, Arc<Traffic>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let Ok(socket::Socket { stream, descriptor, .. }) =
            socket::Socket::over_tcp(client, "", None).await
        else {
            panic!("there is no TLS");
        };
        let traffic = Arc::new(Traffic::of(descriptor));
        (Metered { reader: stream, traffic: Arc::clone(&traffic) }, traffic, server)
    }

    /// Writes bytes as the driver does.
    async fn write(socket: &mut TestSocket, bytes: &[u8]) {
        socket.traffic.record_written();
        socket.reader.write_all(bytes).await.unwrap();
    }

    /// Waits until the limit is over and the reply has arrived.
    async fn wait() {
        tokio::time::sleep(LIMIT * 2).await;
    }

    const COMMAND: &[u8] = b"PING";
    const REPLY: &[u8] = b"+PONG\r\n";

    /// Replies to one command.
    async fn reply(server: &mut TcpStream) {
        server.read_exact(&mut [0; COMMAND.len()]).await.unwrap();
        server.write_all(REPLY).await.unwrap();
    }

    /// Reads a reply, and then finds no more bytes.
    async fn drain(socket: &mut TestSocket) {
        socket.read_exact(&mut [0; REPLY.len()]).await.unwrap();
        assert!(futures_util::poll!(pin!(socket.read_u8())).is_pending());
    }

    /// Reads until the connection ends. Returns the number of bytes.
    async fn end(server: &mut TcpStream) -> usize {
        let read = tokio::time::timeout(Duration::from_secs(10), server.read(&mut [0])).await;
        read.expect("the connection has ended").unwrap()
    }

    #[tokio::test]
    async fn a_server_is_silent_when_it_owes_a_reply_for_too_long() {
        let (mut socket, traffic, mut server) = connection().await;
        wait().await;
        assert!(!traffic.silence(LIMIT).is_silent(), "no command was sent");
        write(&mut socket, COMMAND).await;
        assert!(!traffic.silence(Duration::from_secs(60)).is_silent(), "the limit is not over");
        wait().await;
        assert!(traffic.silence(LIMIT).is_silent());
        reply(&mut server).await;
        drain(&mut socket).await;
        assert!(traffic.silence(LIMIT).is_silent(), "the bytes are not a whole reply");
        traffic.record_reply(false);
        assert!(!traffic.silence(LIMIT).is_silent(), "the server has replied");
    }

    #[tokio::test]
    async fn the_silence_of_a_server_that_owes_more_replies_begins_with_the_last_one() {
        let (mut socket, traffic, mut server) = connection().await;
        write(&mut socket, &COMMAND.repeat(2)).await;
        wait().await;
        reply(&mut server).await;
        socket.read_exact(&mut [0; REPLY.len()]).await.unwrap();
        traffic.record_reply(true);
        wait().await;
        assert!(!traffic.silence(LIMIT).is_silent(), "there may be more bytes");
        assert!(futures_util::poll!(pin!(socket.read_u8())).is_pending());
        assert!(!traffic.silence(LIMIT * 1000).is_silent());
        wait().await;
        assert!(traffic.silence(LIMIT).is_silent());
    }

    /// The reply lies in the buffer of the kernel.
    #[tokio::test]
    async fn a_process_that_reads_a_reply_late_does_not_make_the_server_silent() {
        let (mut socket, traffic, mut server) = connection().await;
        write(&mut socket, COMMAND).await;
        reply(&mut server).await;
        wait().await;
        assert_eq!(traffic.silence(LIMIT), Silence::CheckAgainAfter(UNREAD_CHECK_PAUSE));
        drop(server);
        wait().await;
        assert_eq!(
            traffic.silence(LIMIT),
            Silence::CheckAgainAfter(UNREAD_CHECK_PAUSE),
            "followed by the end of the connection"
        );
    }

    /// The reply was read, but not passed on yet.
    #[tokio::test]
    async fn a_process_that_passes_a_reply_on_late_does_not_make_the_server_silent() {
        let (mut socket, traffic, mut server) = connection().await;
        write(&mut socket, COMMAND).await;
        reply(&mut server).await;
        socket.read_exact(&mut [0; REPLY.len()]).await.unwrap();
        // The socket has not been polled for further bytes.
        write(&mut socket, COMMAND).await;
        wait().await;
        assert_eq!(traffic.silence(LIMIT), Silence::CheckAgainAfter(UNREAD_CHECK_PAUSE));
    }

    /// If a dropped socket stayed open, the server would not notice the end of the connection.
    #[tokio::test]
    async fn a_socket_that_is_dropped_is_closed() {
        let (socket, traffic, mut server) = connection().await;
        drop(socket);
        assert_eq!(end(&mut server).await, 0);
        drop(traffic);
    }

    #[tokio::test]
    async fn a_connection_that_is_shut_down_ends_for_the_server_at_once() {
        let (socket, traffic, mut server) = connection().await;
        traffic.shut_down();
        assert_eq!(end(&mut server).await, 0);
        drop(socket);
    }
}
