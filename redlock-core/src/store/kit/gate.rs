//! Keeps a server from granting locks after a restart or a forward step of its wall clock.
//!
//! The gate belongs to the server and outlives its connections.
//!
//! A server that restarts without its data has forgotten the held locks. It could complete a second quorum
//! for one of them. A forward step of its wall clock has the same effect, because the server regards the
//! leases as over. According to the Redis documentation ("Distributed locks with Redis", "delayed
//! restarts"), such a server stays away until every lease that it may have granted has run out. Here the
//! clients enforce this delay.
//!
//! A server with a closed gate receives no command that sets a lock, neither for a new holder nor to restore a
//! forgotten lock. It still receives extensions and releases:
//!
//! * The server's vote on an extension counts. The server compares the token, so a grant proves that it
//!   stores the lock of this holder, and it denies the lock to others from now on. Other locks that the
//!   server has forgotten do not matter. If the server has forgotten this lock, it does not grant the
//!   extension.
//! * A release removes the lock from a server that has kept its data.
//!
//! It would be safe to restore a forgotten lock while a quorum confirms it: no other caller can hold the lock
//! at that time. But the proof would depend on the time at which the quorum was asked. A server that sets
//! no locks needs no proof. If the lock is still held when the gate opens, it is restored then.
//!
//! A server that was promoted from replica to master may also have forgotten locks, because replication is
//! asynchronous. In addition, the former master may still run. It grants and extends locks until it notices
//! that it has lost its replicas, which takes at most the failover margin. So two rules are stricter after a
//! promotion:
//!
//! * The server grants no locks for the longest lease **and** the margin: the former master may have granted
//!   a lock at the end of the margin.
//! * The server's vote on an extension counts only after the margin. Earlier, the lease may end on the former
//!   master, which then grants the lock to another caller. The server extends the lock nevertheless, so that it
//!   still has the lock when the margin is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::NodeError;

/// The uncertainty of an uptime: the server computes it as the difference of two times in whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);

/// Decides which votes of a server count.
///
/// Every operation checks the gate, and most servers have an open one, so the checks first read a flag.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_closed: AtomicBool,
    state: Mutex<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    closures: Closures,
    /// The reason why it is open whether the server is still the master of its Sentinel group.
    dispute: Option<NodeError>,
}

/// The closures of a gate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Closures {
    /// While it lasts, the server grants no locks.
    grants: Option<Closure>,
    /// While it lasts, the server's extensions do not count.
    extensions: Option<Closure>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Closure {
    until: Instant,
    /// The time from the restart, clock step or promotion to the end.
    length: Duration,
    cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Restarted {
        /// Whether the server reports its uptime.
        uptime_known: bool,
    },
    ClockStepped {
        by: Duration,
    },
    Promoted,
}

impl Gate {
    /// Closes the gate. If two closures have the same kind, the later end counts.
    pub(crate) fn close(&self, closures: Closures) {
        let mut state = self.state.lock();
        let later = |a: Option<Closure>, b| a.into_iter().chain(b).max_by_key(|one| one.until);
        let kept = &mut state.closures;
        kept.grants = later(closures.grants, kept.grants);
        kept.extensions = later(closures.extensions, kept.extensions);
        self.publish(&state);
    }

    /// Closes the gate for grants as long as the sentinels disagree about the master.
    pub(crate) fn dispute(&self, reason: Option<NodeError>) {
        let mut state = self.state.lock();
        state.dispute = reason;
        self.publish(&state);
    }

    pub(crate) fn closures(&self) -> Closures {
        self.state.lock().closures
    }

    /// Returns an error as long as the server may have forgotten a lock that is still held.
    pub(crate) fn check_grants(&self) -> Result<(), NodeError> {
        if !self.is_closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.closures.check_grants()?;
        state.closures = Closures::default();
        self.publish(&state);
        state.dispute.clone().map_or(Ok(()), Err)
    }

    /// Returns an error as long as another server may grant a lock although this server extends it.
    pub(crate) fn check_extensions(&self) -> Result<(), NodeError> {
        if !self.is_closed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.state.lock().closures.extensions.map_or(Ok(()), |closure| closure.check())
    }

