//! What may happen to the nodes and clients.

/// How far the clocks are off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clocks {
    /// All run alike.
    Alike,
    /// Those of the nodes run apart from those of the clients by up to the margin, in either
    /// direction.
    NodesDrift,
    /// Those of the clients run apart from those of the nodes by up to the margin.
    ClientsDrift,
    /// Both do, so that together they exceed the margin: more than the library promises to bear.
    BothDrift,
    /// No time passes: for what goes wrong within a moment.
    Stopped,
    /// There is no bound: a node's clock may be set forward at any time, a client may sleep past
    /// its lease. More than any lease bears; a fencing number must.
    Unbounded,
}

/// What a crash does to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restarts {
    /// No node crashes.
    Never,
    /// It comes back with all that it knew.
    Remembering,
    /// It comes back empty.
    Forgetting,
}

/// What may happen. Everywhere, messages are delayed, lost and overtake each other, and clients give
/// up or release at any moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct World {
    /// How far the clocks are off.
    pub clocks: Clocks,
    /// What a crash does to a node.
    pub restarts: Restarts,
    /// Whether a client may try again while messages and keys of its former attempt are still
    /// there. In the whole world one former attempt at a time.
    pub retries: bool,
    /// Whether a holder may extend its lease.
    pub renewals: bool,
    /// Whether the lock comes with a fencing number, and how high it may rise before the checker
    /// looks no further.
    pub fencing: Option<u8>,
}

impl World {
    /// Nothing goes wrong but on the network.
    pub const CALM: Self = Self {
        clocks: Clocks::Alike,
        restarts: Restarts::Never,
        retries: false,
        renewals: false,
        fencing: None,
    };
}

impl World {
    pub(crate) fn is_fenced(self) -> bool {
        self.fencing.is_some()
    }

    pub(crate) fn nodes_drift(self) -> bool {
        matches!(self.clocks, Clocks::NodesDrift | Clocks::BothDrift)
    }

    pub(crate) fn clients_drift(self) -> bool {
        matches!(self.clocks, Clocks::ClientsDrift | Clocks::BothDrift)
    }

    /// Whether there is time that passes for all.
    pub(crate) fn has_time(self) -> bool {
        !matches!(self.clocks, Clocks::Stopped | Clocks::Unbounded)
    }

    /// Whether a key may run out at any moment.
    pub(crate) fn sets_clocks(self) -> bool {
        self.clocks == Clocks::Unbounded
    }
}
