//! The rules that make Redlock safe, each of which can be broken.
//!
//! A rule is only believed to matter once the checker has shown what happens without it: the model
//! with one rule broken is the "broken twin" of the one that keeps all of them.

use crate::node::Owner;
use crate::quorum::quorum;
use crate::time;

/// What the library does, and its twin does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Every attempt has a token of its own. The twin uses one token again and again.
    FreshToken,
    /// The validity counts from before the first byte was sent. The twin counts from the last
    /// reply.
    ValidityFromTheStart,
    /// The validity is shorter than the lease by a margin for clocks that do not run alike. The
    /// twin believes in the whole lease.
    Margin,
    /// A majority of the configured nodes decides. The twin counts those that it can reach.
    QuorumOfAll,
    /// Only the owner's token is deleted. The twin deletes whatever is there.
    CompareBeforeDelete,
    /// The clean-up follows its SET on the same connection. The twin sends it on another, where it
    /// can overtake.
    CleanUpBehindItsSet,
    /// The key and its time to live are set by one command. The twin sends SETNX, and EXPIRE when
    /// it was granted.
    LeaseWithTheKey,
    /// A node that was restarted does not vote. The twin lets it vote at once.
    RestartDelay,
    /// ... and not before the longest lease has run out. The twin waits a tick less.
    WholeLeaseOfRestartDelay,
    /// A fencing number is written back to a majority before the lock is handed out. The twin takes
    /// the maximum of the counters as it is.
    NumberWrittenBack,
}

/// All rules, but perhaps one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    broken: Option<Rule>,
}

impl Rules {
    /// The rules as the library keeps them.
    pub const KEPT: Self = Self { broken: None };

    /// The twin that breaks one rule.
    pub const fn without(rule: Rule) -> Self {
        Self { broken: Some(rule) }
    }

    pub(crate) fn keep(self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    /// Whether the holder of a lease believes in it.
    pub(crate) fn is_valid(self, age: u8) -> bool {
        if self.keep(Rule::Margin) {
            time::is_valid(age)
        } else {
            time::is_valid_without_margin(age)
        }
    }

    /// How many nodes must agree.
    pub(crate) fn quorum(self, configured: usize, unreachable: usize) -> usize {
        if self.keep(Rule::QuorumOfAll) {
            quorum(configured)
        } else {
            quorum(configured - unreachable)
        }
    }

    /// Whether a node votes that was started `uptime` ticks ago.
    pub(crate) fn may_vote(self, uptime: u8) -> bool {
        if !self.keep(Rule::RestartDelay) {
            true
        } else if !self.keep(Rule::WholeLeaseOfRestartDelay) {
            uptime >= time::LEASE - 1
        } else {
            uptime >= time::LEASE
        }
    }

    /// Whether two attempts have the same token.
    pub(crate) fn is_same_token(self, one: Owner, other: Owner) -> bool {
        one.client == other.client && (one.attempt == other.attempt || !self.keep(Rule::FreshToken))
    }

    /// Whether a clean-up that finds nothing to clean can never do harm, so that the model need not
    /// follow it any further.
    pub(crate) fn clean_up_is_harmless(self) -> bool {
        self.keep(Rule::CompareBeforeDelete) && self.keep(Rule::FreshToken)
    }
}
