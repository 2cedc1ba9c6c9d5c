//! How the workers of a run share locks.

use rand::RngExt;
use rand::rngs::SmallRng;
use redlock_core::Dialect;

use super::history::Hold;

/// How the workers of a run share locks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sharing {
    /// Of a hundred callers, the number that ask for an exclusive lock.
    pub(super) writers: u32,
    /// Whether callers also ask for permits, which need a single server.
    pub(super) permits: bool,
    /// Whether holders change the mode of their locks.
    pub(super) changes_modes: bool,
}

impl Sharing {
    /// Returns how the workers share locks on this number of servers.
    pub(super) fn on(servers: usize) -> Self {
        Self { writers: 40, permits: servers == 1, changes_modes: true }
    }

    /// Returns whether and how the workers share locks. Only plain locks can be shared.
    pub(super) fn random(random: &mut SmallRng, dialect: Dialect, servers: usize) -> Option<Self> {
        let shares = dialect == Dialect::Plain && random.random_ratio(3, 4);
        shares.then(|| Self::on(servers))
    }

    /// Returns how the next caller asks for a lock.
    pub(super) fn choose_hold(self, random: &mut SmallRng) -> Hold {
        if random.random_ratio(self.writers, 100) {
            Hold::Exclusive
        } else if self.permits && random.random_ratio(1, 2) {
            Hold::Permit(random.random_range(1..=3))
        } else {
            Hold::Reader
        }
    }
}
