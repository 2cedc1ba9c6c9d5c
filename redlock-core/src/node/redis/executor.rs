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
use super::operation;
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
    /// The start of an operation that may look up the remaining lease.
    pub(super) begun: Option<Instant>,
    pub(super) node_timeout: Duration,
}

/// The job of an executor, and then its reply.
#[derive(Debug, Default)]
struct JobSlot {
    job: Option<Job>,
    reply: Option<Reply>,
}

/// Executes one job after another.
pub(super) struct Executor {
    slot: Arc<Mutex<JobSlot>>,
    /// Never completes. Without a job it is pending.
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Executor {
    /// Returns the future of a job. The job starts with the first poll.
    pub(super) fn start(job: Job) -> ReplyFuture {
        // A guard may be dropped while its thread ends. There are no spare executors any more then.
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        let executor = spare.unwrap_or_else(|| {
            let slot = Arc::default();
            let future = Box::pin(run(Arc::clone(&slot)));
            Box::new(Self { slot, future })
        });
        // An assignment would copy the job twice.
        let _ = executor.slot.lock().job.insert(job);
        ReplyFuture::executing(executor)
    }
}

impl Execution for Executor {
    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
        let _ = self.future.as_mut().poll(cx);
        match self.slot.lock().reply.take() {
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

async fn run(slot: Arc<Mutex<JobSlot>>) {
    loop {
        let job = slot.lock().job.take();
        if let Some(Job { connection, op, begun, node_timeout }) = job {
            let reply = operation::execute(&connection, &op, begun, node_timeout).await;
            drop((connection, op));
            slot.lock().reply = Some(reply);
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures_util::FutureExt;

    use super::*;
    use crate::error::Vote;
    use crate::key::LockKey;
    use crate::lock::{Dialect, LockSpec, Mode, Token};
    use crate::node::Action;
    use crate::node::redis::connection::played_server::{played_connection, serve};

    const LEASE: Duration = Duration::from_secs(30);

    fn job(connection: &Arc<Connection>, action: Action) -> Job {
        let key = LockKey::new("order:42").unwrap();
        let spec = LockSpec::new(key, Mode::Exclusive, Dialect::Plain);
        let op = Op::new(&spec, Token::random(Dialect::Plain), action);
        let connection = Arc::clone(connection);
        Job { connection, op, begun: None, node_timeout: LEASE }
    }

    fn acquire(connection: &Arc<Connection>) -> Job {
        job(
            connection,
            Action::Acquire {
                lease: LEASE,
                fenced: false,
                lookup: false,
                met_marks: false,
                mark: None,
            },
        )
    }

    fn spare() -> usize {
        SPARE.with_borrow(Vec::len)
    }

    #[tokio::test]
    async fn an_executor_replies_to_each_of_its_jobs_and_keeps_nothing_of_it() {
        let (connection, mut server) = played_connection().await;
        let connection = Arc::new(connection);
        for (reply, vote) in [("+OK\r\n", Vote::Granted), ("_\r\n", Vote::Held { remaining: None })]
        {
            let job = Executor::start(acquire(&connection));
            assert_eq!(spare(), 0);
            let (replied, ()) = tokio::join!(job, serve(&mut server, "SET", reply, || {}));
            assert_eq!(replied.vote, vote);
            assert_eq!((spare(), Arc::strong_count(&connection)), (1, 1));
        }
    }

    /// Its future still belongs to the old operation.
    #[tokio::test]
    async fn an_executor_whose_job_was_dropped_is_not_used_again() {
        let (connection, mut server) = played_connection().await;
        let connection = Arc::new(connection);
        let mut dropped = Executor::start(acquire(&connection));
        assert!((&mut dropped).now_or_never().is_none());
        drop(dropped);
        assert_eq!((spare(), Arc::strong_count(&connection)), (0, 1));
        let next = Executor::start(job(&connection, Action::Release { min_hold: None }));
        // The driver skips a command whose caller is gone.
        let reply = serve(&mut server, "release", ":0\r\n", || {});
        let (replied, ()) = tokio::join!(next, reply);
        assert_eq!(replied.vote, Vote::NotHeld);
    }

    /// A guard in a thread-local variable is dropped after the spare executors, and releases its lock.
    #[tokio::test]
    async fn a_job_starts_even_while_its_thread_ends() {
        struct AtExit(Option<Job>);

        impl Drop for AtExit {
            fn drop(&mut self) {
                drop(self.0.take().map(Executor::start));
            }
        }

        thread_local! {
            static AT_EXIT: RefCell<AtExit> = const { RefCell::new(AtExit(None)) };
        }

        let (connection, _server) = played_connection().await;
        let connection = Arc::new(connection);
        let (early, late) = (acquire(&connection), acquire(&connection));
        let thread = std::thread::spawn(move || {
            AT_EXIT.set(AtExit(Some(late)));
            drop(Executor::start(early));
        });
        thread.join().unwrap();
        assert_eq!(Arc::strong_count(&connection), 1);
    }
}
