//! One direction of one connection.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

/// A packet that a pipe delivers.
#[derive(Debug)]
pub(crate) enum Packet {
    Data(Vec<u8>),
    /// The other side has closed the connection.
    End,
    /// The connection has been reset.
    Reset,
}

/// One direction of one connection. A pipe delivers packets in order, each after a delay.
#[derive(Debug, Default)]
pub(super) struct Pipe(Mutex<Content>);

#[derive(Debug, Default)]
struct Content {
    packets: VecDeque<(Instant, Packet)>,
    /// The pipe delivers nothing, but keeps its packets.
    held: bool,
    /// The pipe takes no more packets.
    closed: bool,
    reader: Option<Waker>,
}

impl Pipe {
    pub(super) fn new(held: bool) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Content { held, ..Content::default() })))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.lock().closed
    }

    /// Sends a packet, which arrives at `at`, but not before earlier packets.
    pub(super) fn push(&self, at: Instant, packet: Packet) {
        let mut content = self.0.lock();
        if content.closed {
            return;
        }
        content.closed = !matches!(packet, Packet::Data(_));
        let at = content.packets.back().map_or(at, |(last, _)| at.max(*last));
        content.packets.push_back((at, packet));
        content.wake();
    }

    /// Resets the pipe: it delivers the first `kept` packets in flight, and then the reset.
    pub(super) fn reset(&self, kept: usize) {
        let mut content = self.0.lock();
        content.closed = true;
        content.packets.truncate(kept);
        let at = content.packets.back().map_or_else(Instant::now, |(last, _)| *last);
        content.packets.push_back((at, Packet::Reset));
        content.wake();
    }

    pub(super) fn is_held(&self) -> bool {
        self.0.lock().held
    }

    /// Returns the number of packets in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.0.lock().packets.len()
    }

    pub(super) fn hold(&self) {
        self.0.lock().held = true;
    }

    /// Delivers packets again. Held packets arrive at `at` or later.
    pub(super) fn resume(&self, at: Instant) {
        let mut content = self.0.lock();
        content.held = false;
        content.packets.iter_mut().for_each(|(due, _)| *due = at.max(*due));
        content.wake();
    }
}

impl Content {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// The receiving end of a pipe.
#[derive(Debug)]
pub(crate) struct Receiver {
    pipe: Arc<Pipe>,
    timer: Pin<Box<Sleep>>,
}

impl Receiver {
    pub(super) fn new(pipe: Arc<Pipe>) -> Self {
        Self { pipe, timer: Box::pin(sleep_until(Instant::now())) }
    }

    pub(crate) async fn next(&mut self) -> Packet {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Packet> {
        let mut content = self.pipe.0.lock();
        let due = content.packets.front().map(|(due, _)| *due).filter(|_| !content.held);
        let Some(due) = due else {
            content.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        if due <= Instant::now()
            && let Some((_, packet)) = content.packets.pop_front()
        {
            return Poll::Ready(packet);
        }
        content.reader = Some(cx.waker().clone());
        drop(content);
        self.timer.as_mut().reset(due);
        if self.timer.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
