//! Keeps a server from granting locks after a restart or a forward step of its wall clock.
//!
//! A server that restarts without its data has forgotten the held locks. It could complete a second quorum
//! for one of them. A forward step of its wall clock has the same effect, because the server regards the
//! leases as over. According to the Redis documentation ("Distributed locks with Redis", "delayed
//! restarts"), such a server stays away until every lease that it may have granted has run out. Here the
//! clients enforce this delay.
//!
//! A quarantined server receives no command that sets a lock, neither for a new holder nor to restore a
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
//! no locks needs no proof. If the lock is still held at the end of the quarantine, it is restored then.
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

/// The time after a restart or a clock step during which a server grants no locks: the longest lease. After a
/// promotion, the failover margin is added.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quarantine {
    length: Duration,
    /// The time at which the restart, clock step or promotion was at least `age` ago.
    measured_at: Instant,
    age: Duration,
    cause: Cause,
}

#[derive(Debug, Clone, Copy)]
enum Cause {
    Restarted {
        /// Whether the server reports its uptime.
        uptime_known: bool,
    },
    ClockStepped {
        by: Duration,
    },
    Promoted {
        /// The time during which the former master may still grant locks.
        margin: Duration,
    },
}

/// Decides which votes of a server count.
///
/// Every operation checks this, and most servers are not quarantined, so the checks first read a flag.
#[derive(Debug, Default)]
pub(crate) struct VoteGate {
    is_active: AtomicBool,
    quarantines: Mutex<Quarantines>,
}

/// The quarantines of one server.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Quarantines {
    /// The quarantine that ends last.
    last: Option<Quarantine>,
    /// The last promotion. Another quarantine may end later.
    promotion: Option<Quarantine>,
}

impl VoteGate {
    /// Quarantines the server, unless a quarantine that ends later is already in effect.
    pub(crate) fn start(&self, quarantine: Quarantine) {
        self.start_all(Quarantines::from(quarantine));
    }

    /// Starts the quarantines of another server.
    pub(crate) fn start_all(&self, quarantines: Quarantines) {
        let mut kept = self.quarantines.lock();
        kept.add(quarantines);
        self.is_active.store(kept.last.is_some(), Ordering::Release);
    }

    /// Returns the quarantines of the server.
    pub(crate) fn quarantines(&self) -> Quarantines {
        *self.quarantines.lock()
    }

    /// Returns an error as long as the server may have forgotten a lock that is still held.
    pub(crate) fn check(&self) -> Result<(), NodeError> {
        if !self.is_active.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut kept = self.quarantines.lock();
        kept.check()?;
        *kept = Quarantines::default();
        self.is_active.store(false, Ordering::Release);
        Ok(())
    }

    /// Returns an error as long as another server may grant a lock although this server extends it.
    pub(crate) fn check_extension(&self) -> Result<(), NodeError> {
        if !self.is_active.load(Ordering::Acquire) {
            return Ok(());
        }
        self.quarantines.lock().promotion.as_ref().map_or(Ok(()), Quarantine::check_extension)
    }
}

impl Quarantines {
    /// Adds quarantines. Of two quarantines of the same kind, the one that ends later stays.
    pub(crate) fn add(&mut self, others: Self) {
        let last = |a: Option<Quarantine>, b: Option<Quarantine>| {
            a.into_iter().chain(b).max_by_key(Quarantine::remaining)
        };
        self.last = last(others.last, self.last);
        self.promotion = last(others.promotion, self.promotion);
    }

    /// Returns an error as long as the server may have forgotten a lock that is still held.
    pub(crate) fn check(&self) -> Result<(), NodeError> {
        self.last.as_ref().map_or(Ok(()), Quarantine::check)
    }
}

impl From<Quarantine> for Quarantines {
    fn from(quarantine: Quarantine) -> Self {
        let is_promotion = matches!(quarantine.cause, Cause::Promoted { .. });
        Self { last: Some(quarantine), promotion: is_promotion.then_some(quarantine) }
    }
}