    fn publish(&self, state: &GateState) {
        let is_closed = state.closures.grants.is_some() || state.dispute.is_some();
        self.is_closed.store(is_closed, Ordering::Release);
    }
}

impl Closures {
    /// Returns the closure of a server that reports `uptime` now. If its former incarnation was connected until `ended`,
    /// the server is not older than that: the reported uptime may be longer if the server's wall clock was corrected after
    /// its start, as happens while a machine boots.
    ///
    /// A server that does not report its uptime counts as started now: a connection belongs to one incarnation.
    pub(crate) fn after_restart(
        longest_lease: Duration,
        uptime: Option<Duration>,
        ended: Option<Instant>,
    ) -> Self {
        let mut age = uptime.unwrap_or_default().saturating_sub(ROUNDING);
        if let Some(ended) = ended {
            age = age.min(ended.elapsed());
        }
        let until = Instant::now() + longest_lease.saturating_sub(age);
        let cause = Cause::Restarted { uptime_known: uptime.is_some() };
        let closure = Closure { until, length: longest_lease, cause };
        Self { grants: Some(closure), extensions: None }
    }

    /// Returns the closure of a server whose wall clock was stepped forward, as detected just now.
    pub(crate) fn after_clock_step(longest_lease: Duration, by: Duration) -> Self {
        let until = Instant::now() + longest_lease;
        let closure = Closure { until, length: longest_lease, cause: Cause::ClockStepped { by } };
        Self { grants: Some(closure), extensions: None }
    }

    /// Returns the closures of a server that was promoted to master at `since` or earlier. The former master may still
    /// grant locks until the `margin` is over.
    pub(crate) fn after_promotion(
        longest_lease: Duration,
        margin: Duration,
        since: Instant,
    ) -> Self {
        let closure = |length| Closure { until: since + length, length, cause: Cause::Promoted };
        Self {
            grants: Some(closure(longest_lease.saturating_add(margin))),
            extensions: Some(closure(margin)),
        }
    }

    /// Returns an error as long as the server may have forgotten a lock that is still held.
    pub(crate) fn check_grants(&self) -> Result<(), NodeError> {
        self.grants.map_or(Ok(()), |closure| closure.check())
    }
}

