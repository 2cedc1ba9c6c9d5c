//! Executes operations in futures that serve one operation after another.
//!
//! The future of a command is large, because it contains the future of the redis crate. To allocate it and to move
//! it to its place costs more than the rest of an operation does. So each thread keeps the futures of completed
//! operations for its next ones.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::connection::Connection;
use super::dialect;
use crate::node::{Execution, Op, Reply, ReplyFuture};

/// The highest number of executors that a thread keeps.
const MAX_SPARE: usize = 64;

thread_local! {
    #[expect(clippy::vec_box, reason = "the box is what a reply future owns")]
    static SPARE: RefCell<Vec<Box<Executor>>> = const { RefCell::new(Vec::new()) };
}

/// An operation, and the connection that carries it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) connection: Arc<Connection>,
    pub(super) op: Op,
    /// The start of the operation.
    pub(super) begun: Instant,
    pub(super) node_timeout: Duration,
}

/// The job of an executor, and then its reply.
#[derive(Debug, Default)]
struct Desk {
    job: Option<Job>,
    reply: Option<Reply>,
}

/// Executes one job after another.
pub(super) struct Executor {
    desk: Arc<Mutex<Desk>>,
    /// Never completes. Without a job it is pending.
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Executor {
    /// Returns the future of a job. The job starts with the first poll.
    pub(super) fn start(job: Job) -> ReplyFuture {
        let executor = SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
            let desk = Arc::default();
            let future = Box::pin(run(Arc::clone(&desk)));
            Box::new(Self { desk, future })
        });
        executor.desk.lock().job = Some(job);
        ReplyFuture::executing(executor)
    }
}

impl Execution for Executor {
    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
        let _ = self.future.as_mut().poll(cx);
        match self.desk.lock().reply.take() {
            Some(reply) => Poll::Ready(reply),
            None => Poll::Pending,
        }
    }

    fn recycle(self: Box<Self>) {
        // At the end of a thread there are no spare executors any more.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < MAX_SPARE {
                spare.push(self);
            }
        });
    }
}

async fn run(desk: Arc<Mutex<Desk>>) {
    loop {
        let job = desk.lock().job.take();
        if let Some(Job { connection, op, begun, node_timeout }) = job {
            let reply = dialect::execute(&connection, &op, begun, node_timeout).await;
            drop((connection, op));
            desk.lock().reply = Some(reply);
        }
        pause().await;
    }
}

/// Is pending once, and registers no waker: the executor is polled again with its next job.
async fn pause() {
    let mut is_over = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut is_over, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
