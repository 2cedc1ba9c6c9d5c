//! A request: the key and the options of one acquisition.

pub(crate) mod acquisition;
pub(crate) mod detached;
#[cfg(test)]
mod detached_tests;
mod grant;
#[cfg(test)]
#[cfg(feature = "test-util")]
mod join_tests;
pub(crate) mod lead;
#[cfg(test)]
mod lead_tests;
#[cfg(test)]
#[cfg(feature = "test-util")]
mod mark_tests;
#[cfg(test)]
mod name_tests;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
#[cfg(feature = "test-util")]
mod reader_tests;
mod repetition;
#[cfg(test)]
mod run_tests;
pub(crate) mod scope;

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::error::{LockError, RunError};
use crate::guard::{AbortOnLoss, LockGuard, LockHandle, LossWatcher};
use crate::key::KeyError;
use crate::lock::{Keys, LockName};
use crate::lock_order::RequestPlace;
use crate::options::{LockOptions, OnLost, WaitTime};
use crate::telemetry::{AcquisitionTimer, Trace};
use acquisition::Acquisition;

/// The waiting time of [`LockRequest::acquire`]: no limit, but not [through outages](WaitTime::Forever).
const UNTIL_ACQUIRED: WaitTime = WaitTime::UpTo(Duration::MAX);

/// A request for a lock. Returned by [`LockManager::lock`](crate::LockManager::lock), configured by
/// [options](LockOptions), and used by [`try_acquire`](Self::try_acquire), [`acquire`](Self::acquire),
/// [`run`](Self::run) or [`run_detached`](Self::run_detached).
///
/// Without [`expire`](Self::expire), the lease is the manager's
/// [`expire`](crate::LockManagerBuilder::expire), 30 s by default, and is [renewed](Self::renew). With
/// `expire`, the lease is not renewed by default.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redlock_core::LockManager;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = LockManager::in_memory();
/// let guard = locks
///     .lock("order:42")
///     .expire(Duration::from_secs(5))
///     .wait_time(Duration::from_millis(500))
///     .acquire()
///     .await?;
/// // ... work that must not run twice at the same time ...
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a request does nothing until `acquire`, `try_acquire` or `run` is awaited"]
pub struct LockRequest {
    context: Arc<Context>,
    keys: Result<Keys, KeyError>,
    options: LockOptions,
    name: LockName,
    place: RequestPlace,
}

impl LockRequest {
    /// Returns a request with the default options. No public API.
    #[doc(hidden)]
    #[track_caller]
    pub fn new(context: &Arc<Context>, keys: Result<Keys, KeyError>) -> Self {
        let (context, options) = (Arc::clone(context), LockOptions::new());
        let place = RequestPlace::Code(Location::caller());
        Self { context, keys, options, name: LockName::OTHER, place }
    }