impl Closure {
    /// Returns an error until the end.
    fn check(&self) -> Result<(), NodeError> {
        let votes_in = self.until.saturating_duration_since(Instant::now());
        if votes_in.is_zero() {
            return Ok(());
        }
        let ago = self.length.saturating_sub(votes_in);
        Err(match self.cause {
            Cause::Restarted { uptime_known } => {
                NodeError::Restarted { ago: uptime_known.then_some(ago), votes_in }
            }
            Cause::ClockStepped { by } => NodeError::ClockStepped { by, votes_in },
            Cause::Promoted => NodeError::Promoted { ago, votes_in },
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LEASE: Duration = Duration::from_secs(30);

    fn votes_in(closures: Closures) -> Duration {
        match closures.check_grants() {
            Ok(()) => Duration::ZERO,
            Err(NodeError::Restarted { votes_in, .. }) => votes_in,
            Err(error) => panic!("{error}"),
        }
    }

    /// Uptimes are whole seconds: a server that started at 0.9 s reports ten seconds at 10.0 s, and
    /// is little more than nine seconds old.
    #[tokio::test(start_paused = true)]
    async fn a_server_votes_when_it_is_certainly_older_than_the_longest_lease() {
        let restarted = |uptime| Closures::after_restart(LEASE, Some(uptime), None);
        let closures = restarted(10 * SECOND);
        assert_eq!(votes_in(closures), 21 * SECOND);
        advance(20 * SECOND + Duration::from_millis(999)).await;
        assert_eq!(votes_in(closures), Duration::from_millis(1));
        advance(Duration::from_millis(1)).await;
        assert_eq!(closures.check_grants(), Ok(()));
        assert_eq!(restarted(31 * SECOND).check_grants(), Ok(()));
        assert_eq!(votes_in(restarted(Duration::ZERO)), LEASE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_with_unknown_uptime_is_as_old_as_its_connection() {
        let closures = Closures::after_restart(LEASE, None, None);
        assert_eq!(votes_in(closures), LEASE);
        advance(LEASE).await;
        assert_eq!(closures.check_grants(), Ok(()));
    }

    /// The machine of the server started with a wrong clock, which was set right later.
    #[tokio::test(start_paused = true)]
    async fn a_server_is_not_older_than_the_end_of_its_previous_incarnation() {
        let ended = Instant::now();
        advance(5 * SECOND).await;
        let restarted =
            |uptime, ended| votes_in(Closures::after_restart(LEASE, Some(uptime), ended));
        assert_eq!(restarted(86_400 * SECOND, None), Duration::ZERO);
        assert_eq!(restarted(86_400 * SECOND, Some(ended)), 25 * SECOND);
        let truthful = restarted(3 * SECOND, Some(ended));
        assert_eq!(truthful, 28 * SECOND, "the server started some time after that end");
    }

    #[tokio::test(start_paused = true)]
    async fn the_reason_has_the_age_and_the_remaining_time() {
        let words = |closures: Closures| closures.check_grants().unwrap_err().to_string();
        let restarted = Closures::after_restart(LEASE, Some(4 * SECOND), None);
        advance(Duration::from_millis(100)).await;
        assert_eq!(words(restarted), "restarted 3s ago, votes again in 27s");
        let unknown = Closures::after_restart(LEASE, None, None);
        advance(Duration::from_millis(29_750)).await;
        assert_eq!(words(unknown), "uptime unknown (INFO denied), votes in 250ms");
        let stepped = Closures::after_clock_step(LEASE, Duration::from_millis(59_400));
        advance(Duration::from_millis(500)).await;
        assert_eq!(words(stepped), "wall clock stepped forward by 60s, votes again in 30s");
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_closures_the_one_that_ends_last_counts() {
        let gate = Gate::default();
        assert_eq!(gate.check_grants(), Ok(()));
        gate.close(Closures::after_restart(LEASE, Some(10 * SECOND), None));
        assert!(matches!(gate.check_grants(), Err(NodeError::Restarted { .. })));
        let stepped = Closures::after_clock_step(LEASE, SECOND);
        gate.close(stepped);
        gate.close(Closures::after_restart(LEASE, Some(20 * SECOND), None));
        assert_eq!(gate.check_grants(), stepped.check_grants());
        advance(LEASE).await;
        assert_eq!(gate.check_grants(), Ok(()));
        gate.close(Closures::after_clock_step(LEASE, SECOND));
        assert!(gate.check_grants().is_err(), "a later closure counts");
    }

    #[test]
    fn a_dispute_about_the_master_stops_grants_and_not_extensions() {
        let gate = Gate::default();
        gate.dispute(Some(NodeError::Disputed("one names another".into())));
        assert!(matches!(gate.check_grants(), Err(NodeError::Disputed(_))));
        assert!(gate.check_grants().is_err(), "until it is decided");
        assert_eq!(gate.check_extensions(), Ok(()));
        gate.dispute(None);
        assert_eq!(gate.check_grants(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_promoted_server_extends_after_the_margin_and_grants_after_the_longest_lease_too() {
        let (gate, promoted) = (Gate::default(), Instant::now());
        assert_eq!(gate.check_extensions(), Ok(()));
        advance(SECOND).await;
        gate.close(Closures::after_promotion(LEASE, 5 * SECOND, promoted));
        let words = [gate.check_grants(), gate.check_extensions()];
        let words = words.map(|check| check.unwrap_err().to_string());
        assert_eq!(words, ["promoted 1s ago, votes in 34s", "promoted 1s ago, votes in 4s"]);
        // A clock step ends later, but does not end the margin earlier.
        gate.close(Closures::after_clock_step(2 * LEASE, SECOND));
        assert!(matches!(gate.check_grants(), Err(NodeError::ClockStepped { .. })));
        assert!(gate.check_extensions().is_err());
        advance(4 * SECOND).await;
        assert_eq!(gate.check_extensions(), Ok(()));
        assert!(gate.check_grants().is_err());
        let gate = Gate::default();
        gate.close(Closures::after_promotion(LEASE, 5 * SECOND, promoted));
        advance(LEASE).await;
        assert_eq!(gate.check_grants(), Ok(()), "35 s after the promotion");
        assert_eq!(gate.check_extensions(), Ok(()));
    }
}
