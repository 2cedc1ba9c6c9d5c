//! The rules that make Redlock safe. A model can break one of them.
//!
//! A rule counts as necessary only if the checker finds a broken claim in a model that breaks the rule.

use crate::node::{Key, Owner};
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
    /// Each client that shares the lock has an end of its own. If broken: the lease belongs to the key, so that an
    /// extension by one client prolongs the lock of all.
    OwnEndOfEachReader,
    /// A node upgrades a lock only if no other client shares it. If broken: the node does not look.
    UpgradeAlone,
    /// An upgraded lock has a token of its own. If broken: the late downgrade of the lock from before takes the upgraded
    /// lock away.
    TokenOfTheUpgrade,
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

    /// Returns whether a request that was sent for the upgraded lock, or for the one before, concerns a key.
    pub(crate) fn concerns(self, upgraded: bool, key: Key) -> bool {
        key.upgraded == upgraded || !self.keep(Rule::TokenOfTheUpgrade)
    }

    /// Returns whether a clean-up without a key to delete can do no harm, so that the model can drop it.
    pub(crate) fn clean_up_is_harmless(self) -> bool {
        self.keep(Rule::CompareBeforeDelete) && self.keep(Rule::FreshToken)
    }
}
