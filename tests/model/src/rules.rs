//! The rules that make Redlock safe. A model can break one of them.
//!
//! A rule counts as necessary only if the checker finds a broken claim in a model that breaks the rule.

use crate::node::Owner;
use crate::quorum::quorum;
use crate::time;

/// A rule that the library keeps. "If broken" says how a model breaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Every attempt has a token of its own. If broken: a client uses one token for all its attempts.
    FreshToken,
    /// The validity counts from before the first byte was sent. If broken: it counts from the last reply.
    ValidityFromTheStart,
    /// The validity is shorter than the lease by a margin for clocks that do not run alike. If broken: the
    /// validity is the whole lease.
    Margin,
    /// A majority of the configured nodes decides. If broken: a majority of the nodes that the client can
    /// reach decides.
    QuorumOfAll,
    /// A clean-up deletes the key only if its owner sent the clean-up. If broken: it deletes any key.
    CompareBeforeDelete,
    /// The clean-up follows its SET on the same connection. If broken: the clean-up uses another
    /// connection, where it can overtake the SET.
    CleanUpBehindItsSet,
    /// One command sets the key and its time to live. If broken: the client sends SETNX, and sends EXPIRE
    /// after the node has said yes.
    LeaseWithTheKey,
    /// A restarted node does not vote at first. If broken: it votes at once.
    RestartDelay,
    /// A restarted node does not vote until the longest lease has run out. If broken: it votes a tick
    /// earlier.
    WholeLeaseOfRestartDelay,
    /// A fencing number is written back to a majority before the lock is handed out. If broken: the number
    /// is the maximum of the counters, and is not written back.
    NumberWrittenBack,
    /// A node lets no client share a lock that another client holds exclusively. If broken: the node does not look.
    NoReaderBesideAWriter,
    /// A node grants no exclusive lock while clients share the lock. If broken: the node does not look.
    NoWriterBesideReaders,
    /// Each client that shares the lock has an entry of its own. If broken: all have one entry, so that an extension by one
    /// client prolongs the lock of all, and a release by one client ends it.
    EntryOfEachReader,
    /// A shared key lives until its last entry ends. If broken: it ends with the first entry.
    KeyUntilTheLastEnd,
    /// A client that asks again counts its validity from its first request, because a node that granted that request says
    /// yes again without a new lease. If broken: the validity counts from the second request.
    ValidityFromTheFirstRequest,
    /// A holder counts as a reader before it asks for the downgrade. If broken: it counts as exclusive until it leaves.
    ReaderBeforeTheDowngrade,
    /// A downgrade shares the key only if its owner sent the downgrade. If broken: it turns any exclusive key
    /// into an entry of its sender.
    CompareBeforeDowngrade,
    /// If a node has missed a downgrade, an extension and a release concern the client's exclusive key. If broken: they
    /// look for an entry only.
    OwnKeyIsAnEntry,
}

/// The rules that a model keeps: all of them, or all but one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    broken: Option<Rule>,
}

impl Rules {
    /// All rules, as the library keeps them.
    pub const KEPT: Self = Self { broken: None };

    /// Returns all rules but this one.
    pub const fn without(rule: Rule) -> Self {
        Self { broken: Some(rule) }
    }

    pub(crate) fn keep(self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    /// Returns whether a lease that was asked for `age` ticks ago is still valid for its holder.
    pub(crate) fn is_valid(self, age: u8) -> bool {
        if self.keep(Rule::Margin) {
            time::is_valid(age)
        } else {
            time::is_valid_without_margin(age)
        }
    }

    /// Returns how many nodes must agree.
    pub(crate) fn quorum(self, configured: usize, unreachable: usize) -> usize {
        if self.keep(Rule::QuorumOfAll) {
            quorum(configured)
        } else {
            quorum(configured - unreachable)
        }
    }

    /// Returns whether a node that was started `uptime` ticks ago votes.
    pub(crate) fn may_vote(self, uptime: u8) -> bool {
        if !self.keep(Rule::RestartDelay) {
            true
        } else if !self.keep(Rule::WholeLeaseOfRestartDelay) {
            uptime >= time::LEASE - 1
        } else {
            uptime >= time::LEASE
        }
    }

    /// Returns whether two attempts have the same token.
    pub(crate) fn is_same_token(self, one: Owner, other: Owner) -> bool {
        one.client == other.client && (one.attempt == other.attempt || !self.keep(Rule::FreshToken))
    }

    /// Returns whether a message can do no harm to the keys of other attempts, so that the model can drop it if the key of
    /// its own attempt is gone.
    pub(crate) fn late_messages_are_harmless(self) -> bool {
        let rules = [Rule::CompareBeforeDelete, Rule::CompareBeforeDowngrade, Rule::FreshToken];
        rules.into_iter().all(|rule| self.keep(rule))
    }
}
