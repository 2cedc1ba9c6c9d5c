//! What can go wrong.

use std::fmt;

/// What a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Nodes.
    Nodes,
    /// Clients.
    Clients,
    /// Ways from a client to a node.
    Ways,
}

/// What a strike does to each of its targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A node is killed, and started again without its data when the longest lease is over.
    Restart,
    /// A node is killed, and started again without its data at once. Covered by the restart
    /// guard.
    RestartAtOnce,
    /// A node is killed, and started again with all that it had answered.
    RestartWithData,
    /// A node loses its power and what it had not written to its disk yet, and is started again when
    /// the longest lease is over.
    PowerCut,
    /// As [`PowerCut`](Self::PowerCut), and started again at once. Covered by the restart guard.
    PowerCutAtOnce,
    /// A node is killed, and started again with so much data that it takes a while to load it.
    Loading,
    /// A node forgets everything (FLUSHALL), and grants nothing until the longest lease is over.
    Forget,
    /// A node evicts all of its keys, for want of memory. Not covered by any promise.
    Evict,
    /// A node is stopped (SIGSTOP) for a while.
    Freeze,
    /// A node is stopped for ten milliseconds again and again.
    Stutter,
    /// A node delays every command (CLIENT PAUSE).
    Pause,
    /// A node runs a script that does not end, until it is killed.
    Busy,
    /// A node closes every connection (CLIENT KILL).
    Disconnect,
    /// A node forgets its scripts (SCRIPT FLUSH) again and again.
    FlushScripts,
    /// A node has no memory left for new keys.
    OutOfMemory,
    /// A node becomes a replica, which cannot be written to.
    Demote,
    /// A node becomes a replica that has lost its master, and answers nothing without it.
    MasterDown,
    /// A node wants replicas that acknowledge its writes, and has none.
    NoReplicas,
    /// A node cannot save its data, and takes no writes for that.
    Misconfigured,
    /// A node denies the commands that locks need (ACL).
    Forbid,
    /// A node's password becomes another one, and every connection is closed.
    WrongPassword,
    /// The clients' user is deleted on a node, which closes their connections.
    DeleteUser,
    /// A node has as many clients as it wants: it closes every connection, and takes no new one.
    TooManyClients,
    /// Something that is no lock stands at the locks' names on a node: without an end, of another
    /// type, or for longer than any lease. It must still be there when this is over.
    ForeignKey,
    /// A node's wall clock is set forward while nobody is connected to it: leases end early there.
    /// Covered by the restart guard.
    StepForward,
    /// A node's wall clock is set back: leases end late there.
    StepBack,
    /// A client is stopped (SIGSTOP), shortly or past its leases.
    StopClient,
    /// A client is killed (SIGKILL), and another one takes its place.
    KillClient,
    /// All that is said on a way, by both sides, arrives when this is over.
    Silence,
    /// A way's connections are reset, and new ones lead nowhere until this is over.
    Cut,
    /// What clients say on a way never arrives.
    LoseRequests,
    /// What clients say on a way arrives, and the answers never do.
    LoseReplies,
    /// All that is said on a way comes late: by a good part of the lease, and of the time for votes.
    Delay,
    /// A way's connections are reset in the middle of a message.
    Tear,
    /// What clients say on a way arrives after their connection has ended, and after what they have
    /// said over the next one.
    Overtake,
}

impl Fault {
    /// Those under which the promises hold, but for [`REFUSALS`](Self::REFUSALS).
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

    /// Those under which they hold too, and after which a client keeps away from the node for some
    /// seconds, because it was told that it is not wanted.
    pub const REFUSALS: [Self; 2] = [Self::WrongPassword, Self::DeleteUser];

    /// Those under which the promises hold where every client has the restart guard.
    pub const GUARDED: [Self; 3] = [Self::RestartAtOnce, Self::PowerCutAtOnce, Self::StepForward];

    /// What random storms are made of. With the guard, nobody has to hold a node back. Clients are
    /// not replaced then: a new one cannot know that a clock was set before it came.
    pub(super) fn of_random_storms(restart_guard: bool) -> Vec<Self> {
        let covered = Self::COVERED.into_iter();
        if !restart_guard {
            return covered.collect();
        }
        let left_out = [Self::Restart, Self::PowerCut, Self::KillClient];
        covered.filter(|fault| !left_out.contains(fault)).chain(Self::GUARDED).collect()
    }

    /// What it strikes.
    pub fn target(self) -> Target {
        match self {
            Self::StopClient | Self::KillClient => Target::Clients,
            Self::Silence
            | Self::Cut
            | Self::LoseRequests
            | Self::LoseReplies
            | Self::Delay
            | Self::Tear
            | Self::Overtake => Target::Ways,
            _ => Target::Nodes,
        }
    }

    /// Whether no question that is asked on a way meanwhile is answered in time.
    pub(super) fn cuts_off(self) -> bool {
        matches!(self, Self::Silence | Self::Cut | Self::LoseRequests | Self::LoseReplies)
    }

    /// Whether a node loses locks by it, and is held back until the longest lease is over.
    pub(super) fn forgets(self) -> bool {
        matches!(self, Self::Restart | Self::PowerCut | Self::Forget)
    }

    /// Whether clients with the restart guard take no votes of a node that it strikes until the longest
    /// lease is over.
    pub(super) fn puts_on_probation(self) -> bool {
        let restarts =
            matches!(self, Self::Restart | Self::RestartWithData | Self::PowerCut | Self::Loading);
        restarts || Self::GUARDED.contains(&self)
    }

    /// Whether a node that it strikes, or whose way it strikes, keeps out of the votes for that long.
    pub(super) fn silences(self) -> bool {
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

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Restart => "restart without data, held back",
            Self::RestartAtOnce => "restart without data, at once",
            Self::RestartWithData => "restart with data",
            Self::PowerCut => "power cut, held back",
            Self::PowerCutAtOnce => "power cut, back at once",
            Self::Loading => "restart with much to load",
            Self::Forget => "FLUSHALL, no grants for a lease",
            Self::Evict => "eviction",
            Self::Freeze => "SIGSTOP of a node",
            Self::Stutter => "slow node",
            Self::Pause => "CLIENT PAUSE",
            Self::Busy => "endless script",
            Self::Disconnect => "CLIENT KILL",
            Self::FlushScripts => "SCRIPT FLUSH",
            Self::OutOfMemory => "out of memory",
            Self::Demote => "failover to read-only",
            Self::MasterDown => "replica without its master",
            Self::NoReplicas => "master without its replicas",
            Self::Misconfigured => "snapshots fail",
            Self::Forbid => "ACL denies",
            Self::WrongPassword => "password changed",
            Self::DeleteUser => "user deleted",
            Self::TooManyClients => "too many clients",
            Self::ForeignKey => "foreign keys",
            Self::StepForward => "clock set forward",
            Self::StepBack => "clock set back",
            Self::StopClient => "SIGSTOP of a client",
            Self::KillClient => "SIGKILL of a client",
            Self::Silence => "silence on the network",
            Self::Cut => "connections cut",
            Self::LoseRequests => "requests lost",
            Self::LoseReplies => "replies lost",
            Self::Delay => "slow network",
            Self::Tear => "messages torn",
            Self::Overtake => "requests that outlive their connection",
        })
    }
}