    /// Sets all options at once. Replaces all options that were set before.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = options;
        self
    }

    crate::lock_option_setters!(self => self.options; self);

    /// Sets the name of the lock for tables and metrics: what its key is for, without the values in the key, such as
    /// `order:{id}`. It changes no lock, and [`LockHandle::name`] returns it.
    ///
    /// From 1 to 100 bytes without control characters; [`check`](Self::check) and an acquisition return
    /// [`LockError::InvalidOption`] otherwise. Use few different names, and no values of requests: each name is a row or a
    /// label. A literal is not copied. Defaults to `other`.
    pub fn named(self, name: impl Into<Cow<'static, str>>) -> Self {
        self.with_name(LockName::new(name))
    }

    /// Sets the name, for front ends. No public API.
    #[doc(hidden)]
    pub fn with_name(mut self, name: LockName) -> Self {
        self.name = name;
        self
    }

    /// Sets where the lock is requested, for front ends. No public API.
    #[doc(hidden)]
    pub fn with_place(mut self, place: RequestPlace) -> Self {
        self.place = place;
        self
    }

    /// Checks the key and the options without acquiring the lock, for example when a service starts. Sends nothing to the
    /// nodes.
    ///
    /// # Errors
    ///
    /// The [`LockError::InvalidKey`] or [`LockError::InvalidOption`] with which [`acquire`](Self::acquire) would fail: for
    /// an option that is out of its range, conflicts with another option, or is not supported by the manager or one of its
    /// nodes.
    pub fn check(&self) -> Result<(), LockError> {
        let Self { context, keys, options, name, .. } = self;
        Acquisition::check(context, name, keys.clone(), options).map(drop)
    }

    /// Returns what happens to the work if the lock is lost, for front ends that run the work. No public API.
    #[doc(hidden)]
    pub fn get_on_lost(&self) -> OnLost {
        self.options.on_lost.unwrap_or_default()
    }

    /// Checks the key and the options. No public API.
    #[doc(hidden)]
    pub fn prepare(self) -> Result<Acquisition, LockError> {
        let Self { context, keys, options, name, place } = self;
        let checked = Acquisition::check(&context, &name, keys, &options);
        let name = context.telemetry.named(name);
        match checked {
            Ok((spec, options)) => {
                let trace = Trace::default();
                Ok(Acquisition { context, spec, options, name, place, trace })
            }
            Err(error) => {
                AcquisitionTimer::refuse(&context.home.counters, &name, &error);
                Err(error)
            }
        }
    }

    /// Makes one attempt to acquire the lock. Ignores [`wait_time`](Self::wait_time). If the votes are
    /// [split](LockError::Split), so that nobody has the lock, the attempt is repeated up to 6 times, after random pauses.
    ///
    /// # Errors
    ///
    /// Returns a [`LockError`] of any variant. The lock is then not held.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any point. A lock that it acquired is released in the background.
    #[must_use = "the lock is released as soon as its guard is dropped; bind it by `let guard = lock.acquire().await?`"]
    pub async fn try_acquire(mut self) -> Result<LockGuard, LockError> {
        self.options.wait_time = None;
        self.prepare()?.acquire().await
    }

    /// Waits until no other holder has the lock, and acquires it.
    ///
    /// The caller waits without a limit, or up to [`wait_time`](Self::wait_time) if it is set.
    /// [`try_acquire`](Self::try_acquire) does not wait.
    ///
    /// # Outages
    ///
    /// A caller waits for another holder, but not for an outage to end: if no quorum of nodes replies to
    /// its first attempt, it fails at once. A caller that was waiting before the outage, because the
    /// nodes had refused it or because it queued behind another caller, keeps its place
    /// for up to the manager's [`outage_grace`](crate::LockManagerBuilder::outage_grace). After that it
    /// fails with [`LockError::Unavailable`].
    ///
    /// A caller that [waits for ever](Self::wait_forever) waits through outages, whenever they begin.
    ///
    /// The last attempt may end after the `wait_time`, because the caller waits for the nodes' replies
    /// to it. If nodes are silent, that takes up to the manager's
    /// [`node_timeout`](crate::LockManagerBuilder::node_timeout) longer. It takes up to twice that for a
    /// [fenced](Self::fenced) lock, and for a lock of the same scope that has to be extended for
    /// [`min_hold`](Self::min_hold) or [`keep`](Self::keep). It takes longer still if this process is late, but
    /// never longer than the lease.
    ///
    /// # Fairness
    ///
    /// Callers that wait for one key with the same manager, or with its clones, get the lock in order of
    /// arrival. A caller of `try_acquire` does not queue: it makes its one attempt at once, and may
    /// overtake the waiters unless this manager holds the lock. During an outage of the nodes, a new
    /// caller may overtake them too.
    ///
    /// When a holder releases a lock, the manager hands the lock over to its next waiter without asking
    /// the nodes. Hand-overs are limited, so that other processes get their turn:
    ///
    /// * Each time the nodes grant the lock, at most 16 callers of one manager hold it in a row, and at most 4
    ///   if other processes listened for its last release on the nodes.
    /// * No hand-over happens later than 100 ms after the nodes granted the lock.
    /// * After that the manager releases the lock on the nodes. If other processes listen for the
    ///   release, this manager waits for 2 ms before it asks for the lock again.
    /// * The lock is handed over only if at least 3/4 of the lease that the next waiter requests is
    ///   left. If less than 9/10 is left, the lease is extended in the background.
    ///
    /// Between processes, neither an order nor a number of turns is guaranteed: the process whose request reaches
    /// a quorum of nodes first gets the lock.
    ///
    /// Callers with [`fair`](Self::fair) wait in order of arrival between processes, too: in a queue on the first
    /// node that answers. They do not overtake each other, but a caller without `fair` may overtake them. A process
    /// that is killed loses its places after 3 s. The lock is handed over in this process only if its next waiter
    /// is the next of all processes. While a fair caller waits, `try_acquire` of a fair caller is refused.
    /// The votes of the nodes decide who holds the lock, with or without `fair`.
    ///
    /// [Shared](Self::shared) locks have further rules. A reader joins the lock of another reader of its manager, for 20 ms after
    /// the begin of that one's acquisition, and does not ask the nodes. While a reader asks, the others wait for its answer, for
    /// as long. A writer of the same manager ends that at once. A waiting exclusive caller keeps out later readers, in this process and in
    /// others. A reader lets four releases of exclusive holders pass, and then asks for a turn of 50 ms, in which only
    /// readers get the lock.
    ///
    /// # Errors
    ///
    /// Returns a [`LockError`] of any variant. The lock is then not held.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any point. The caller then leaves the queue, and a lock that it
    /// acquired is released in the background.
    #[must_use = "the lock is released as soon as its guard is dropped; bind it by `let guard = lock.acquire().await?`"]
    pub async fn acquire(self) -> Result<LockGuard, LockError> {
        let is_set = self.options.wait_time.is_some();
        let mut acquisition = self.prepare()?;
        if !is_set {
            acquisition.options.wait_time = Some(UNTIL_ACQUIRED);
        }
        acquisition.acquire().await
    }

    /// Acquires the lock, runs the work, and releases the lock. Returns the result of the work.
    ///
    /// Without a [`wait_time`](Self::wait_time), `run` makes one attempt, as [`try_acquire`](Self::try_acquire). With it, `run`
    /// waits as [`acquire`](Self::acquire). If the lock is not acquired, the closure is not called. The closure gets a
    /// [`LockHandle`], with which the work checks the lock and extends its lease.
    ///
    /// `run` awaits the release before it returns, even if the work returns an error, so that the caller's
    /// next request does not meet its own lock. If the release fails, a warning is logged, and the result of
    /// the work is returned. If the work panics, the lock is released in the background.
    ///
    /// # Examples
    ///
    /// The result of the work may be a `Result` with an error type of its own. Then the first `?` is for the
    /// lock, and the second one for the work.
    ///
    /// ```
    /// use std::num::ParseIntError;
    /// use std::time::Duration;
    /// use redlock_core::LockManager;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManager::in_memory();
    /// let stock = String::from("41");
    ///
    /// let request = locks.lock("stock").wait_time(Duration::from_secs(1));
    /// let stock = request
    ///     .run(async |lock| -> Result<u32, ParseIntError> {
    ///         assert!(lock.is_valid());
    ///         Ok(stock.parse::<u32>()? + 1)
    ///     })
    ///     .await??;
    /// assert_eq!(stock, 42);
    /// # Ok(()) }
    /// ```
    ///
    /// # Spawning
    ///
    /// The future of `run` is `Send` if the closure and its future are `Send`. A closure `async |lock| { .. }`
    /// borrows the local variables that it uses. A spawned future must own its variables: write
    /// `async move |lock| { .. }` or `|lock| async move { .. }`, or call `run` inside of an `async move` block.
    ///
    /// ```
    /// # use redlock_core::LockManager;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = LockManager::in_memory();
    /// let report = String::from("report");
    /// let run = locks.lock("report").run(async move |_lock| report.len());
    /// assert_eq!(tokio::spawn(run).await??, 6);
    ///
    /// let mut report = String::from("report");
    /// let task = tokio::spawn(async move {
    ///     locks.lock("report").run(async |_lock| report.push('s')).await?;
    ///     locks.lock("report").run(async |_lock| report.len()).await
    /// });
    /// assert_eq!(task.await??, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Loss
    ///
    /// By default the work goes on if its lock is lost, and its result is returned: work that is stopped may
    /// be half done, which is often worse than work that is done twice. With
    /// [`on_lost(OnLost::Abort)`](Self::on_lost), the work is dropped at its current `await`, and `run` returns
    /// [`RunError::Lost`]. The attribute and the layers of `redlock-axum` have the same option and the same
    /// default.
    ///
    /// # Scope
    ///
    /// `run` opens a [`scope`](crate::scope()): a second acquisition of the same key inside of the work fails
    /// at once with [`LockError::AlreadyHeld`] instead of waiting for itself, or
    /// joins the lock if it is [reentrant](Self::reentrant). If the caller has a scope already, such as the
    /// one of an axum handler under a lock, `run` belongs to that scope.
    ///
    /// # Errors
    ///
    /// * [`RunError::Acquire`] if the lock was not acquired. The closure was not called.
    /// * [`RunError::Lost`] if the lock was lost and the work was stopped. Only with [`OnLost::Abort`](crate::OnLost::Abort).
    ///
    /// An error of the work is part of its result: `run` then returns `Ok(Err(..))`.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any point. This drops the work first, and then releases the lock in the
    /// background. The work is as cancel safe as its own code. [`run_detached`](Self::run_detached) runs work that must
    /// not be dropped.
    pub async fn run<F, Fut>(self, work: F) -> Result<Fut::Output, RunError>
    where
        F: FnOnce(LockHandle) -> Fut,
        Fut: Future,
    {
        let on_lost = self.options.on_lost.unwrap_or_default();
        // Boxed, because the work may run other work, and each level would enlarge the future.
        let run = Box::pin(async {
            let guard = self.prepare()?.acquire().await?;
            run_under(guard, on_lost, work).await
        });
        scope::scope(run).await
    }

    /// Acquires the lock, runs the work in a task of its own, and releases the lock. Returns the result of the work. For
    /// work that must not be cut because its caller leaves, such as a payment.
    ///
    /// It differs from [`run`](Self::run) in these points:
    ///
    /// * If the future is dropped while the work runs, the work goes on. The lock is released at its end, and the result
    ///   is dropped.
    /// * The work and its result must be `Send + 'static`, because a task owns them: write
    ///   `async move |lock| { .. }` or `|lock| async move { .. }`.
    /// * A panic of the work resumes in the caller. If the caller has left, the panic is logged as an error.
    /// * [`LockManager::shutdown`](crate::LockManager::shutdown) waits for the work. Its acquisitions of other locks fail
    ///   from then on. Work that awaits the shutdown itself waits for ever.
    ///
    /// The work stays in the [`scope`](crate::scope()) and in the `tracing` span of the caller. With
    /// [`on_lost(OnLost::Abort)`](Self::on_lost), it is dropped when its lock is lost, also after the caller has left.
    /// Nothing else limits the time of work that hangs: use [`max_hold`](Self::max_hold) with
    /// `on_lost(OnLost::Abort)`, or a time-out in the work.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::LockManager;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = LockManager::in_memory();
    /// let amount = String::from("42");
    /// let request = locks.lock("order:42");
    /// let charged = request.run_detached(async move |_lock| amount.len()).await?;
    /// assert_eq!(charged, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`run`](Self::run).
    ///
    /// # Panics
    ///
    /// If the work panics, or if the caller is not in a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any point. If the lock was not acquired by then, the work does not run.
    pub async fn run_detached<F, Fut>(self, work: F) -> Result<Fut::Output, RunError>
    where
        F: FnOnce(LockHandle) -> Fut + Send + 'static,
        Fut: Future<Output: Send + 'static> + Send + 'static,
    {
        let on_lost = self.options.on_lost.unwrap_or_default();
        let run = async {
            let acquired = async { self.prepare()?.acquire().await }.await;
            let run = async move |acquired: Result<LockGuard, LockError>| {
                run_under(acquired?, on_lost, work).await
            };
            detached::detach(acquired, run).await
        };
        scope::scope(run).await
    }
}

