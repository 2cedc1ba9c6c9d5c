//! The count of the votes, and what it means.

use std::time::Duration;

use super::quorum::quorum;
use crate::error::{NodeError, Vote};

/// The votes of one round, one place for each configured node.
#[derive(Debug)]
pub(crate) struct Tally {
    votes: Vec<Option<Vote>>,
    granted: usize,
    /// Nodes that said no: held by another, gone, foreign.
    denied: usize,
    /// Nodes that gave no vote.
    failed: usize,
}

/// What a round has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A quorum said yes.
    Carried,
    /// No quorum can say yes any more, or did in time.
    Rejected,
}

impl Tally {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { votes: vec![None; nodes], granted: 0, denied: 0, failed: 0 }
    }

    /// The majority of the configured nodes, whether they can be reached or not.
    pub(crate) fn quorum(&self) -> usize {
        quorum(self.votes.len())
    }

    /// How many nodes must fail to grant so that no quorum can be had: as soon as that many have
    /// not granted, there is nothing left to wait for.
    fn blocking(&self) -> usize {
        self.votes.len() - self.quorum() + 1
    }

    pub(crate) fn count(&mut self, index: usize, vote: Vote) {
        let counter = match &vote {
            Vote::Granted => &mut self.granted,
            Vote::Held { .. } | Vote::Gone | Vote::Foreign { .. } => &mut self.denied,
            Vote::Failed(_) => &mut self.failed,
        };
        *counter += 1;
        self.votes[index] = Some(vote);
    }

    /// Counts those that have not answered as failed.
    pub(crate) fn close(&mut self, waited: Duration) {
        for vote in self.votes.iter_mut().filter(|vote| vote.is_none()) {
            *vote = Some(Vote::Failed(NodeError::NoAnswer(waited)));
            self.failed += 1;
        }
    }

    pub(crate) fn verdict(&self) -> Option<Verdict> {
        if self.granted >= self.quorum() {
            Some(Verdict::Carried)
        } else if self.denied + self.failed >= self.blocking() {
            Some(Verdict::Rejected)
        } else {
            None
        }
    }

    /// Whether the nodes that said no prevent a quorum by themselves.
    pub(crate) fn denied(&self) -> bool {
        self.denied >= self.blocking()
    }

    /// Whether the nodes that gave no vote prevent a quorum by themselves.
    pub(crate) fn unavailable(&self) -> bool {
        self.failed >= self.blocking()
    }

    /// Whether the keys that are no locks are what prevents a quorum: without them there might
    /// have been one.
    pub(crate) fn foreign(&self) -> bool {
        let foreign =
            self.votes.iter().filter(|vote| matches!(vote, Some(Vote::Foreign { .. }))).count();
        foreign > 0 && self.denied + self.failed - foreign < self.blocking()
    }

    /// When the present holder's lease runs out on so many nodes that a quorum may be free; `None`
    /// if no other caller can have a quorum, or no node told.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let undecided = self.votes.iter().filter(|vote| vote.is_none()).count();
        if self.denied + undecided < self.quorum() {
            return None;
        }
        let held = self.votes.iter().filter_map(|vote| match vote {
            Some(Vote::Held { remaining }) => *remaining,
            _ => None,
        });
        let mut held: Vec<_> = held.collect();
        held.sort_unstable();
        // So many of those that refuse must become free beside those that do not.
        let others = self.votes.len() - self.denied - self.failed;
        let missing = self.quorum().saturating_sub(others).max(1);
        held.get(missing - 1).or(held.last()).copied()
    }

    pub(crate) fn vote(&self, index: usize) -> Option<&Vote> {
        self.votes[index].as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: Vote = Vote::Held { remaining: Some(Duration::from_secs(3)) };
    const GRANTED: Vote = Vote::Granted;

    fn failed() -> Vote {
        Vote::Failed(NodeError::NoAnswer(Duration::from_millis(50)))
    }

    fn tally(nodes: usize, votes: impl IntoIterator<Item = Vote>) -> Tally {
        let mut tally = Tally::new(nodes);
        for (index, vote) in votes.into_iter().enumerate() {
            tally.count(index, vote);
        }
        tally
    }

    /// Even numbers included: of four nodes three are a majority, so that two callers cannot both
    /// have one; of two, both.
    #[test]
    fn the_quorum_is_a_majority_of_the_configured_nodes() {
        let quorums: Vec<_> = (1..=7).map(quorum).collect();
        assert_eq!(quorums, [1, 2, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn a_round_is_decided_by_the_vote_that_decides_it() {
        assert_eq!(tally(5, [GRANTED, GRANTED]).verdict(), None);
        assert_eq!(tally(5, [GRANTED, GRANTED, GRANTED]).verdict(), Some(Verdict::Carried));
        assert_eq!(tally(5, [HELD, HELD]).verdict(), None);
        assert_eq!(tally(5, [HELD, HELD, failed()]).verdict(), Some(Verdict::Rejected));
        assert_eq!(tally(4, [GRANTED, GRANTED]).verdict(), None);
        assert_eq!(tally(4, [HELD, HELD]).verdict(), Some(Verdict::Rejected));
        assert_eq!(tally(2, [HELD]).verdict(), Some(Verdict::Rejected));
        // A peer never resolves on this one.
        assert_eq!(tally(2, [GRANTED, HELD]).verdict(), Some(Verdict::Rejected));
    }

    #[test]
    fn a_node_that_does_not_answer_counts_as_failed() {
        let mut tally = tally(3, [GRANTED]);
        tally.close(Duration::from_millis(50));
        assert_eq!(tally.verdict(), Some(Verdict::Rejected));
        assert!(tally.unavailable());
    }

    #[test]
    fn held_and_down_are_told_apart() {
        let two_down = tally(5, [failed(), failed(), HELD]);
        assert!(!two_down.unavailable());
        let three_down = tally(5, [failed(), failed(), failed()]);
        assert!(three_down.unavailable());
        let split = tally(3, [GRANTED, HELD, failed()]);
        assert!(!split.unavailable());
        assert_eq!(split.remaining(), None, "no holder has a quorum");
        assert_eq!(tally(3, [HELD, HELD]).remaining(), Some(Duration::from_secs(3)));
        let held = |secs| Vote::Held { remaining: Some(Duration::from_secs(secs)) };
        let stale = tally(3, [held(600), held(1), held(2)]);
        assert_eq!(stale.remaining(), Some(Duration::from_secs(2)), "two of three are free then");
    }

    #[test]
    fn a_foreign_key_is_named_only_where_it_decides() {
        use crate::error::ForeignKind;
        let foreign = || Vote::Foreign { found: ForeignKind::NoTimeToLive };
        assert!(tally(1, [foreign()]).foreign());
        assert!(tally(3, [foreign(), HELD]).foreign());
        assert!(!tally(3, [HELD, HELD, foreign()]).foreign());
    }
}
