//! Hooks for the deterministic simulation in `tests/simulation`, behind the feature `unstable-simulation`.
//!
//! They replace the network, the clock and the random pauses of a manager, and let the simulation look
//! inside. They are exempt from semantic versioning: any release may change or remove them. With the
//! feature switched on, a manager that was not connected by [`connect`] behaves as it does without the
//! feature, and the pauses are random on every thread that has not called [`seed`].

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::clock::{Clock, Moment};
use crate::node::redis::Endpoint;
use crate::{ConnectError, LockManager, LockManagerBuilder};

pub use crate::node::redis::scripts;

/// A connection to a simulated server, in place of a socket.
pub trait Stream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin + 'static {}

/// A connection that is being opened.
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Opens connections to one server, in place of the operating system's network.
pub trait Dial: fmt::Debug + Send + Sync + 'static {
    /// Opens a connection.
    fn open(&self) -> Dialing;
}

/// Connects a manager to simulated servers.
///
/// `clock` returns the time since any fixed moment. `dial` is called with the URL of each node.
///
/// # Errors
///
/// Those of [`LockManagerBuilder::connect`].
pub async fn connect(
    builder: LockManagerBuilder,
    clock: impl Fn() -> Duration + Send + Sync + 'static,
    dial: impl Fn(&str) -> Arc<dyn Dial>,
) -> Result<LockManager, ConnectError> {
    let endpoint = |url: &str| Ok(Endpoint::parse(url)?.dialed_by(dial(url)));
    builder.connect_by(Arc::new(Readings(clock)), endpoint).await
}

/// A clock that a function reads.
struct Readings<F>(F);

impl<F: Fn() -> Duration + Send + Sync + 'static> Clock for Readings<F> {
    fn now(&self) -> Moment {
        Moment::default().after((self.0)())
    }
}

impl<F> fmt::Debug for Readings<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readings").finish_non_exhaustive()
    }
}

/// Returns whether no caller of this manager holds a lock or waits for one.
pub fn is_idle(locks: &LockManager) -> bool {
    locks.queues().is_empty()
}

thread_local! {
    static RANDOM: RefCell<Option<SmallRng>> = const { RefCell::new(None) };
}

/// Makes the random pauses of this thread follow from a seed, until the result is dropped.
pub fn seed(seed: u64) -> Seeded {
    RANDOM.set(Some(SmallRng::seed_from_u64(seed)));
    Seeded(())
}

/// Ends the effect of [`seed`] when it is dropped.
#[derive(Debug)]
#[must_use = "the pauses follow from the seed until this is dropped"]
pub struct Seeded(());

impl Drop for Seeded {
    fn drop(&mut self) {
        RANDOM.set(None);
    }
}

/// Calls `draw` with the random numbers of this thread, which are `None` without a [`seed`].
pub(crate) fn with_random<T>(draw: impl FnOnce(Option<&mut SmallRng>) -> T) -> T {
    RANDOM.with_borrow_mut(|random| draw(random.as_mut()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::one_of;

    fn pauses() -> [u64; 8] {
        std::array::from_fn(|_| one_of(0..u64::MAX))
    }

    #[test]
    fn only_the_thread_that_asked_for_it_has_pauses_from_a_seed() {
        let alone = {
            let _seeded = seed(42);
            [pauses(), pauses(), pauses()]
        };
        let seeded = seed(42);
        let first = pauses();
        let elsewhere = std::thread::spawn(pauses).join().unwrap();
        assert_eq!([first, pauses()], alone[..2], "another thread takes nothing from the seed");
        drop(seeded);
        for random in [elsewhere, pauses()] {
            assert!(!alone.contains(&random));
        }
    }

    #[tokio::test]
    async fn a_manager_is_idle_when_it_holds_nothing_and_nobody_waits() {
        let locks = LockManager::in_memory();
        assert!(is_idle(&locks));
        let guard = locks.lock("order:42").acquire().await.unwrap();
        assert!(!is_idle(&locks));
        guard.release().await.unwrap();
        assert!(is_idle(&locks));
    }
}
