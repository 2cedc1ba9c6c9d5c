//! The socket between the redis crate and the server. It records the traffic, and writes the commands of many
//! callers together.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use super::frames::Frames;
use super::slices::Slices;
use super::socket::Socket;
use super::traffic::Traffic;

/// The number of commands in flight from which a write waits for the callers that are ready.
///
/// A batch of fewer commands saves little, and the pause costs processor time.
pub(crate) const BATCH_FROM: usize = 8;

/// A socket that records its traffic, and writes the commands of many callers together.
///
/// Tokio's multi-threaded runtime runs the driver of the connection before the other callers that are ready. So
/// the driver would find two or three commands for each write, however many callers there are. If many commands
/// are in flight, a write therefore lets the ready tasks run first: the driver then writes the commands of all of
/// them at once. There is no timer, and the order of the commands stays.
///
/// If all replies were read at once, all callers would be ready at once. Their commands would be one batch, and the
/// client and the server would work in turns. So if several commands are in flight, the driver reads only a slice of
/// the replies, and then lets the ready tasks run. The server executes the commands of these callers, while this
/// process reads the next slice.
///
/// Several servers keep a process busy without slices. So only the connection of a manager with one server
/// [reads in slices](Traffic::read_in_slices).
///
/// The driver of the redis crate reads several times in one turn. It flushes at the end of the turn, unless a write is
/// pending. A slice therefore lasts until the next flush or pending write.
///
/// The socket has no vectored writes of its own: the redis crate has all commands in one buffer, and the default
/// of [`AsyncWrite`] turns a vectored write into [`poll_write`](AsyncWrite::poll_write).
#[derive(Debug)]
pub(crate) struct MeteredSocket {
    socket: Socket,
    traffic: Arc<Traffic>,
    /// Whether the ready tasks have run since the last write, so that the next one need not wait. A write that the
    /// kernel does not take at once does not wait again.
    has_waited: bool,
    slices: Slices,
    frames: Frames,
}

impl MeteredSocket {
    pub(crate) fn new(socket: Socket) -> (Self, Arc<Traffic>) {
        let traffic = Arc::new(Traffic::of(&socket));
        (
            Self {
                socket,
                traffic: Arc::clone(&traffic),
                has_waited: false,
                slices: Slices::new(),
                frames: Frames::default(),
            },
            traffic,
        )
    }
}

impl Drop for MeteredSocket {
    /// Closes the second descriptor, which would keep the socket open.
    fn drop(&mut self) {
        self.traffic.close();
    }
}

impl AsyncRead for MeteredSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.slices.is_read() {
            // The task runs again after the other tasks that are ready.
            this.has_waited = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let in_flight = this.traffic.in_flight();
        let is_sliced = in_flight > 1 && this.traffic.reads_in_slices();
        let slice = is_sliced.then(|| this.slices.length(in_flight));
        let read = match slice {
            Some(slice) => {
                Pin::new(&mut (&mut this.socket).take(slice as u64)).poll_read(cx, buffer)
            }
            None => Pin::new(&mut this.socket).poll_read(cx, buffer),
        };
        match &read {
            Poll::Pending => this.traffic.record_drained(),
            Poll::Ready(Ok(())) if buffer.filled().len() > before => {
                let bytes = &buffer.filled()[before..];
                let found = this.frames.read(bytes);
                this.traffic.record_read(found.only_messages);
                this.slices.record(bytes.len(), slice, found.ended);
            }
            Poll::Ready(_) => {}
        }
        read
    }
}

