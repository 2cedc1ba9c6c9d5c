//! The stream of the batched floor: it writes the commands of many callers together.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The number of commands in flight from which a write waits for further commands.
const BATCH_FROM: usize = 8;
/// The number of slices in which the replies of all commands in flight are read.
const SLICES: usize = 5;
const REPLY_BYTES: usize = 5;

/// The number of commands in flight on one connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    /// Counts a command until its reply has arrived.
    pub(crate) async fn count<T>(&self, command: impl Future<Output = T>) -> T {
        self.0.fetch_add(1, Ordering::Relaxed);
        let reply = command.await;
        self.0.fetch_sub(1, Ordering::Relaxed);
        reply
    }
}

/// A TCP stream that lets the other ready tasks run once before each write, if at least [`BATCH_FROM`] commands are in
/// flight. With `in_slices` it also lets them run after each slice of the replies.
pub(crate) struct Batching {
    stream: TcpStream,
    in_flight: InFlight,
    /// Whether the replies are read in slices.
    in_slices: bool,
    has_waited: bool,
    has_read_slice: bool,
}

impl Batching {
    pub(crate) fn new(stream: TcpStream, in_flight: InFlight, in_slices: bool) -> Self {
        Self { stream, in_flight, in_slices, has_waited: false, has_read_slice: false }
    }
}

impl AsyncRead for Batching {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.has_read_slice {
            self.has_waited = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let in_flight = self.in_flight.0.load(Ordering::Relaxed);
        if !self.in_slices || in_flight < 2 {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let (before, slice) =
            (buffer.filled().len(), (in_flight * REPLY_BYTES / SLICES).max(REPLY_BYTES));
        let read = Pin::new(&mut (&mut self.stream).take(slice as u64)).poll_read(cx, buffer);
        self.has_read_slice = buffer.filled().len() - before >= slice;
        read
    }
}

impl AsyncWrite for Batching {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let waited = std::mem::take(&mut self.has_waited);
        if !waited && self.in_flight.0.load(Ordering::Relaxed) >= BATCH_FROM {
            self.has_waited = true;
            self.has_read_slice = false;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if written.is_pending() {
            self.has_read_slice = false;
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.has_read_slice = false;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
