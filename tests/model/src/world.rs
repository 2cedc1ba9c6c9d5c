//! The faults that may happen to nodes and clients.

/// How far the clocks run apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clocks {
    /// All clocks run alike.
    Alike,
    /// The clocks of the nodes run apart from those of the clients by up to the margin, in either
    /// direction.
    NodesDrift,
    /// The clocks of the clients run apart from those of the nodes by up to the margin.
    ClientsDrift,
    /// The clocks of nodes and clients both run apart by up to the margin. Together they exceed the margin,
    /// which is more than the library promises to bear.
    BothDrift,
    /// No time passes: for faults that happen within a moment.
    Stopped,
    /// Clocks run apart without a bound: a node's clock may be set forward at any time, and a client may
    /// sleep past its lease. No lease bears that, but a fencing number has to.
    Unbounded,
}

/// Whether nodes crash, and whether they come back with their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restarts {
    /// No node crashes.
    Never,
    /// A node comes back with its key and its counter.
    Remembering,
    /// A node comes back empty.
    Forgetting,
}

/// Whether clients share the lock. If they do, they try again only when nothing of their former attempt is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Every holder is exclusive.
    None,
    /// Clients also share the lock, as the readers of a read-write lock. An exclusive attempt may ask a second time, and
    /// an exclusive holder may downgrade its lock.
    Readers,
    /// Clients also share the lock, at most this number at a time.
    Permits(u8),
}

/// The faults that may happen. In every world, messages are delayed, are lost and overtake each other, and
/// clients release or give up at any moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct World {
    /// How far the clocks run apart.
    pub clocks: Clocks,
    /// Whether nodes crash, and whether they come back with their memory.
    pub restarts: Restarts,
    /// Whether a client may try again while messages or keys of its former attempt are left. The model
    /// allows one former attempt at a time, of all clients together.
    pub retries: bool,
    /// Whether a holder may extend its lease.
    pub renewals: bool,
    /// The highest fencing number that the checker follows; `None` if locks have no fencing number.
    pub fencing: Option<u8>,
    /// Whether clients share the lock.
    pub sharing: Sharing,
}

impl World {
    /// Only the network fails.
    pub const CALM: Self = Self {
        clocks: Clocks::Alike,
        restarts: Restarts::Never,
        retries: false,
        renewals: false,
        fencing: None,
        sharing: Sharing::None,
    };
}

impl World {
    pub(crate) fn is_fenced(self) -> bool {
        self.fencing.is_some()
    }

    pub(crate) fn is_shared(self) -> bool {
        self.sharing != Sharing::None
    }

    pub(crate) fn nodes_drift(self) -> bool {
        matches!(self.clocks, Clocks::NodesDrift | Clocks::BothDrift)
    }

    pub(crate) fn clients_drift(self) -> bool {
        matches!(self.clocks, Clocks::ClientsDrift | Clocks::BothDrift)
    }

    /// Returns whether there are ticks that pass for all clocks.
    pub(crate) fn has_time(self) -> bool {
        !matches!(self.clocks, Clocks::Stopped | Clocks::Unbounded)
    }

    /// Returns whether a key may expire at any moment, because its node's clock is set forward.
    pub(crate) fn sets_clocks(self) -> bool {
        self.clocks == Clocks::Unbounded
    }
}
