//! The claims that the checker tests, and the situations that must occur.

use stateright::Property;

use crate::client::Phase;
use crate::model::Redlock;
use crate::node::Owner;
use crate::state::State;
use crate::time::LEASE;

/// A property of every state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// At most one client holds the lock with validity left.
    MutualExclusion,
    /// After a node has executed the clean-up of an attempt, the node never has a key of that attempt
    /// again.
    NoOrphan,
    /// No key outlives its lease, not even a key that an abandoned attempt left behind.
    NothingBeyondItsLease,
    /// The fencing number of a lock is greater than every number that was handed out before its
    /// acquisition began.
    GrowingNumber,
}

impl Claim {
    /// All claims.
    pub const ALL: [Self; 4] =
        [Self::MutualExclusion, Self::NoOrphan, Self::NothingBeyondItsLease, Self::GrowingNumber];

    /// Returns the name of the claim in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::MutualExclusion => "mutual exclusion",
            Self::NoOrphan => "no orphan",
            Self::NothingBeyondItsLease => "nothing beyond its lease",
            Self::GrowingNumber => "growing number",
        }
    }

    pub(crate) fn property<const NODES: usize, const CLIENTS: usize>(
        self,
    ) -> Property<Redlock<NODES, CLIENTS>> {
        let condition = match self {
            Self::MutualExclusion => mutual_exclusion,
            Self::NoOrphan => no_orphan,
            Self::NothingBeyondItsLease => nothing_beyond_its_lease,
            Self::GrowingNumber => growing_number,
        };
        Property::always(self.name(), condition)
    }
}

/// Situations that must occur in some state. Without them, a model in which nothing happens would pass.
pub(crate) fn situations<const NODES: usize, const CLIENTS: usize>()
-> [Property<Redlock<NODES, CLIENTS>>; 3] {
    [
        Property::sometimes("the lock is held", |_, state: &State<NODES, CLIENTS>| {
            state.clients.iter().any(|client| client.phase == Phase::Holding)
        }),
        Property::sometimes(
            "a client asks for a lock that another holds",
            |_, state: &State<NODES, CLIENTS>| {
                let is_in = |phase| state.clients.iter().any(|client| client.phase == phase);
                is_in(Phase::Holding) && is_in(Phase::Asking)
            },
        ),
        Property::sometimes(
            "an idle client has left a key behind",
            |_, state: &State<NODES, CLIENTS>| {
                state.sites.iter().any(|site| {
                    site.node.key.is_some_and(|key| {
                        state.clients[usize::from(key.owner.client)].phase == Phase::Idle
                    })
                })
            },
        ),
    ]
}

fn mutual_exclusion<const NODES: usize, const CLIENTS: usize>(
    model: &Redlock<NODES, CLIENTS>,
    state: &State<NODES, CLIENTS>,
) -> bool {
    state.clients.iter().filter(|client| client.believes(model.rules)).count() <= 1
}

fn no_orphan<const NODES: usize, const CLIENTS: usize>(
    _: &Redlock<NODES, CLIENTS>,
    state: &State<NODES, CLIENTS>,
) -> bool {
    !state.sites.iter().any(|site| {
        site.node.key.is_some_and(|key| {
            let Owner { client, attempt } = key.owner;
            site.connections[usize::from(client)].of(attempt).cleaned
        })
    })
}

fn nothing_beyond_its_lease<const NODES: usize, const CLIENTS: usize>(
    _: &Redlock<NODES, CLIENTS>,
    state: &State<NODES, CLIENTS>,
) -> bool {
    state.sites.iter().all(|site| site.node.key.is_none_or(|key| key.age < LEASE))
}

fn growing_number<const NODES: usize, const CLIENTS: usize>(
    model: &Redlock<NODES, CLIENTS>,
    state: &State<NODES, CLIENTS>,
) -> bool {
    !model.world.is_fenced()
        || state.clients.iter().all(|client| {
            client.phase != Phase::Holding || client.number > client.handed_out_before
        })
}