impl Quarantine {
    /// Creates the quarantine of a server that reported `uptime` over a connection that was made at
    /// `connected_at`.
    ///
    /// A server that does not report its uptime counts as old as its connection, because a connection
    /// belongs to one incarnation of a server.
    pub(crate) fn new(
        longest_lease: Duration,
        connected_at: Instant,
        uptime: Option<Duration>,
    ) -> Self {
        let age = uptime.unwrap_or_default().saturating_sub(ROUNDING);
        let cause = Cause::Restarted { uptime_known: uptime.is_some() };
        Self { length: longest_lease, measured_at: connected_at, age, cause }
    }

    /// Creates the quarantine of a server whose wall clock was stepped forward, as detected just now.
    pub(crate) fn after_clock_step(longest_lease: Duration, by: Duration) -> Self {
        let cause = Cause::ClockStepped { by };
        Self { length: longest_lease, measured_at: Instant::now(), age: Duration::ZERO, cause }
    }

    /// Creates the quarantine of a server that was promoted to master at `since` or earlier. The former
    /// master may still grant locks until the `margin` is over.
    pub(crate) fn after_promotion(
        longest_lease: Duration,
        margin: Duration,
        since: Instant,
    ) -> Self {
        let length = longest_lease.saturating_add(margin);
        let cause = Cause::Promoted { margin };
        Self { length, measured_at: since, age: Duration::ZERO, cause }
    }

    /// Limits the age to the time since `ended`, when the connection to the previous incarnation broke. The
    /// reported uptime may be longer if the server's wall clock was corrected after its start, as happens
    /// while a machine boots.
    pub(crate) fn not_before(mut self, ended: Instant) -> Self {
        self.age = self.age.min(self.measured_at.saturating_duration_since(ended));
        self
    }

    /// Returns an error as long as the server may have forgotten a lock that is still held.
    pub(crate) fn check(&self) -> Result<(), NodeError> {
        let age = self.age();
        let votes_in = self.length.saturating_sub(age);
        if votes_in.is_zero() {
            return Ok(());
        }
        Err(match self.cause {
            Cause::Restarted { uptime_known } => {
                NodeError::Restarted { ago: uptime_known.then_some(age), votes_in }
            }
            Cause::ClockStepped { by } => NodeError::ClockStepped { by, votes_in },
            Cause::Promoted { .. } => NodeError::Promoted { ago: age, votes_in },
        })
    }

    /// Returns an error as long as another server may grant a lock although this server extends it.
    fn check_extension(&self) -> Result<(), NodeError> {
        let Cause::Promoted { margin } = self.cause else { return Ok(()) };
        let ago = self.age();
        let votes_in = margin.saturating_sub(ago);
        if votes_in.is_zero() { Ok(()) } else { Err(NodeError::Promoted { ago, votes_in }) }
    }

    fn age(&self) -> Duration {
        self.age.saturating_add(self.measured_at.elapsed())
    }

