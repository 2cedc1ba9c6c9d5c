//! The option for work whose lock is lost while it runs.

/// Selects what happens to work whose lock is lost while it runs.
///
/// The work is the closure of [`LockRequest::run`](crate::LockRequest::run) or, in `redlock-axum`, the handler
/// or function under the lock.
///
/// A lock is lost when its lease has run out or could not be renewed, or when the lock is gone from a quorum
/// of nodes. In each case a warning is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnLost {
    /// The work goes on, and its result is returned. For work that checks its lock itself, by the
    /// [`LockHandle`](crate::LockHandle) or the extractor `HeldLock` of `redlock-axum`, or that may safely be
    /// done twice.
    #[default]
    KeepGoing,
    /// The work is dropped at its current `await`. [`LockRequest::run`](crate::LockRequest::run) returns
    /// [`RunError::Lost`](crate::RunError::Lost). A request to a handler of `redlock-axum` is answered with
    /// 503, a `RejectionKind::Lost`; with `HoldUntil::EndOfBody`, a body that is still being sent ends with an
    /// error.
    ///
    /// The work done so far is not undone, and tasks that the work has spawned continue. Work that does not
    /// await is not stopped.
    Abort,
}
