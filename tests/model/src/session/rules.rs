//! The rules that make the lock safe. A model can break one of them.

/// A rule that the library keeps. "If broken" says how a model breaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A grant counts only if the evidence shows that the session outlives the lease. If broken: an answered request
    /// holds for its lease, which is half of the session timeout.
    Evidence,
    /// A grant counts only for the session in which it was asked for. If broken: the evidence about a new session also counts for
    /// the former one.
    EvidenceOfTheSameSession,
    /// A client asks a server for its limit in a session of its own, and does not continue its session at a server that allows
    /// only a shorter one. If broken: the client learns of the limit when the server has shortened the session.
    LimitBeforeTheSession,
    /// A chain of beats ends if a reply arrives more than 3R/8 after the sending of the beat before it, with R = T/4. If
    /// broken: a chain has gaps of any length.
    ChainWithoutGaps,
    /// A chain that has lasted for R proves that the leader has heard of the session R before its last beat. If broken: it
    /// proves this for the moment of its last beat.
    AgeOfTheChain,
    /// A client lists the queue after it has created its child, and is granted the lock only if its child is the first. If
    /// broken: a list from before the creation decides.
    ListAfterTheCreation,
    /// The fencing number is that of the last change of the queue in the deciding list (`pzxid`). If broken: it is that of the
    /// creation of the child (`czxid`).
    NumberOfTheQueue,
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

    pub(super) fn keep(self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }
}
