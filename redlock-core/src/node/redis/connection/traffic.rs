//! Distinguishes a silent server from a late process.
//!
//! A server is silent if it owes a reply and sends nothing, although this process would have read the
//! reply. A delay of this process (a burst of requests, a throttled or stopped process) does not count as
//! silence. So the evidence comes from the socket:
//!
//! * The server owes a reply from the moment at which bytes are written to the socket. A command that still
//!   waits in this process does not count.
//! * Received bytes show that the server works, unless they are only messages of channels. Those show that
//!   other clients reach the server, but this process may not (a partition in one direction).
//! * A reply counts as soon as it lies in the kernel's buffer. If no task has read it yet, this process is
//!   late, not the server.

#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

#[cfg(unix)]
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::socket::Socket;
use crate::clock::nanos;
use crate::node::Silence;

/// The shortest pause before the next check while there are unread bytes. It limits the load of the checks,
/// because thousands of callers may check at once in a process that is already late.
const UNREAD_CHECK_PAUSE: Duration = Duration::from_millis(5);

/// The traffic of one connection, which shows whether the server is silent.
#[derive(Debug)]
pub(crate) struct Traffic {
    begun: Instant,
    /// The time since which the server owes a reply and has sent nothing, in nanoseconds after `begun`, or
    /// `NEVER`.
    owed_since: AtomicU64,
    /// Whether the reader has processed all received bytes, and found no more.
    drained: AtomicBool,
    /// The number of commands whose replies are awaited.
    awaited: AtomicUsize,
    /// The number of commands that were answered.
    answered: AtomicUsize,
    /// Whether the replies to several commands are read in slices.
    in_slices: AtomicBool,
    /// Notified when a caller waits, and it is unknown whether the server owes a reply. The connection then
    /// sends a command of its own.
    reply_unknown: Notify,
    /// The socket, for as long as it is open.
    #[cfg(unix)]
    socket: Mutex<Option<OwnedFd>>,
}

const NEVER: u64 = u64::MAX;

/// The progress of the commands of one connection.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplyProgress {
    /// Whether the reply to any command is awaited.
    pub(crate) is_awaited: bool,
    /// The number of commands that were answered so far.
    pub(crate) answered: usize,
}

impl Traffic {
    /// Begins to record the traffic of a socket.
    #[cfg_attr(not(unix), allow(unused_variables, reason = "only unix has descriptors"))]
    pub(super) fn of(socket: &Socket) -> Self {
        Self {
            begun: Instant::now(),
            owed_since: AtomicU64::new(NEVER),
            drained: AtomicBool::new(true),
            awaited: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            in_slices: AtomicBool::new(false),
            reply_unknown: Notify::new(),
            #[cfg(unix)]
            socket: Mutex::new(socket.descriptor()),
        }
    }

    /// Records that the reply to a command is awaited, until the returned value is dropped.
    pub(crate) fn expect_reply(&self) -> AwaitedReply<'_> {
        self.awaited.fetch_add(1, Ordering::Relaxed);
        AwaitedReply { traffic: self }
    }

    /// Returns whether replies are awaited, and how many have arrived so far.
    pub(crate) fn reply_progress(&self) -> ReplyProgress {
        ReplyProgress {
            is_awaited: self.in_flight() > 0,
            answered: self.answered.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of commands in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.awaited.load(Ordering::Relaxed)
    }

    /// Reads the replies to several commands in slices from now on.
    pub(crate) fn read_in_slices(&self) {
        self.in_slices.store(true, Ordering::Relaxed);
    }

    /// Returns whether the replies to several commands are read in slices.
    pub(super) fn reads_in_slices(&self) -> bool {
        self.in_slices.load(Ordering::Relaxed)
    }

    /// Returns whether the server is known to owe a reply.
    pub(crate) fn is_owed(&self) -> bool {
        self.owed_since.load(Ordering::Acquire) != NEVER
    }

    /// Completes when a caller waits for a reply, and it is unknown whether the server owes one.
    pub(crate) async fn reply_unknown(&self) {
        self.reply_unknown.notified().await;
    }

    /// Returns whether the server has been silent for at least `limit`.
    pub(crate) fn silence(&self, limit: Duration) -> Silence {
        let since = self.owed_since.load(Ordering::Acquire);
        if since == NEVER {
            return Silence::CheckAgainAfter(limit);
        }
        let now = self.begun.elapsed();
        let lasts = now.saturating_sub(Duration::from_nanos(since));
        if lasts < limit {
            return Silence::CheckAgainAfter(limit.saturating_sub(lasts));
        }
        let is_late = !self.drained.load(Ordering::Acquire)
            || self.has_unread()
            // Bytes were read during this check.
            || self.owed_since.load(Ordering::Acquire) != since;
        if is_late {
            Silence::CheckAgainAfter(UNREAD_CHECK_PAUSE.max(limit / 4))
        } else {
            Silence::Silent(lasts)
        }
    }

    /// Like [`silence`](Self::silence), for a caller that waits for a reply. If it is unknown whether the
    /// server owes a reply, the connection sends a command of its own.
    pub(crate) fn silence_for_caller(&self, limit: Duration) -> Silence {
        if !self.is_owed() {
            self.reply_unknown.notify_one();
        }
        self.silence(limit)
    }

    /// Returns whether the kernel has bytes, or the end of the connection, that were not read yet.
    #[cfg(unix)]
    fn has_unread(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};

        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let socket = self.socket.lock();
        let Some(socket) = &*socket else { return false };
        let mut polled = [PollFd::new(socket, PollFlags::IN)];
        // After an interrupted check, the caller checks again soon.
        poll(&mut polled, Some(&AT_ONCE)).map_or(true, |ready| ready > 0)
    }

    #[cfg(not(unix))]
    fn has_unread(&self) -> bool {
        false
    }

    /// Shuts the socket down in both directions, even if other tasks still hold it.
    pub(crate) fn shut_down(&self) {
        #[cfg(unix)]
        if let Some(socket) = &*self.socket.lock() {
            // Fails if the server has already closed the connection.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }

    /// Closes the descriptor, when the socket is dropped.
    pub(super) fn close(&self) {
        #[cfg(unix)]
        self.socket.lock().take();
    }

    pub(super) fn record_written(&self) {
        if self.owed_since.load(Ordering::Relaxed) == NEVER {
            let now = nanos(self.begun.elapsed()).min(NEVER - 1);
            self.owed_since.store(now, Ordering::Release);
        }
    }

    /// Records that bytes were read. Messages of channels alone do not show that the server works.
    pub(super) fn record_read(&self, only_messages: bool) {
        self.drained.store(false, Ordering::Release);
        if !only_messages {
            self.owed_since.store(NEVER, Ordering::Release);
        }
    }

    pub(super) fn record_drained(&self) {
        self.drained.store(true, Ordering::Release);
    }
}

/// A command whose reply is awaited.
pub(crate) struct AwaitedReply<'a> {
    traffic: &'a Traffic,
}

