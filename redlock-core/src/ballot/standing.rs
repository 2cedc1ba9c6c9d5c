//! The holders that stand in the way of a caller, as the refusals of the nodes name them.
//!
//! The model of `tests/model` compiles this file, too.

use smallvec::SmallVec;

use crate::quorum::quorum;

/// The holder of a lock on one node, as its vote shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stand<H> {
    /// The caller has the node.
    Own,
    /// This holder has the node.
    Of(H),
    /// A holder had the node when it refused the caller, and has left it since then.
    Left,
    /// The node refuses the caller, and may hide a holder: it shares the lock, has a foreign key, or does not name the holder.
    Hidden,
    /// The node has failed to vote.
    Failed,
    /// The node has not voted yet.
    Undecided,
}

/// The votes of one round for an acquisition, counted by the holders that the refusals name.
#[derive(Debug)]
pub(crate) struct Standing<H> {
    nodes: usize,
    /// The named holders, each with the number of nodes that it has.
    holders: SmallVec<[(H, usize); 4]>,
    /// Nodes that refuse because a holder has, or had, the lock.
    refused: usize,
    hidden: usize,
    failed: usize,
    undecided: usize,
}

impl<H: Copy + PartialEq> Standing<H> {
    pub(crate) fn of(stands: impl IntoIterator<Item = Stand<H>>) -> Self {
        let (nodes, holders) = (0, SmallVec::new());
        let mut standing = Self { nodes, holders, refused: 0, hidden: 0, failed: 0, undecided: 0 };
        for stand in stands {
            standing.count(stand);
        }
        standing
    }

    fn count(&mut self, stand: Stand<H>) {
        self.nodes += 1;
        match stand {
            Stand::Own => {}
            Stand::Of(holder) => {
                self.refused += 1;
                match self.holders.iter_mut().find(|(other, _)| *other == holder) {
                    Some((_, count)) => *count += 1,
                    None => self.holders.push((holder, 1)),
                }
            }
            Stand::Left => self.refused += 1,
            Stand::Hidden => self.hidden += 1,
            Stand::Failed => self.failed += 1,
            Stand::Undecided => self.undecided += 1,
        }
    }

    /// Returns whether all refusals name their holders, and none of these has a quorum by the votes so far.
    pub(crate) fn is_open(&self) -> bool {
        let quorum = quorum(self.nodes);
        let is_minority = self.holders.iter().all(|(_, count)| *count < quorum);
        self.refused > 0 && self.hidden == 0 && is_minority
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
    fn candidates(&self) -> impl Iterator<Item = H> {
        let missing = quorum(self.nodes).saturating_sub(self.failed);
        self.holders.iter().filter(move |(_, count)| *count >= missing).map(|(holder, _)| *holder)
    }

    /// Returns whether nobody may have the lock, so that the caller asks again. A holder that has a quorum only together with
    /// failed nodes counts as the holder of the lock if the attempt before has met it, too: a caller whose votes were split has
    /// released its nodes by then.
    pub(crate) fn is_worth_repeating(&self, former: Option<&Self>) -> bool {
        let former = former.map_or(&[][..], |former| &former.holders);
        let was_there = |holder| former.iter().any(|(other, _)| *other == holder);
        self.may_be_split() && !self.candidates().any(was_there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the standing of votes, one letter for each node: `g` stands for a grant, an upper-case letter for a holder, `0`
    /// for a holder that has left, `?` for a hidden holder, `f` for a failure, and `-` for a missing vote.
    fn standing(votes: &str) -> Standing<char> {
        Standing::of(votes.chars().map(|letter| match letter {
            'g' => Stand::Own,
            '0' => Stand::Left,
            '?' => Stand::Hidden,
            'f' => Stand::Failed,
            '-' => Stand::Undecided,
            holder => Stand::Of(holder),
        }))
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
            "gff", "AffBf", "ABCff", // A node hides its holder.
            "gA?", "?AB", "gAB?C", "?00", // A vote is missing.
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
        let is_repeated =
            |former, votes| standing(votes).is_worth_repeating(Some(&standing(former)));
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
            ("", "g?f", false),
            ("", "", false),
        ] {
            assert_eq!(is_repeated(former, votes), expected, "{former} {votes}");
        }
    }
}