/// Runs the work while the lock is held, and releases the lock.
async fn run_under<F, Fut>(
    guard: LockGuard,
    on_lost: OnLost,
    work: F,
) -> Result<Fut::Output, RunError>
where
    F: FnOnce(LockHandle) -> Fut,
    Fut: Future,
{
    // The task of detached work may begin late.
    guard.check_before_work()?;
    let handle = guard.handle();
    let watch = LossWatcher::new(&handle, on_lost);
    // A lost lock has no release to wait for: dropping the guard cleans up the nodes in the background.
    let output = AbortOnLoss::new(watch, work(handle)).await?;
    guard.release_or_log().await;
    Ok(output)
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("keys", &self.keys)
            .field("options", &self.options)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::SystemClock;
    use crate::{Dialect, HoldError, LockKey, LockManager, LockManagerBuilder, MemoryNode};

    #[tokio::test]
    async fn a_max_hold_of_zero_is_an_invalid_option() {
        let locks = LockManager::in_memory();
        let bounded = |max_hold| locks.lock("a").renew(true).max_hold(max_hold);
        for request in [bounded(Duration::ZERO), locks.lock("a").max_hold(Duration::ZERO)] {
            let error = request.clone().try_acquire().await.unwrap_err();
            assert!(matches!(error, LockError::InvalidOption(_)), "{error:?}");
            assert_eq!(error.to_string(), "max_hold is 0ns, but must be longer than zero");
            let diagnostics = "max_hold is 0ns, but must be longer than zero; lock a";
            assert_eq!(error.diagnostics().to_string(), diagnostics);
            let error = request.fenced(true).acquire().await.unwrap_err();
            assert!(matches!(error, LockError::InvalidOption(_)), "{error:?}");
        }
        let shortest = bounded(Duration::from_nanos(1)).try_acquire().await.unwrap();
        shortest.release().await.unwrap();
    }

    #[tokio::test]
    async fn a_check_finds_the_mistakes_of_an_acquisition_and_acquires_nothing() {
        let locks = LockManager::in_memory();
        for request in [
            locks.lock("a").expire(Duration::ZERO),
            locks.lock("a").shared(true).permits(2),
            locks.lock("redlock:a"),
            locks.lock_all([""; 0]),
        ] {
            let refusal = request.check().unwrap_err().to_string();
            assert_eq!(refusal, request.try_acquire().await.unwrap_err().to_string());
        }
        let request = locks.lock("a");
        request.check().unwrap();
        drop(request.try_acquire().await.unwrap());
    }

    /// Code that was tested with a list of one key must not fail with the first list of two.
    #[tokio::test]
    async fn a_list_of_one_key_is_refused_as_a_list_of_two_is() {
        let locks = LockManager::in_memory();
        let options: [fn(LockRequest) -> LockRequest; 4] = [
            |request| request.fair(true).wait_forever(),
            |request| request.shared(true),
            |request| request.permits(2),
            |request| request.dialect(Dialect::Redisson),
        ];
        for with in options {
            with(locks.lock("a")).check().unwrap();
            let refusal = |keys: &[&str]| with(locks.lock_all(keys)).check().unwrap_err();
            let of_two = refusal(&["a", "b"]).to_string();
            assert!(of_two.contains("list of keys"), "{of_two}");
            for one in [&["a"][..], &["a", "a"]] {
                let refusal = refusal(one);
                assert!(matches!(refusal, LockError::InvalidOption(_)), "{refusal:?}");
                assert_eq!(refusal.to_string(), of_two);
            }
        }
        let guard = locks.lock_all(["a"]).try_acquire().await.unwrap();
        let refusal = guard.downgrade().await.unwrap_err();
        assert!(matches!(refusal, HoldError::InvalidOption(_)), "{refusal:?}");
        guard.release().await.unwrap();
    }

    /// A layer reads the body of a request only if the request may get its lock.
    #[tokio::test]
    async fn a_request_knows_without_the_nodes_whether_it_would_be_refused_now() {
        let locks = LockManager::in_memory();
        let look = |request: LockRequest| match request.prepare() {
            Ok(prepared) => prepared.refusal_at_once(),
            Err(invalid) => Some(invalid),
        };
        assert!(look(locks.lock("a")).is_none());
        let guard = locks.lock("a").try_acquire().await.unwrap();
        assert!(look(locks.lock("a")).is_some_and(|refusal| refusal.is_contended()));
        assert!(look(locks.lock("b")).is_none());
        assert!(look(locks.lock("a").wait_forever()).is_none(), "it would wait");
        drop(guard);
        scope::scope(async {
            let guard = locks.lock("a").try_acquire().await.unwrap();
            let again = look(locks.lock("a").wait_forever());
            assert!(matches!(again, Some(LockError::AlreadyHeld { .. })), "{again:?}");
            assert!(look(locks.lock("a").reentrant(true)).is_none());
            assert!(guard.is_valid(), "looking has released the lock");
        })
        .await;
        let invalid = look(locks.lock(""));
        assert!(matches!(invalid, Some(LockError::InvalidKey(_))), "{invalid:?}");
        drop(locks.drain());
        assert!(matches!(look(locks.lock("b")), Some(LockError::Draining)));
        locks.shutdown().await;
        assert!(matches!(look(locks.lock("b")), Some(LockError::ShutDown)));
    }

    /// Of many routes, the key shows which one has the option.
    #[tokio::test]
    async fn the_error_of_an_option_that_the_manager_lacks_has_the_key() {
        let nodes = [(); 2].map(|()| Arc::new(MemoryNode::new()) as _);
        let locks = LockManagerBuilder::with_nodes(nodes.into(), Arc::new(SystemClock));
        let error = locks.lock("a").permits(3).try_acquire().await.unwrap_err();
        assert_eq!(error.key().map(LockKey::as_str), Some("a"), "{error:?}");
    }

    /// `redlock-axum` computes the `Retry-After` header from the rest of the lease.
    #[tokio::test]
    async fn the_error_of_a_waiter_has_the_rest_of_the_lease_of_a_local_holder() {
        let (locks, minute) = (LockManager::in_memory(), Duration::from_secs(60));
        let _held = locks.lock("a").expire(minute).try_acquire().await.unwrap();
        for wait_time in [Duration::from_millis(5), Duration::ZERO] {
            let error = locks.lock("a").wait_time(wait_time).acquire().await.unwrap_err();
            let LockError::Contended { remaining: Some(remaining), votes, .. } = &error else {
                panic!("{error:?}");
            };
            assert!(votes.is_empty(), "the nodes were asked: {votes}");
            assert!((minute / 2..=minute).contains(remaining), "{remaining:?}");
            let text = error.diagnostics().to_string();
            let begin = "the lock is held by another caller of this process for ";
            assert!(text.starts_with(begin), "{text}");
            let label = locks.owner_label().unwrap();
            assert_eq!(error.holder(), Some(label));
            let end = format!("; lock a; held by {label}; no node was asked");
            assert!(text.ends_with(&end), "{text}");
        }
    }
}
