//! One direction of one connection.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Traffic;

/// What came in, and when.
struct Chunk {
    bytes: Vec<u8>,
    at: Instant,
}

/// From one side of a connection to the other.
pub(super) struct Way<'a> {
    pub(super) traffic: watch::Receiver<Traffic>,
    pub(super) from_reset: &'a CancellationToken,
    pub(super) to_reset: &'a CancellationToken,
}

impl Way<'_> {
    /// Carries what comes from one side to the other, until that has ended in order or a side is
    /// reset; a reset of the side that it comes from leaves what came before on its way, and
    /// `outlived` is told what gets there then. What comes in is counted, and may be altered.
    pub(super) async fn pump(
        self,
        (from, received, alter): (OwnedReadHalf, &AtomicUsize, impl Fn(&mut [u8])),
        mut to: OwnedWriteHalf,
        outlived: impl Fn(&[u8]),
    ) {
        let Self { traffic, from_reset, to_reset } = self;
        let (chunks, queue) = mpsc::unbounded_channel();
        let read = async {
            tokio::select! {
                () = read(from, received, alter, chunks) => {}
                () = from_reset.cancelled() => {}
            }
        };
        let write = async {
            let deliver = |bytes: &[u8]| {
                if from_reset.is_cancelled() {
                    outlived(bytes);
                }
            };
            tokio::select! {
                // What is held back when it is reset is gone, also if it is let go at the same time.
                biased;
                () = to_reset.cancelled() => {}
                ended = write(&mut to, queue, traffic, deliver) => if ended == Ended::Short {
                    from_reset.cancel();
                    to_reset.cancel();
                },
            }
            if to_reset.is_cancelled() {
                // Dropped, it would end in order.
                to.forget();
            }
        };
        tokio::join!(read, write);
    }
}

/// How the writing has ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    InOrder,
    /// Not everything could or should be written.
    Short,
}

async fn read(
    mut from: OwnedReadHalf,
    received: &AtomicUsize,
    alter: impl Fn(&mut [u8]),
    chunks: mpsc::UnboundedSender<Chunk>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        alter(&mut buffer[..length]);
        let chunk = Chunk { bytes: buffer[..length].to_vec(), at: Instant::now() };
        if chunks.send(chunk).is_err() {
            return;
        }
        received.fetch_add(length, Ordering::SeqCst);
    }
    // The end comes after all that was said, and is held back and delayed as that is.
    let _ = chunks.send(Chunk { bytes: Vec::new(), at: Instant::now() });
}

async fn write(
    to: &mut OwnedWriteHalf,
    mut queue: mpsc::UnboundedReceiver<Chunk>,
    mut traffic: watch::Receiver<Traffic>,
    deliver: impl Fn(&[u8]),
) -> Ended {
    let mut budget = None;
    while let Some(chunk) = queue.recv().await {
        let allowed = admit(&chunk, &mut traffic, &mut budget).await;
        if chunk.bytes.is_empty() {
            let _ = to.shutdown().await;
            return Ended::InOrder;
        }
        deliver(&chunk.bytes[..allowed]);
        let failed = to.write_all(&chunk.bytes[..allowed]).await.is_err();
        if failed || allowed < chunk.bytes.len() {
            return Ended::Short;
        }
    }
    Ended::InOrder
}

/// Waits until a chunk may pass, and says how much of it may.
async fn admit(
    chunk: &Chunk,
    traffic: &mut watch::Receiver<Traffic>,
    budget: &mut Option<usize>,
) -> usize {
    loop {
        let now = *traffic.borrow_and_update();
        match now {
            Traffic::Pass => return chunk.bytes.len(),
            Traffic::ResetAfter(bytes) => {
                let left = budget.get_or_insert(bytes);
                let allowed = chunk.bytes.len().min(*left);
                *left -= allowed;
                return allowed;
            }
            Traffic::Delay(delay) => tokio::select! {
                () = sleep_until(chunk.at + delay) => return chunk.bytes.len(),
                changed = traffic.changed() => if changed.is_err() { return chunk.bytes.len() },
            },
            Traffic::Hold => {
                if traffic.changed().await.is_err() {
                    return chunk.bytes.len();
                }
            }
        }
    }
}
