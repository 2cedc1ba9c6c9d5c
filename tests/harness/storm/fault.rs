//! The faults of a storm.

/// The kind of target of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Nodes.
    Nodes,
    /// Clients.
    Clients,
    /// Network links, each from one client to one node.
    Links,
}

/// The effect of a strike on each of its targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A node is killed, and restarted without its data after the longest lease.
    Restart,
    /// A node is killed, and restarted at once without its data. Covered by the restart guard.
    RestartAtOnce,
    /// A node is killed, and restarted with all data that it had acknowledged.
    RestartWithData,
    /// A node loses its power, and with it the data that had not reached the disk. It is restarted after the
    /// longest lease.
    PowerCut,
    /// As [`PowerCut`](Self::PowerCut), but restarted at once. Covered by the restart guard.
    PowerCutAtOnce,
    /// A node is killed, and restarted with so much data that loading takes a while.
    Loading,
    /// A node loses all data (`FLUSHALL`), and grants no lock for the longest lease.
    Forget,
    /// A node evicts all of its keys because its memory is full. No promise covers this.
    Evict,
    /// A node's process is stopped (SIGSTOP) for a while.
    Freeze,
    /// A node's process is stopped for ten milliseconds again and again.
    Stutter,
    /// A node delays every command (`CLIENT PAUSE`).
    Pause,
    /// A node runs an endless script, until the script is killed.
    Busy,
    /// A node closes every connection (`CLIENT KILL`).
    Disconnect,
    /// A node loses its cached scripts (`SCRIPT FLUSH`) again and again.
    FlushScripts,
    /// A node has no memory left for new keys.
    OutOfMemory,
    /// A node becomes a replica, which refuses writes.
    Demote,
    /// A node becomes a replica without a connection to its master, and refuses every command.
    MasterDown,
    /// A node requires replicas for its writes (`min-replicas-to-write`), and has none.
    NoReplicas,
    /// A node cannot save its data, and refuses writes for that reason.
    Misconfigured,
    /// A node denies the commands that locks need (ACL).
    Forbid,
    /// The password of the clients' user changes on a node, and the user's connections are closed.
    WrongPassword,
    /// The clients' user is deleted on a node, which closes their connections.
    DeleteUser,
    /// A node has reached its limit of clients: it closes every connection, and accepts no new one.
    TooManyClients,
    /// Keys with the names of locks exist on a node but are not locks: without a time to live, of
    /// another type, or with a time to live longer than any lease. The clients must not change or remove
    /// these keys.
    ForeignKey,
    /// A node's wall clock is set forward while no client is connected to it, so that leases end early there.
    /// Covered by the restart guard.
    StepForward,
    /// A node's wall clock is set back, so that leases end late there.
    StepBack,
    /// A client is stopped (SIGSTOP), briefly or for longer than its leases.
    StopClient,
    /// A client is killed (SIGKILL), and a new one replaces it.
    KillClient,
    /// A link holds back all data in both directions, until the fault is over.
    Silence,
    /// A link's connections are reset. New connections get no reply until the fault is over.
    Cut,
    /// Requests on a link never arrive.
    LoseRequests,
    /// Requests on a link arrive, but their replies never do.
    LoseReplies,
    /// A link delays all data, by a large part of the lease and of the timeout for votes.
    Delay,
    /// A link's connections are reset within a message.
    Tear,
    /// Requests on a link arrive after their connection has ended, and after requests over the next
    /// connection.
    Overtake,
    /// The master of a group or of a part of a cluster is killed, and restarted when another server is promoted.
    KillMaster,
    /// The master of a group or of a part of a cluster is stopped (SIGSTOP) until another server is promoted.
    FreezeMaster,
    /// Another server of a group or of a part of a cluster is promoted, while the master lives.
    FailOver,
    /// A sentinel is killed and restarted.
    KillSentinel,
    /// A slot of a cluster moves to another master.
    MoveSlot,
}