impl AsyncWrite for MeteredSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.has_waited && self.traffic.in_flight() >= BATCH_FROM {
            self.has_waited = true;
            self.slices.next_turn();
            // The task runs again after the other tasks that are ready.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Poll::Ready(written) = Pin::new(&mut self.socket).poll_write(cx, bytes) else {
            self.slices.next_turn();
            return Poll::Pending;
        };
        self.has_waited = false;
        if matches!(written, Ok(count) if count > 0) {
            self.traffic.record_written();
        }
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.slices.next_turn();
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::super::traffic::AwaitedReply;
    use super::*;
    use crate::node::Silence;

    const COMMAND: &[u8] = b"PING";

    fn connection(capacity: usize) -> (MeteredSocket, Arc<Traffic>, DuplexStream) {
        let (client, server) = duplex(capacity);
        let (socket, traffic) = MeteredSocket::new(Socket::Duplex(client));
        (socket, traffic, server)
    }

    fn in_flight(traffic: &Traffic, count: usize) -> Vec<AwaitedReply<'_>> {
        (0..count).map(|_| traffic.expect_reply()).collect()
    }

    /// A task that counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Woken {
        fn task() -> Arc<Self> {
            Arc::default()
        }

        fn times(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }

        /// Writes a command in this task.
        fn write(self: &Arc<Self>, socket: &mut MeteredSocket) -> Poll<usize> {
            self.poll(|cx| Pin::new(socket).poll_write(cx, COMMAND))
        }

        fn poll<T>(
            self: &Arc<Self>,
            poll: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<T>>,
        ) -> Poll<T> {
            poll(&mut Context::from_waker(&Arc::clone(self).into())).map(Result::unwrap)
        }
    }

    const WRITTEN: Poll<usize> = Poll::Ready(COMMAND.len());

    /// Reads replies in this task. Returns their number of bytes.
    fn read(task: &Arc<Woken>, socket: &mut MeteredSocket) -> Poll<usize> {
        let mut bytes = [0; 4096];
        let mut buffer = ReadBuf::new(&mut bytes);
        let read = task.poll(|cx| Pin::new(socket).poll_read(cx, &mut buffer));
        read.map(|()| buffer.filled().len())
    }

    fn flush(task: &Arc<Woken>, socket: &mut MeteredSocket) {
        assert!(task.poll(|cx| Pin::new(socket).poll_flush(cx)).is_ready());
    }

    fn connection_with_slices(capacity: usize) -> (MeteredSocket, Arc<Traffic>, DuplexStream) {
        let (socket, traffic, server) = connection(capacity);
        traffic.read_in_slices();
        (socket, traffic, server)
    }

    /// The length of the first slices.
    const SLICE: usize = 6;

    /// A reply that is as long as a slice.
    const REPLY: &[u8] = b":123\r\n";

    /// The reply to a single command is never cut.
    #[tokio::test]
    async fn with_one_command_in_flight_all_replies_are_read_at_once() {
        let (mut socket, traffic, mut server) = connection_with_slices(4096);
        let task = Woken::task();
        for count in 0..=1 {
            let _in_flight = in_flight(&traffic, count);
            server.write_all(&[b'+'; 1000]).await.unwrap();
            assert_eq!(read(&task, &mut socket), Poll::Ready(1000));
        }
        assert_eq!(task.times(), 0);
    }

    /// One turn of the driver reads one slice, however often it reads.
    #[tokio::test]
    async fn with_several_commands_in_flight_each_turn_reads_a_slice() {
        let (mut socket, traffic, mut server) = connection_with_slices(4096);
        let _in_flight = in_flight(&traffic, BATCH_FROM);
        let task = Woken::task();
        let replies = REPLY.repeat(3);
        server.write_all(&replies[..3 * SLICE - 1]).await.unwrap();
        for turn in 0..2 {
            assert_eq!(read(&task, &mut socket), Poll::Ready(SLICE));
            for times in 1..=3 {
                assert!(read(&task, &mut socket).is_pending());
                assert_eq!(task.times(), 3 * turn + times, "the task runs again");
            }
            flush(&task, &mut socket);
        }
        assert_eq!(read(&task, &mut socket), Poll::Ready(SLICE - 1));
        assert!(read(&task, &mut socket).is_pending());
        assert_eq!(task.times(), 6, "the task sleeps until there are further replies");
        server.write_all(&replies[3 * SLICE - 1..]).await.unwrap();
        assert_eq!(task.times(), 7);
        assert_eq!(read(&task, &mut socket), Poll::Ready(1));
    }

    #[tokio::test]
    async fn without_slices_all_replies_are_read_at_once() {
        let (mut socket, traffic, mut server) = connection(4096);
        let _in_flight = in_flight(&traffic, BATCH_FROM);
        let task = Woken::task();
        server.write_all(&[b'+'; 1000]).await.unwrap();
        assert_eq!(read(&task, &mut socket), Poll::Ready(1000));
        assert!(read(&task, &mut socket).is_pending());
        assert_eq!(task.times(), 0);
    }

    #[tokio::test]
    async fn two_commands_in_flight_are_answered_in_two_turns() {
        let (mut socket, traffic, mut server) = connection_with_slices(4096);
        let _in_flight = in_flight(&traffic, 2);
        let task = Woken::task();
        server.write_all(b"+OK\r\n+OK\r\n").await.unwrap();
        for _ in 0..2 {
            assert_eq!(read(&task, &mut socket), Poll::Ready(5));
            assert!(read(&task, &mut socket).is_pending());
            flush(&task, &mut socket);
        }
    }

    /// A partition in one direction: messages arrive, but no replies.
    #[tokio::test]
    async fn messages_that_are_read_in_slices_do_not_end_the_silence_of_a_server() {
        let (mut socket, traffic, mut server) = connection_with_slices(4096);
        let _in_flight = in_flight(&traffic, BATCH_FROM);
        let task = Woken::task();
        assert!(task.write(&mut socket).is_pending());
        assert_eq!(task.write(&mut socket), WRITTEN);
        let messages = b">3\r\n$7\r\nmessage\r\n$6\r\nl:{42}\r\n$1\r\n0\r\n".repeat(3);
        server.write_all(&messages).await.unwrap();
        let mut bytes = 0;
        while bytes < messages.len() {
            let Poll::Ready(slice) = read(&task, &mut socket) else { panic!("{bytes} bytes") };
            bytes += slice;
            flush(&task, &mut socket);
        }
        assert!(
            read(&task, &mut socket).is_pending() && traffic.silence(Duration::ZERO).is_silent()
        );
    }

    /// The turn ends without a flush. Otherwise the driver would never read again, and would run without a pause.
    #[tokio::test]
    async fn a_driver_whose_write_is_pending_reads_all_replies_and_then_sleeps() {
        let (mut socket, traffic, mut server) = connection_with_slices(2 * COMMAND.len());
        let _in_flight = in_flight(&traffic, BATCH_FROM);
        let task = Woken::task();
        for _ in 0..2 {
            assert!(task.write(&mut socket).is_pending());
            assert_eq!(task.write(&mut socket), WRITTEN);
        }
        let mut turn = async |replies: &[u8]| {
            server.write_all(replies).await.unwrap();
            let slice = read(&task, &mut socket);
            assert!(read(&task, &mut socket).is_pending());
            assert!(task.write(&mut socket).is_pending(), "the socket is full");
            slice
        };
        assert_eq!(turn(REPLY).await, Poll::Ready(SLICE));
        assert_eq!(turn(REPLY).await, Poll::Ready(SLICE));
        assert!(turn(b"").await.is_pending());
        let times = task.times();
        assert!(turn(b"").await.is_pending());
        assert_eq!(task.times(), times, "nothing has happened");
    }

    /// The pause of a write ends the turn, too.
    #[tokio::test]
    async fn a_write_that_waits_ends_the_turn_of_a_slice() {
        let (mut socket, traffic, mut server) = connection_with_slices(4096);
        let _in_flight = in_flight(&traffic, BATCH_FROM);
        let task = Woken::task();
        server.write_all(&REPLY.repeat(2)).await.unwrap();
        assert_eq!(read(&task, &mut socket), Poll::Ready(SLICE));
        assert!(task.write(&mut socket).is_pending());
        assert_eq!(read(&task, &mut socket), Poll::Ready(SLICE));
    }

    #[tokio::test]
    async fn a_write_after_a_slice_does_not_wait_again() {
        let (mut socket, traffic, mut server) = connection_with_slices(4096);
        let _in_flight = in_flight(&traffic, BATCH_FROM);
        let task = Woken::task();
        server.write_all(&REPLY.repeat(2)).await.unwrap();
        assert!(read(&task, &mut socket).is_ready() && read(&task, &mut socket).is_pending());
        flush(&task, &mut socket);
        assert_eq!(task.write(&mut socket), WRITTEN);
        assert!(task.write(&mut socket).is_pending(), "a second write waits");
    }

    /// The process is late, not the server.
    #[tokio::test]
    async fn a_server_is_not_silent_while_its_replies_wait_for_the_next_turn() {
        let (mut socket, traffic, mut server) = connection_with_slices(4096);
        let _in_flight = in_flight(&traffic, BATCH_FROM);
        let task = Woken::task();
        server.write_all(&REPLY.repeat(2)).await.unwrap();
        assert!(read(&task, &mut socket).is_ready() && read(&task, &mut socket).is_pending());
        assert_eq!(task.write(&mut socket), WRITTEN);
        assert!(traffic.is_owed());
        assert!(matches!(traffic.silence(Duration::ZERO), Silence::CheckAgainAfter(_)));
        flush(&task, &mut socket);
        assert_eq!(read(&task, &mut socket), Poll::Ready(SLICE));
        assert!(!traffic.is_owed());
    }

    #[test]
    fn with_few_commands_in_flight_a_write_reaches_the_socket_in_the_same_poll() {
        const { assert!(BATCH_FROM >= 8, "a write of seven callers waits") }
        let (mut socket, traffic, _server) = connection(4096);
        let task = Woken::task();
        for count in 0..BATCH_FROM {
            let _in_flight = in_flight(&traffic, count);
            assert_eq!(task.write(&mut socket), WRITTEN);
            assert_eq!(task.write(&mut socket), WRITTEN);
        }
        assert_eq!(task.times(), 0);
    }

    #[test]
    fn with_many_commands_in_flight_each_write_waits_once() {
        let (mut socket, traffic, _server) = connection(4096);
        let _in_flight = in_flight(&traffic, BATCH_FROM);
        let task = Woken::task();
        for write in 1..=3 {
            assert!(task.write(&mut socket).is_pending());
            assert_eq!(task.times(), write);
            assert_eq!(task.write(&mut socket), WRITTEN);
        }
        assert_eq!(task.times(), 3);
    }

    /// Nothing else would wake the task: the pause is over although the other commands have been answered.
    #[test]
    fn a_write_that_has_waited_is_written_although_few_commands_are_left() {
        let (mut socket, traffic, _server) = connection(4096);
        let mut awaited = in_flight(&traffic, BATCH_FROM);
        let task = Woken::task();
        assert!(task.write(&mut socket).is_pending());
        awaited.truncate(1);
        assert_eq!(task.write(&mut socket), WRITTEN);
        assert_eq!(task.write(&mut socket), WRITTEN);
        awaited.extend(in_flight(&traffic, BATCH_FROM));
        assert!(task.write(&mut socket).is_pending(), "a later write waits again");
        assert_eq!(task.times(), 2);
    }

    #[test]
    fn a_write_that_waited_in_one_task_is_written_by_another_task() {
        let (mut socket, traffic, _server) = connection(4096);
        let _in_flight = in_flight(&traffic, BATCH_FROM);
        let (first, second) = (Woken::task(), Woken::task());
        assert!(first.write(&mut socket).is_pending());
        assert_eq!(second.write(&mut socket), WRITTEN);
        assert_eq!((first.times(), second.times()), (1, 0));
    }

    /// Otherwise the driver would run without a pause while the kernel takes no bytes.
    #[tokio::test]
    async fn a_write_to_a_full_socket_sleeps_until_there_is_room() {
        let (mut socket, traffic, mut server) = connection(COMMAND.len());
        let _in_flight = in_flight(&traffic, BATCH_FROM);
        let task = Woken::task();
        assert!(task.write(&mut socket).is_pending());
        assert_eq!(task.write(&mut socket), WRITTEN);
        assert!(task.write(&mut socket).is_pending());
        assert_eq!(task.times(), 2, "woken by the pauses");
        for _ in 0..3 {
            assert!(task.write(&mut socket).is_pending());
        }
        assert_eq!(task.times(), 2, "the socket is full");
        server.read_exact(&mut [0; COMMAND.len()]).await.unwrap();
        assert_eq!(task.times(), 3, "there is room");
        assert_eq!(task.write(&mut socket), WRITTEN, "it has waited before");
    }

    /// The kernel takes a part of the bytes. The rest is another write.
    #[tokio::test]
    async fn a_write_that_the_socket_takes_in_parts_arrives_whole() {
        let (mut socket, traffic, mut server) = connection(3);
        let _in_flight = in_flight(&traffic, BATCH_FROM);
        let task = Woken::task();
        assert!(task.write(&mut socket).is_pending());
        assert_eq!(task.write(&mut socket), Poll::Ready(3));
        let rest = &COMMAND[3..];
        let write =
            |socket: &mut MeteredSocket| task.poll(|cx| Pin::new(socket).poll_write(cx, rest));
        assert!(write(&mut socket).is_pending());
        assert!(write(&mut socket).is_pending(), "the socket is full");
        assert!(traffic.is_owed());
        let mut arrived = [0; COMMAND.len()];
        server.read_exact(&mut arrived[..3]).await.unwrap();
        assert_eq!(write(&mut socket), Poll::Ready(1));
        server.read_exact(&mut arrived[3..]).await.unwrap();
        assert_eq!(arrived, COMMAND);
    }

    /// A write that waits has reached no server, which therefore owes no reply.
    #[test]
    fn a_server_owes_no_reply_while_the_write_waits() {
        let (mut socket, traffic, _server) = connection(4096);
        let _in_flight = in_flight(&traffic, BATCH_FROM);
        let task = Woken::task();
        assert!(task.write(&mut socket).is_pending());
        assert!(!traffic.is_owed());
        assert_eq!(task.write(&mut socket), WRITTEN);
        assert!(traffic.is_owed());
    }

    #[tokio::test]
    async fn flush_and_shutdown_never_wait_for_further_commands() {
        let (mut socket, traffic, mut server) = connection(4096);
        let _in_flight = in_flight(&traffic, BATCH_FROM);
        let task = Woken::task();
        assert!(task.write(&mut socket).is_pending());
        assert!(task.poll(|cx| Pin::new(&mut socket).poll_flush(cx)).is_ready());
        assert!(task.write(&mut socket).is_ready(), "the flush ends no pause and begins none");
        assert!(task.poll(|cx| Pin::new(&mut socket).poll_flush(cx)).is_ready());
        assert!(task.poll(|cx| Pin::new(&mut socket).poll_shutdown(cx)).is_ready());
        assert_eq!(task.times(), 1);
        let mut arrived = Vec::new();
        server.read_to_end(&mut arrived).await.unwrap();
        assert_eq!(arrived, COMMAND);
    }

    /// tokio-util writes a buffer of several parts by a vectored write if the socket has one.
    #[test]
    fn a_vectored_write_waits_as_well() {
        let (mut socket, traffic, _server) = connection(4096);
        let _in_flight = in_flight(&traffic, BATCH_FROM);
        let task = Woken::task();
        let parts = [IoSlice::new(b""), IoSlice::new(COMMAND), IoSlice::new(COMMAND)];
        let write = |socket: &mut MeteredSocket| {
            task.poll(|cx| Pin::new(socket).poll_write_vectored(cx, &parts))
        };
        assert!(!socket.is_write_vectored());
        assert!(write(&mut socket).is_pending());
        assert_eq!(write(&mut socket), WRITTEN);
        assert_eq!(task.times(), 1);
    }
}