impl AwaitedReply<'_> {
    pub(crate) fn answered(self) {
        self.traffic.answered.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for AwaitedReply<'_> {
    fn drop(&mut self) {
        self.traffic.awaited.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::super::metered_socket::MeteredSocket;
    use super::*;

    const LIMIT: Duration = Duration::from_millis(20);

    async fn connection() -> (MeteredSocket, Arc<Traffic>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let (socket, traffic) = MeteredSocket::new(Socket::Tcp(client));
        (socket, traffic, server)
    }

    /// Waits until the limit is over and the reply has arrived.
    async fn wait() {
        tokio::time::sleep(LIMIT * 2).await;
    }

    async fn reply(server: &mut TcpStream) {
        let mut command = [0; 4];
        server.read_exact(&mut command).await.unwrap();
        server.write_all(b"+PONG\r\n").await.unwrap();
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
        socket.write_all(b"PING").await.unwrap();
        assert!(!traffic.silence(Duration::from_secs(60)).is_silent(), "the limit is not over");
        wait().await;
        assert!(traffic.silence(LIMIT).is_silent());
        reply(&mut server).await;
        socket.read_exact(&mut [0; 7]).await.unwrap();
        wait().await;
        assert!(!traffic.silence(LIMIT).is_silent(), "the server has replied");
    }

    const MESSAGE: &[u8] = b">3\r\n$7\r\nmessage\r\n$6\r\nl:{42}\r\n$1\r\n0\r\n";

    /// A partition in one direction: the server receives no commands, but its messages arrive.
    #[tokio::test]
    async fn messages_do_not_end_the_silence_of_a_server() {
        let (mut socket, traffic, mut server) = connection().await;
        socket.write_all(b"PING").await.unwrap();
        for replied in [false, true] {
            let mut sent = MESSAGE.repeat(3);
            if replied {
                sent.extend(b"+PONG\r\n");
            }
            wait().await;
            server.write_all(&sent).await.unwrap();
            socket.read_exact(&mut vec![0; sent.len()]).await.unwrap();
            // The reader finds no more bytes.
            assert!(futures_util::poll!(pin!(socket.read_u8())).is_pending());
            assert_eq!(traffic.silence(LIMIT).is_silent(), !replied);
        }
    }

    /// The reply lies in the buffer of the kernel.
    #[tokio::test]
    async fn a_process_that_reads_a_reply_late_does_not_make_the_server_silent() {
        let (mut socket, traffic, mut server) = connection().await;
        socket.write_all(b"PING").await.unwrap();
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
        socket.write_all(b"PING").await.unwrap();
        reply(&mut server).await;
        socket.read_exact(&mut [0; 7]).await.unwrap();
        // The socket has not been polled for further bytes.
        socket.write_all(b"PING").await.unwrap();
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
