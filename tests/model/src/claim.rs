//! The claims that the checker tests, and the situations that must occur.

use stateright::Property;

use crate::client::{Hold, Phase};
use crate::model::Redlock;
use crate::network::Attempt;
use crate::node::Owner;
use crate::state::State;
use crate::time::LEASE;
use crate::world::Sharing;

/// A property of every state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// A client that holds the exclusive lock with validity left is the only client that holds the lock.
    MutualExclusion,
    /// No more clients share the lock than there are permits.
    NoMoreThanPermits,
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
    pub const ALL: [Self; 5] = [
        Self::MutualExclusion,
        Self::NoMoreThanPermits,
        Self::NoOrphan,
        Self::NothingBeyondItsLease,
        Self::GrowingNumber,
    ];

    /// Returns the name of the claim in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::MutualExclusion => "mutual exclusion",
            Self::NoMoreThanPermits => "no more than permits",
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
            Self::NoMoreThanPermits => no_more_than_permits,
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

/// A situation that must occur if clients share the lock.
pub(crate) fn shared_situation<const NODES: usize, const CLIENTS: usize>()
-> Property<Redlock<NODES, CLIENTS>> {
    Property::sometimes("two clients share the lock", |model, state: &State<NODES, CLIENTS>| {
        state.clients.iter().filter(|client| client.believes(model.rules)).count() > 1
    })
}

fn mutual_exclusion<const NODES: usize, const CLIENTS: usize>(
    model: &Redlock<NODES, CLIENTS>,
    state: &State<NODES, CLIENTS>,
) -> bool {
    let holders = || state.clients.iter().filter(|client| client.believes(model.rules));
    holders().count() <= 1 || holders().all(|client| client.hold == Hold::Shared)
}

fn no_more_than_permits<const NODES: usize, const CLIENTS: usize>(
    model: &Redlock<NODES, CLIENTS>,
    state: &State<NODES, CLIENTS>,
) -> bool {
    let Sharing::Permits(permits) = model.world.sharing else { return true };
    let holders = state.clients.iter().filter(|client| client.believes(model.rules));
    holders.count() <= usize::from(permits)
}

fn no_orphan<const NODES: usize, const CLIENTS: usize>(
    _: &Redlock<NODES, CLIENTS>,
    state: &State<NODES, CLIENTS>,
) -> bool {
    !state.sites.iter().any(|site| {
        let is_orphan = |owner: Owner| {
            let Owner { client, attempt } = owner;
            site.connections[usize::from(client)].of(attempt).cleaned
        };
        let readers = (0..CLIENTS).map(|client| Owner::new(client, Attempt::Present));
        site.node.key.is_some_and(|key| is_orphan(key.owner))
            || readers.filter(|reader| site.has_reader(*reader)).any(is_orphan)
    })
}

fn nothing_beyond_its_lease<const NODES: usize, const CLIENTS: usize>(
    _: &Redlock<NODES, CLIENTS>,
    state: &State<NODES, CLIENTS>,
) -> bool {
    state.sites.iter().all(|site| {
        site.node.key.is_none_or(|key| key.age < LEASE)
            && site.readers.iter().flatten().all(|age| *age < LEASE)
    })
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
