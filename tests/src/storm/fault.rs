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
    /// A node is killed, and started again without its data at once. Not covered by any promise.
    RestartAtOnce,
    /// A node is killed, and started again with all that it had answered.
    RestartWithData,
    /// A node forgets everything (FLUSHALL), and grants nothing until the longest lease is over.
    Forget,
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
    /// A node denies the commands that locks need (ACL).
    Forbid,
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
    /// Those under which the promises hold.
    pub const COVERED: [Self; 21] = [
        Self::Restart,
        Self::RestartWithData,
        Self::Forget,
        Self::Freeze,
        Self::Stutter,
        Self::Pause,
        Self::Busy,
        Self::Disconnect,
        Self::FlushScripts,
        Self::OutOfMemory,
        Self::Demote,
        Self::Forbid,
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

    /// What it strikes.
    pub fn target(self) -> Target {
        match self {
            Self::Restart
            | Self::RestartAtOnce
            | Self::RestartWithData
            | Self::Forget
            | Self::Freeze
            | Self::Stutter
            | Self::Pause
            | Self::Busy
            | Self::Disconnect
            | Self::FlushScripts
            | Self::OutOfMemory
            | Self::Demote
            | Self::Forbid => Target::Nodes,
            Self::StopClient | Self::KillClient => Target::Clients,
            Self::Silence
            | Self::Cut
            | Self::LoseRequests
            | Self::LoseReplies
            | Self::Delay
            | Self::Tear
            | Self::Overtake => Target::Ways,
        }
    }

    /// Whether no question that is asked on a way meanwhile is answered in time.
    pub(super) fn cuts_off(self) -> bool {
        matches!(self, Self::Silence | Self::Cut | Self::LoseRequests | Self::LoseReplies)
    }

    /// Whether a node loses its locks by it, and is held back until the longest lease is over.
    pub(super) fn forgets(self) -> bool {
        matches!(self, Self::Restart | Self::Forget)
    }

    /// Whether a node that it strikes, or whose way it strikes, keeps out of the votes for that long.
    pub(super) fn silences(self) -> bool {
        match self {
            Self::Restart
            | Self::RestartWithData
            | Self::Forget
            | Self::Freeze
            | Self::Pause
            | Self::Busy
            | Self::OutOfMemory
            | Self::Demote
            | Self::Forbid
            | Self::Silence
            | Self::Cut
            | Self::LoseRequests
            | Self::LoseReplies
            | Self::Overtake => true,
            Self::RestartAtOnce
            | Self::Stutter
            | Self::Disconnect
            | Self::FlushScripts
            | Self::StopClient
            | Self::KillClient
            | Self::Delay
            | Self::Tear => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Restart => "restart without data, held back",
            Self::RestartAtOnce => "restart without data, at once",
            Self::RestartWithData => "restart with data",
            Self::Forget => "FLUSHALL, no grants for a lease",
            Self::Freeze => "SIGSTOP of a node",
            Self::Stutter => "slow node",
            Self::Pause => "CLIENT PAUSE",
            Self::Busy => "endless script",
            Self::Disconnect => "CLIENT KILL",
            Self::FlushScripts => "SCRIPT FLUSH",
            Self::OutOfMemory => "out of memory",
            Self::Demote => "failover to read-only",
            Self::Forbid => "ACL denies",
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
