//! Forwards one direction of one connection.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Traffic;

/// Received bytes, and the time of their arrival.
struct Chunk {
    bytes: Vec<u8>,
    at: Instant,
}

/// Forwards the data from one side of a connection to the other.
pub(super) struct Pump<'a> {
    pub(super) traffic: watch::Receiver<Traffic>,
    pub(super) from_reset: &'a CancellationToken,
    pub(super) to_reset: &'a CancellationToken,
}

impl Pump<'_> {
    /// Forwards data until the source has closed its side in order, or one side is reset. After a reset of
    /// the source, earlier data is still delivered, and passed to `outlived` too. Counts all bytes in
    /// `received`, and lets `alter` change them.
    pub(super) async fn run(
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
                // A reset discards held-back data, even if the traffic changes at the same time.
                biased;
                () = to_reset.cancelled() => {}
                ended = write(&mut to, queue, traffic, deliver) => if ended == Ended::Short {
                    from_reset.cancel();
                    to_reset.cancel();
                },
            }
            if to_reset.is_cancelled() {
                // Dropping the half would shut the connection down in order.
                to.forget();
            }
        };
        tokio::join!(read, write);
    }
}

/// The end of the writing.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// Everything was written, and the source has closed its side.
    InOrder,
    /// A write failed, or the byte limit of [`Traffic::ResetAfter`] is reached.
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
    // An empty chunk marks the end of the data. It is held back and delayed like data.
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

/// Waits until a chunk may pass, and returns how many of its bytes may pass.
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
                () = sleep_exactly(chunk.at + delay) => return chunk.bytes.len(),
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

/// Sleeps until a time. Spends the last part in a thread, because the timers of the runtime have a resolution of 1 ms.
async fn sleep_exactly(until: Instant) {
    const RESOLUTION: Duration = Duration::from_millis(2);
    sleep_until(until.checked_sub(RESOLUTION).unwrap_or(until)).await;
    let rest = until.saturating_duration_since(Instant::now());
    // Fails only if the runtime ends.
    let _ = tokio::task::spawn_blocking(move || std::thread::sleep(rest)).await;
}