    fn remaining(&self) -> Duration {
        self.length.saturating_sub(self.age())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LEASE: Duration = Duration::from_secs(30);

    fn votes_in(quarantine: Quarantine) -> Duration {
        match quarantine.check() {
            Ok(()) => Duration::ZERO,
            Err(NodeError::Restarted { votes_in, .. }) => votes_in,
            Err(error) => panic!("{error}"),
        }
    }

    /// Uptimes are whole seconds: a server that started at 0.9 s reports ten seconds at 10.0 s, and
    /// is little more than nine seconds old.
    #[tokio::test(start_paused = true)]
    async fn a_server_votes_when_it_is_certainly_older_than_the_longest_lease() {
        let quarantine = Quarantine::new(LEASE, Instant::now(), Some(10 * SECOND));
        assert_eq!(votes_in(quarantine), 21 * SECOND);
        advance(20 * SECOND + Duration::from_millis(999)).await;
        assert_eq!(votes_in(quarantine), Duration::from_millis(1));
        advance(Duration::from_millis(1)).await;
        assert_eq!(quarantine.check(), Ok(()));

        let old = Quarantine::new(LEASE, Instant::now(), Some(31 * SECOND));
        assert_eq!(old.check(), Ok(()));
        let new = Quarantine::new(LEASE, Instant::now(), Some(Duration::ZERO));
        assert_eq!(votes_in(new), LEASE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_with_unknown_uptime_is_as_old_as_its_connection() {
        let quarantine = Quarantine::new(LEASE, Instant::now(), None);
        assert_eq!(votes_in(quarantine), LEASE);
        advance(LEASE).await;
        assert_eq!(quarantine.check(), Ok(()));
    }

    /// The machine of the server started with a wrong clock, which was set right later.
    #[tokio::test(start_paused = true)]
    async fn a_server_is_not_older_than_the_end_of_its_previous_incarnation() {
        let ended = Instant::now();
        advance(5 * SECOND).await;
        let stepped = Quarantine::new(LEASE, Instant::now(), Some(86_400 * SECOND));
        assert_eq!(stepped.check(), Ok(()));
        assert_eq!(votes_in(stepped.not_before(ended)), 25 * SECOND);
        let truthful = Quarantine::new(LEASE, Instant::now(), Some(3 * SECOND));
        assert_eq!(
            votes_in(truthful.not_before(ended)),
            28 * SECOND,
            "the server started some time after that end"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_reason_has_the_age_and_the_remaining_time() {
        let quarantine = Quarantine::new(LEASE, Instant::now(), Some(4 * SECOND));
        advance(Duration::from_millis(100)).await;
        let words = quarantine.check().unwrap_err().to_string();
        assert_eq!(words, "restarted 3s ago, votes again in 27s");
        let unknown = Quarantine::new(LEASE, Instant::now(), None);
        advance(Duration::from_millis(29_750)).await;
        let words = unknown.check().unwrap_err().to_string();
        assert_eq!(words, "uptime unknown (INFO denied), votes in 250ms");
        let stepped = Quarantine::after_clock_step(LEASE, Duration::from_millis(59_400));
        advance(Duration::from_millis(500)).await;
        let words = stepped.check().unwrap_err().to_string();
        assert_eq!(words, "wall clock stepped forward by 60s, votes again in 30s");
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_quarantines_the_one_that_ends_last_counts() {
        let gate = VoteGate::default();
        assert_eq!(gate.check(), Ok(()));
        gate.start(Quarantine::new(LEASE, Instant::now(), Some(21 * SECOND)));
        assert!(matches!(gate.check(), Err(NodeError::Restarted { .. })));
        let stepped = Quarantine::after_clock_step(LEASE, SECOND);
        gate.start(stepped);
        gate.start(Quarantine::new(LEASE, Instant::now(), Some(11 * SECOND)));
        assert_eq!(gate.check(), stepped.check());
        advance(LEASE).await;
        assert_eq!(gate.check(), Ok(()));
        gate.start(Quarantine::after_clock_step(LEASE, SECOND));
        assert!(gate.check().is_err(), "a later quarantine counts");
    }

    #[tokio::test(start_paused = true)]
    async fn a_promoted_server_extends_after_the_margin_and_grants_after_the_longest_lease_too() {
        let (gate, promoted) = (VoteGate::default(), Instant::now());
        assert_eq!(gate.check_extension(), Ok(()));
        advance(SECOND).await;
        gate.start(Quarantine::after_promotion(LEASE, 5 * SECOND, promoted));
        let words =
            [gate.check(), gate.check_extension()].map(|check| check.unwrap_err().to_string());
        assert_eq!(words, ["promoted 1s ago, votes in 34s", "promoted 1s ago, votes in 4s"]);
        // A clock step ends later, but does not end the margin earlier.
        gate.start(Quarantine::after_clock_step(2 * LEASE, SECOND));
        assert!(matches!(gate.check(), Err(NodeError::ClockStepped { .. })));
        assert!(gate.check_extension().is_err());
        advance(4 * SECOND).await;
        assert_eq!(gate.check_extension(), Ok(()));
        assert!(gate.check().is_err());

        let gate = VoteGate::default();
        gate.start(Quarantine::after_promotion(LEASE, 5 * SECOND, promoted));
        advance(LEASE).await;
        assert_eq!(gate.check(), Ok(()), "35 s after the promotion");
        assert_eq!(gate.check_extension(), Ok(()));
    }
}