impl Fault {
    /// The faults under which the promises hold, except [`REFUSALS`](Self::REFUSALS).
    pub const COVERED: [Self; 29] = [
        Self::Restart,
        Self::RestartWithData,
        Self::PowerCut,
        Self::Loading,
        Self::Forget,
        Self::Freeze,
        Self::Stutter,
        Self::Pause,
        Self::Busy,
        Self::Disconnect,
        Self::FlushScripts,
        Self::OutOfMemory,
        Self::Demote,
        Self::MasterDown,
        Self::NoReplicas,
        Self::Misconfigured,
        Self::Forbid,
        Self::TooManyClients,
        Self::ForeignKey,
        Self::StepBack,
        Self::StopClient,
        Self::KillClient,
        Self::Silence,
        Self::Cut,
        Self::LoseRequests,
        Self::LoseReplies,
        Self::Delay,
        Self::Tear,
        Self::Overtake,
    ];

    /// More faults under which the promises hold: the node refuses the client's credentials, and the client
    /// does not reconnect to the node for some seconds.
    pub const REFUSALS: [Self; 2] = [Self::WrongPassword, Self::DeleteUser];

    /// The faults under which the promises hold only if every client has the restart guard.
    pub const GUARDED: [Self; 3] = [Self::RestartAtOnce, Self::PowerCutAtOnce, Self::StepForward];

    /// The names and the faults of nodes over other stores, see [`NodeKind::Postgres`](super::NodeKind::Postgres).
    pub(super) const STORES: [(&'static str, &'static [Self]); 5] = [
        ("postgres", &[Self::Freeze, Self::RestartWithData]),
        ("postgres", &[Self::Freeze, Self::RestartWithData]),
        ("postgres", &[Self::Freeze, Self::RestartWithData]),
        ("redis", &[Self::Freeze]),
        ("redis", &[Self::Freeze]),
    ];

    /// The names and the faults of the nodes of a [mixed](super::NodeKind::Mixed) storm.
    pub const MIXED: [(&'static str, &'static [Self]); 3] = [
        ("server", &[Self::RestartAtOnce, Self::Freeze, Self::Disconnect, Self::FlushScripts]),
        (
            "group",
            &[
                Self::KillMaster,
                Self::FreezeMaster,
                Self::FailOver,
                Self::KillSentinel,
                Self::Disconnect,
            ],
        ),
        ("cluster", &[Self::KillMaster, Self::FreezeMaster, Self::FailOver, Self::MoveSlot]),
    ];

    /// Returns the faults of random storms. With the guard, the storm need not keep restarted nodes away
    /// until the longest lease is over. It replaces no clients then, because a new client cannot detect
    /// a clock step that happened before it connected.
    pub(super) fn of_random_storms(restart_guard: bool) -> Vec<Self> {
        let covered = Self::COVERED.into_iter();
        if !restart_guard {
            return covered.collect();
        }
        let excluded = [Self::Restart, Self::PowerCut, Self::KillClient];
        covered.filter(|fault| !excluded.contains(fault)).chain(Self::GUARDED).collect()
    }

    /// Returns the kind of target of the fault.
    pub fn target(self) -> Target {
        match self {
            Self::StopClient | Self::KillClient => Target::Clients,
            Self::Silence
            | Self::Cut
            | Self::LoseRequests
            | Self::LoseReplies
            | Self::Delay
            | Self::Tear
            | Self::Overtake => Target::Links,
            _ => Target::Nodes,
        }
    }

    /// Returns whether no request on the link is answered while the fault lasts.
    pub(super) fn cuts_off(self) -> bool {
        matches!(self, Self::Silence | Self::Cut | Self::LoseRequests | Self::LoseReplies)
    }

    /// Returns whether the node loses its locks, and the storm keeps it from voting for the longest lease.
    pub(super) fn forgets(self) -> bool {
        matches!(self, Self::Restart | Self::PowerCut | Self::Forget)
    }

    /// Returns whether clients with the restart guard ignore the votes of the struck node for the
    /// longest lease (quarantine).
    pub(super) fn quarantines(self) -> bool {
        let restarts =
            matches!(self, Self::Restart | Self::RestartWithData | Self::PowerCut | Self::Loading);
        restarts || Self::GUARDED.contains(&self)
    }

    /// Returns whether the struck node, or the node of the struck link, does not vote while the fault lasts.
    pub(super) fn prevents_votes(self) -> bool {
        !matches!(
            self,
            Self::RestartAtOnce
                | Self::PowerCutAtOnce
                | Self::Evict
                | Self::Stutter
                | Self::Disconnect
                | Self::FlushScripts
                | Self::StepBack
                | Self::StopClient
                | Self::KillClient
                | Self::Delay
                | Self::Tear
        )
    }
}
