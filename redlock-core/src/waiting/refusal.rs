//! The meaning of a failed acquisition for a waiter.

use super::machine::WaitRefusal;
use crate::ballot::Standing;
use crate::error::{LockError, NodeError, Vote, Votes};
use crate::lock::LockSpec;
use crate::quorum::quorum;

impl WaitRefusal {
    pub(super) fn of(error: &LockError, spec: &LockSpec, is_endless: bool) -> Self {
        match error {
            _ if is_outage(error) => Self::no_quorum(error),
            // Slow nodes do not end a wait for ever either.
            LockError::TimedOut { .. } if is_endless => Self::no_quorum(error),
            LockError::Contended { key, remaining, votes, .. } if votes.is_empty() => {
                let remaining = remaining.unwrap_or_default();
                Self::HeldHere { key: spec.index_of(key), remaining }
            }
            LockError::Contended { key, remaining, votes, .. } => {
                let is_split = is_split(error, votes);
                Self::Held { key: spec.index_of(key), remaining: *remaining, is_split }
            }
            LockError::Split { key, votes } => {
                let is_split = is_split(error, votes);
                Self::Held { key: spec.index_of(key), remaining: None, is_split }
            }
            _ => Self::Final,
        }
    }

    fn no_quorum(error: &LockError) -> Self {
        Self::NoQuorum { is_transient: error.votes().is_none_or(is_transient) }
    }
}

/// Returns whether an acquisition failed because no quorum of nodes answered. This includes an acquisition
/// whose lease was over before the nodes could count as silent.
fn is_outage(error: &LockError) -> bool {
    match error {
        LockError::Unavailable { .. } => true,
        LockError::TimedOut { votes, .. } => {
            let answers =
                votes.iter().filter(|(_, vote)| !matches!(vote, None | Some(Vote::Failed(_))));
            answers.count() < quorum(votes.len())
        }
        _ => false,
    }
}

/// Returns whether the votes are split, or may be: several callers may have got votes, although nodes do not name the holders
/// that they have.
fn is_split(error: &LockError, votes: &Votes) -> bool {
    let any = |is: fn(&Vote) -> bool| votes.iter().any(|(_, vote)| vote.is_some_and(is));
    Standing::of_refusal(error).is_some_and(|standing| standing.may_be_split())
        || any(|vote| *vote == Vote::Agreed)
            && any(|vote| matches!(vote, Vote::Held { holder: None, .. }))
}

/// Returns whether the nodes may answer soon. A missing permission, or a server that is configured twice,
/// does not change while a caller waits.
fn is_transient(votes: &Votes) -> bool {
    let lasting = votes.iter().filter(|(_, vote)| {
        matches!(vote, Some(Vote::Failed(NodeError::NotPermitted(_) | NodeError::SameServer(_))))
    });
    lasting.count() + quorum(votes.len()) <= votes.len()
}
