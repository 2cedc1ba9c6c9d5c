//! The holders that stand in the way of a caller, as the refusals of the nodes name them.

use smallvec::SmallVec;

use crate::error::{LockError, Vote};
use crate::lock::HolderId;
use crate::quorum::quorum;

/// The votes of one round for an acquisition, counted by the holders that the refusals name.
///
/// A node that has released the lock after its refusal has no holder. Every other refusal without a name, and a foreign key,
/// may hide a holder.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    nodes: usize,
    /// The named holders, each with the number of nodes that it has.
    holders: SmallVec<[(HolderId, usize); 4]>,
    /// Nodes that refuse because a holder has, or had, the lock.
    refused: usize,
    /// Nodes that may hide a holder.
    unnamed: usize,
    failed: usize,
    undecided: usize,
}

impl Standing {
    pub(crate) fn of<'v>(votes: impl Iterator<Item = Option<&'v Vote>>) -> Self {
        let mut standing = Self::default();
        for vote in votes {
            standing.count(vote);
        }
        standing
    }

    /// Returns the standing at the end of an acquisition that was refused.
    pub(crate) fn of_refusal(refused: &LockError) -> Self {
        match refused {
            LockError::Contended { votes, .. } | LockError::Split { votes, .. } => {
                Self::of(votes.iter().map(|(_, vote)| vote))
            }
            _ => Self::default(),
        }
    }

    fn count(&mut self, vote: Option<&Vote>) {
        self.nodes += 1;
        match vote {
            None => self.undecided += 1,
            Some(Vote::Granted) => {}
            Some(Vote::Failed(_)) => self.failed += 1,
            Some(Vote::NotHeld | Vote::Foreign { .. }) => self.unnamed += 1,
            Some(Vote::Held { holder: Some(holder), .. }) => {
                self.refused += 1;
                match self.holders.iter_mut().find(|(other, _)| other == holder) {
                    Some((_, count)) => *count += 1,
                    None => self.holders.push((*holder, 1)),
                }
            }
            Some(Vote::Held { holder: None, remaining }) => {
                self.refused += 1;
                self.unnamed += usize::from(remaining.is_none_or(|remaining| !remaining.is_zero()));
            }
        }
    }

    /// Returns whether all refusals name their holders, and none of these has a quorum by the votes so far.
    pub(crate) fn is_open(&self) -> bool {
        let quorum = quorum(self.nodes);
        let has_quorum = |(_, count): &(HolderId, usize)| *count >= quorum;
        self.refused > 0 && self.unnamed == 0 && !self.holders.iter().any(has_quorum)
    }

    /// Returns whether the votes are split: all nodes have voted or failed, and neither the caller nor any holder can have a
    /// quorum.
    pub(crate) fn is_split(&self) -> bool {
        self.may_be_split() && self.candidates().next().is_none()
    }

    /// Returns whether the votes are split, unless a holder has nodes that have failed to vote. Another attempt can get a
    /// quorum if it is alone.
    pub(crate) fn may_be_split(&self) -> bool {
        self.undecided == 0 && self.is_open() && self.nodes - self.failed >= quorum(self.nodes)
    }

    /// Returns the holders that have a quorum if they also have the nodes that have failed.
    fn candidates(&self) -> impl Iterator<Item = HolderId> {
        let missing = quorum(self.nodes).saturating_sub(self.failed);
        self.holders.iter().filter(move |(_, count)| *count >= missing).map(|(holder, _)| *holder)
    }

    /// Returns whether nobody may have the lock, so that the caller asks again. A holder that may have nodes that have failed
    /// to vote is taken for one if it is still there since the attempt before: callers whose votes are split have left by then.
    pub(crate) fn is_worth_repeating(&self, former: &Self) -> bool {
        let was_there = |holder| former.holders.iter().any(|(other, _)| *other == holder);
        self.may_be_split() && !self.candidates().any(was_there)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::{ForeignKind, NodeError};

    /// Returns the standing of votes, one letter for each node: `g` is granted, an upper-case letter a holder, `r` readers,
    /// `0` a lock that was released after the refusal, `x` a foreign key, `f` a failure, and `-` no vote.
    fn standing(votes: &str) -> Standing {
        let votes: Vec<_> = votes.chars().map(vote).collect();
        Standing::of(votes.iter().map(Option::as_ref))
    }

    fn vote(letter: char) -> Option<Vote> {
        let remaining = Some(Duration::from_secs(3));
        Some(match letter {
            'g' => Vote::Granted,
            'r' => Vote::held(remaining),
            '?' => Vote::held(None),
            '0' => Vote::held(Some(Duration::ZERO)),
            'x' => Vote::foreign(ForeignKind::WrongType),
            'n' => Vote::NotHeld,
            'f' => Vote::Failed(NodeError::NoReply(Duration::from_millis(50))),
            '-' => return None,
            holder => Vote::held_by(HolderId::of(&holder.to_string()), remaining),
        })
    }

    #[test]
    fn votes_are_split_if_nobody_can_have_a_quorum() {
        for votes in [
            "gAB", "ABC", "gA", "AB", "gAABB", "ABCDE", "ggABC", "gABCf", "g0A", "000", "0AB",
            "AABB", "ggAA",
        ] {
            assert!(standing(votes).is_split(), "{votes}");
        }
    }

    #[test]
    fn votes_are_not_split_if_a_holder_may_have_a_quorum() {
        let cases = [
            // A holder has a quorum, or has one with the nodes that have failed.
            "AAg", "AAB", "gAf", "ABf", "AAABC", "AABBf", "AAgBf", "gABff",
            // There is no quorum.
            "gff", "AffBf", "ABCff",
            // Readers, holders of permits, and nodes that name nobody.
            "gAr", "ArB", "gA?", "?AB", "gABrC", "gAx", "gAn", // A vote is missing.
            "AB-", "gA-", "AABB-", // Nobody refuses.
            "ggf", "g-f",
        ];
        for votes in cases {
            assert!(!standing(votes).is_split(), "{votes}");
        }
    }

    /// Another attempt shows whether a holder stays.
    #[test]
    fn a_holder_that_may_have_failed_nodes_has_the_lock_if_it_stays() {
        let is_repeated = |former, votes| standing(votes).is_worth_repeating(&standing(former));
        for (former, votes, expected) in [
            ("", "gAf", true),
            ("gAf", "gBf", true),
            ("gAf", "gAf", false),
            ("gAf", "Agf", false),
            ("gAf", "ABf", false),
            ("gAB", "gAB", true),
            ("", "gABff", true),
            ("gABff", "gCDff", true),
            ("gABff", "gCBff", false),
            ("", "AAf", false),
            ("", "gff", false),
            ("", "grf", false),
            ("", "", false),
        ] {
            assert_eq!(is_repeated(former, votes), expected, "{former} {votes}");
        }
    }
}
