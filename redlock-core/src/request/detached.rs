//! Work in a task of its own, which goes on when its caller has left.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt;
use futures_util::future::Either;
use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument;

use super::scope;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::key::LockKey;

/// Spawns work that owns the guard. The returned future resolves to the output of the work. If it is dropped, the
/// work goes on, and its output is dropped in its task. If the lock was not acquired, the returned future runs the work
/// itself.
///
/// The work stays in the scope and in the span of the caller. A shutdown waits for it. Its panic resumes in the
/// returned future. If a shutdown began after the lock was acquired, nothing waits for the work: it then gets an
/// error instead of the guard, and must not begin.
///
/// # Panics
///
/// If the caller is not in a Tokio runtime.
pub fn detach<W, F>(
    acquired: Result<LockGuard, LockError>,
    work: F,
) -> impl Future<Output = W::Output> + Send + use<W, F>
where
    W: Future<Output: Send + 'static> + Send + 'static,
    F: FnOnce(Result<LockGuard, LockError>) -> W,
{
    match acquired {
        Ok(guard) => Either::Left(spawn(guard, work)),
        Err(refusal) => Either::Right(work(Err(refusal))),
    }
}

/// Makes a shutdown wait for the token to be dropped before it ends the locks, as it waits for detached work.
pub fn delay_shutdown(guard: &LockGuard) -> TaskTrackerToken {
    guard.context.home.delay_shutdown_of_locks()
}

fn spawn<W, F>(guard: LockGuard, work: F) -> impl Future<Output = W::Output> + Send + use<W, F>
where
    W: Future<Output: Send + 'static> + Send + 'static,
    F: FnOnce(Result<LockGuard, LockError>) -> W,
{
    let key = guard.keys()[0].clone();
    let shutdown_waits = delay_shutdown(&guard);
    // A shutdown that begins after this check meets the token.
    let guard = guard.context.home.check_open().map(|()| guard);
    let work = AssertUnwindSafe(scope::stay(work(guard))).catch_unwind();
    let (sender, receiver) = oneshot::channel();
    let task = async move {
        let output = work.await.map_err(|payload| Panic { key, payload: Some(payload) });
        let _ = sender.send(output);
        // The output of a caller that has left is dropped by now.
        drop(shutdown_waits);
    };
    tokio::spawn(task.in_current_span());
    async {
        #[expect(clippy::expect_used, reason = "only the end of the runtime drops the task")]
        let output = receiver.await.expect("the runtime has ended before its detached work");
        output.unwrap_or_else(|mut panic| {
            resume_unwind(panic.payload.take().unwrap_or_else(|| Box::new(())))
        })
    }
}

/// The panic of work. It is logged if it does not resume in the caller.
struct Panic {
    key: LockKey,
    /// `None` once it has resumed.
    payload: Option<Box<dyn Any + Send>>,
}

/// Logs the panic of work whose caller has left.
impl Drop for Panic {
    fn drop(&mut self) {
        let Some(payload) = &self.payload else { return };
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        tracing::error!(
            lock = %self.key,
            "detached work panicked after its caller had left: {}",
            text.unwrap_or("the panic has no text")
        );
    }
}
