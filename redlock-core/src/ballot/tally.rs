//! Counts the votes of a round and derives its decision.

use std::cmp::Reverse;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::Standing;
use crate::error::Vote;
use crate::lock::{HolderId, OwnerLabel};
use crate::node::Reply;
use crate::quorum::quorum;

/// The replies of one round, with one slot for each configured node, and their votes counted.
#[derive(Debug)]
pub(crate) struct Tally {
    replies: SmallVec<[Option<Reply>; 1]>,
    granted: usize,
    /// Nodes that voted no because of the lock: another caller holds it, or it is gone.
    refused: usize,
    /// Nodes that voted no because of a foreign key, which is not a lock.
    foreign: usize,
    /// Nodes that failed to vote.
    failed: usize,
}

/// The decision of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// A quorum voted yes.
    Agreed,
    /// A quorum of yes votes is no longer possible.
    Denied,
    /// The round's time was over before the votes decided.
    OutOfTime,
}

impl Tally {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { replies: smallvec![None; nodes], granted: 0, refused: 0, foreign: 0, failed: 0 }
    }

    /// Returns the majority of the configured nodes, whether they can be reached or not.
    pub(crate) fn quorum(&self) -> usize {
        quorum(self.replies.len())
    }

    /// Returns the number of nodes that have granted the lock.
    pub(crate) fn granted(&self) -> usize {
        self.granted
    }

    /// Returns the number of nodes that prevents a quorum. Once this many nodes have not granted, waiting for
    /// the rest is pointless.
    fn blocking(&self) -> usize {
        self.replies.len() - self.quorum() + 1
    }

    /// Counts a node's reply. A reply replaces an earlier failure of the same node.
    pub(crate) fn count(&mut self, index: usize, reply: Reply) {
        if let Some(Vote::Failed(_)) = self.vote(index) {
            self.failed -= 1;
        }
        let counter = match &reply.vote {
            Vote::Agreed => &mut self.granted,
            Vote::Held { .. } | Vote::NotHeld => &mut self.refused,
            Vote::Foreign { .. } => &mut self.foreign,
            Vote::Failed(_) => &mut self.failed,
        };
        *counter += 1;
        self.replies[index] = Some(reply);
    }

    fn undecided(&self) -> usize {
        self.replies.len() - self.granted - self.refused - self.foreign - self.failed
    }

    /// Returns the decision, as soon as further votes can change neither it nor its reason.
    ///
    /// A round without a possible quorum is denied early if refusals, failures or foreign keys alone are the reason. If several
    /// kinds contribute, the round waits for the other votes: they decide whether the caller should wait for the lock. So do
    /// refusals because of different holders, none of which has a quorum yet: the votes may be split.
    pub(crate) fn decision(&self) -> Option<Decision> {
        if self.granted >= self.quorum() {
            Some(Decision::Agreed)
        } else if self.failed >= self.quorum()
            || self.is_foreign()
            || self.undecided() == 0
            || (self.is_contended() && !self.standing().is_open())
        {
            Some(Decision::Denied)
        } else {
            None
        }
    }

    /// Returns whether the refusals because of holders alone prevent a quorum.
    pub(crate) fn is_contended(&self) -> bool {
        self.refused >= self.blocking()
    }

    /// Returns the holders in the way of the caller.
    pub(crate) fn standing(&self) -> Standing<HolderId> {
        Standing::of((0..self.replies.len()).map(|index| self.vote(index).into()))
    }

    /// Returns whether the no votes alone prevent a quorum.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused + self.foreign >= self.blocking()
    }

    /// Returns whether the nodes that failed to vote prevent a quorum on their own, and the refusals do not.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.failed >= self.blocking() && !self.is_contended()
    }

    /// Returns whether foreign keys are the reason for the missing quorum, regardless of the votes that are
    /// still to come. Without those keys there would be a quorum, and waiting cannot help: the foreign keys
    /// prevent a quorum by themselves, or no caller holds the lock.
    pub(crate) fn is_foreign(&self) -> bool {
        let quorum_without_them = self.granted + self.foreign >= self.quorum();
        let nobody_holds_it = self.undecided() == 0 && self.refused == 0;
        self.foreign > 0
            && quorum_without_them
            && (self.foreign >= self.blocking() || nobody_holds_it)
    }

    /// Returns the time until the present holder's lease has run out on enough nodes for another quorum.
    /// Returns `None` if no other caller can have a quorum, or if no node reported the remaining lease.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        if self.refused + self.undecided() < self.quorum() {
            return None;
        }
        let held = self.replies().filter_map(|reply| match reply.vote {
            Vote::Held { remaining, .. } => remaining,
            _ => None,
        });
        let mut held: Vec<_> = held.collect();
        held.sort_unstable();
        // This many of the refusing nodes must become free in addition to the other nodes.
        let others = self.granted + self.undecided();
        let missing = self.quorum().saturating_sub(others).max(1);
        held.get(missing - 1).or(held.last()).copied()
    }

    /// Returns the label that most refusals report, if these nodes and those without a vote could be a quorum. In a split vote
    /// nobody has the lock.
    pub(crate) fn holder(&self) -> Option<&OwnerLabel> {
        let labels = || self.replies().filter_map(|reply| reply.vote.label());
        let count = |label| labels().filter(|other| *other == label).count();
        let (label, most) =
            labels().map(|label| (label, count(label))).max_by_key(|(_, count)| *count)?;
        let is_alone = labels().all(|other| other == label || count(other) < most);
        (is_alone && most + self.undecided() + self.failed >= self.quorum()).then_some(label)
    }

    /// Returns a node's vote, if it has one. A node that was not asked has the vote that the round got for it.
    pub(crate) fn vote(&self, index: usize) -> Option<&Vote> {
        self.replies[index].as_ref().map(|reply| &reply.vote)
    }

    fn replies(&self) -> impl Iterator<Item = &Reply> {
        self.replies.iter().flatten()
    }

    /// Returns the greatest number that a node has returned so far.
    pub(crate) fn number(&self) -> Option<i64> {
        self.replies().filter_map(|reply| reply.number).max()
    }

    /// Returns how many subscribers were notified so far, on the node with the most.
    pub(crate) fn subscribers(&self) -> Option<usize> {
        self.replies().filter_map(|reply| reply.subscribers).max()
    }

    /// Returns whether a node takes marks at the lock.
    pub(crate) fn takes_marks(&self) -> bool {
        self.replies().any(|reply| reply.takes_marks)
    }

    /// Returns the index of the key for which most nodes refused the lock; of several, the lowest. A key that a
    /// crashed holder has left on a few nodes therefore does not hide the key that prevents the quorum.
    pub(crate) fn refused_key(&self) -> usize {
        let named = || self.replies().filter_map(|reply| reply.refused_key);
        let votes = |key| named().filter(|other| *other == key).count();
        named().max_by_key(|key| (votes(*key), Reverse(*key))).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::strategy::{Just, Strategy};

    use super::*;
    use crate::error::NodeError;

    const HELD: Vote = Vote::held(Some(Duration::from_secs(3)));
    const AGREED: Vote = Vote::Agreed;

    fn failed() -> Vote {
        Vote::Failed(NodeError::NoReply(Duration::from_millis(50)))
    }

    fn tally(nodes: usize, votes: impl IntoIterator<Item = Vote>) -> Tally {
        let mut tally = Tally::new(nodes);
        for (index, vote) in votes.into_iter().enumerate() {
            tally.count(index, vote.into());
        }
        tally
    }

    /// In a split vote nobody has the lock, so no label is the holder's.
    #[test]
    fn the_holder_is_the_label_that_a_quorum_may_report() {
        let by = |label: &str| HELD.with_label(OwnerLabel::new(label).ok());
        let holder =
            |votes: Vec<Vote>| tally(5, votes).holder().map(|label| label.as_str().to_owned());
        let a = Some("a".to_owned());
        assert_eq!(holder(vec![by("a"), by("a"), by("a"), AGREED, AGREED]), a);
        assert_eq!(holder(vec![by("a"), by("b"), by("a"), by("a"), by("b")]), a);
        // Nodes without a vote may have the same holder.
        assert_eq!(holder(vec![by("a"), failed(), failed(), AGREED, AGREED]), a);
        assert_eq!(holder(vec![by("a"), by("a"), AGREED, AGREED]), a);
        assert_eq!(holder(vec![by("a"), by("a"), by("b"), AGREED, AGREED]), None);
        assert_eq!(holder(vec![by("a"), by("a"), by("b"), by("b"), failed()]), None);
        assert_eq!(holder(vec![by("a"), HELD, HELD, HELD, HELD]), None);
        assert_eq!(holder(vec![HELD; 5]), None);
    }

    /// The number of nodes may be even. Of four nodes, three are a quorum, so that two callers
    /// cannot both have one. Of two nodes, both are.
    #[test]
    fn the_quorum_is_a_majority_of_the_configured_nodes() {
        let quorums: Vec<_> = (1..=7).map(quorum).collect();
        assert_eq!(quorums, [1, 2, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn a_round_is_decided_as_soon_as_further_votes_cannot_change_it() {
        assert_eq!(tally(5, [AGREED, AGREED]).decision(), None);
        assert_eq!(tally(5, [AGREED, AGREED, AGREED]).decision(), Some(Decision::Agreed));
        assert_eq!(tally(5, [HELD, HELD]).decision(), None);
        assert_eq!(tally(5, [HELD, HELD, HELD]).decision(), Some(Decision::Denied));
        // The other nodes decide whether the nodes have failed or another caller holds the lock.
        assert_eq!(tally(5, [HELD, HELD, failed()]).decision(), None);
        assert_eq!(tally(3, [HELD, failed()]).decision(), None);
        assert_eq!(tally(4, [failed(), failed()]).decision(), None);
        assert_eq!(tally(3, [failed(), failed()]).decision(), Some(Decision::Denied));
        assert_eq!(tally(4, [failed(), failed(), failed()]).decision(), Some(Decision::Denied));
        assert_eq!(tally(4, [AGREED, AGREED]).decision(), None);
        assert_eq!(tally(4, [HELD, HELD]).decision(), Some(Decision::Denied));
        assert_eq!(tally(2, [HELD]).decision(), Some(Decision::Denied));
        // Another library never decides on a split of one to one.
        assert_eq!(tally(2, [AGREED, HELD]).decision(), Some(Decision::Denied));
    }

    #[test]
    fn a_node_that_does_not_reply_counts_as_failed() {
        let mut tally = tally(3, [AGREED]);
        tally.count(1, failed().into());
        tally.count(2, failed().into());
        assert_eq!(tally.decision(), Some(Decision::Denied));
        assert!(tally.is_unavailable());
    }

    #[test]
    fn held_and_unavailable_are_distinguished() {
        let three_down = tally(5, [failed(), failed(), failed()]);
        assert!(three_down.is_unavailable());
        let split = tally(3, [AGREED, HELD, failed()]);
        assert!(!split.is_unavailable());
        assert_eq!(split.remaining(), None, "no holder has a quorum");
        assert_eq!(tally(3, [HELD, HELD]).remaining(), Some(Duration::from_secs(3)));
        let held = |secs| Vote::held(Some(Duration::from_secs(secs)));
        let stale = tally(3, [held(600), held(1), held(2)]);
        assert_eq!(
            stale.remaining(),
            Some(Duration::from_secs(2)),
            "two of three nodes are free then"
        );
    }

    /// Refusals because of one holder decide as soon as it has a quorum. Of different holders, each may still get one.
    #[test]
    fn refusals_that_name_different_holders_do_not_decide_early() {
        let [a, b, c] = ["a", "b", "c"].map(|token| Vote::held_by(HolderId::of(token), None));
        let decision =
            |nodes, votes: &[&Vote]| tally(nodes, votes.iter().copied().cloned()).decision();
        let denied = Some(Decision::Denied);
        assert_eq!(decision(3, &[&a, &a]), denied);
        assert_eq!(decision(3, &[&a, &b]), None);
        assert_eq!(decision(3, &[&a, &b, &AGREED]), denied);
        assert_eq!(decision(5, &[&a, &b, &a]), None);
        assert_eq!(decision(5, &[&a, &b, &c, &b]), None);
        assert_eq!(decision(5, &[&a, &b, &a, &a]), denied);
        // Of an even number of nodes, the half is no quorum.
        assert_eq!(decision(2, &[&a]), None);
        assert_eq!(decision(4, &[&a, &a]), None);
        assert_eq!(decision(4, &[&a, &a, &a]), denied);
        // A node that does not name its holder.
        assert_eq!(decision(3, &[&a, &HELD]), denied);
    }

    fn foreign() -> Vote {
        Vote::Foreign { found: crate::error::ForeignKind::NoTimeToLive }
    }

    /// If the other nodes are a quorum, the caller waits for the lock.
    #[test]
    fn a_foreign_key_is_reported_only_if_waiting_cannot_help() {
        let is_foreign = |nodes, votes: &[Vote]| {
            let tally = tally(nodes, votes.iter().cloned());
            assert_eq!(tally.decision(), Some(Decision::Denied), "{votes:?}");
            tally.is_foreign()
        };
        assert!(is_foreign(1, &[foreign()]));
        assert!(is_foreign(3, &[foreign(), foreign()]));
        assert!(is_foreign(3, &[foreign(), foreign(), HELD]));
        assert!(is_foreign(3, &[foreign(), failed(), AGREED]), "no caller holds the lock");
        assert!(!is_foreign(3, &[foreign(), HELD, HELD]));
        assert!(!is_foreign(3, &[foreign(), HELD, AGREED]), "the others are a quorum without it");
        assert!(!is_foreign(3, &[foreign(), failed(), HELD]));
        assert!(is_foreign(4, &[foreign(), foreign(), HELD, AGREED]));
        assert!(
            !is_foreign(4, &[foreign(), foreign(), HELD, HELD]),
            "the holder frees its nodes first"
        );
        assert!(is_foreign(5, &[foreign(), foreign(), foreign()]));
        assert!(!is_foreign(5, &[foreign(), foreign(), HELD, HELD, AGREED]));
        assert!(!is_foreign(5, &[foreign(), HELD, HELD, HELD]));
        // Two nodes that are down must not hide the reply of a third.
        assert_eq!(tally(5, [failed(), failed(), foreign()]).decision(), None);
        // The second node of the holder may still vote. An earlier version decided without it, and
        // ended the wait.
        assert_eq!(tally(3, [foreign(), HELD]).decision(), None);
    }

    #[test]
    fn a_foreign_key_does_not_count_as_a_holder() {
        let split = tally(3, [foreign(), HELD, AGREED]);
        assert_eq!(split.remaining(), None, "no holder has a quorum");
        let held = tally(3, [foreign(), HELD, HELD]);
        assert_eq!(held.remaining(), Some(Duration::from_secs(3)));
    }

    proptest::proptest! {
        /// The same votes in any order give the same result. An earlier version called a refusal and two failures of three
        /// nodes contended if the refusal came before the second failure.
        #[test]
        fn the_reason_of_a_denial_does_not_depend_on_the_order_of_the_votes(
            (votes, shuffled) in (1..=7_usize)
                .prop_flat_map(|nodes| vec(0..8_usize, nodes))
                .prop_flat_map(|votes| (Just(votes.clone()), Just(votes).prop_shuffle()))
        ) {
            let freed = Vote::held(Some(Duration::ZERO));
            let [a, b, c] = ["a", "b", "c"].map(|token| Vote::held_by(HolderId::of(token), None));
            let kinds = [AGREED, HELD, foreign(), failed(), freed, a, b, c];
            // Returns `None` if the lock is granted.
            let reason = |votes: &[usize]| {
                let mut tally = Tally::new(votes.len());
                let mut votes = votes.iter().enumerate();
                while tally.decision().is_none() {
                    let (index, vote) = votes.next().expect("all votes decide the round");
                    tally.count(index, kinds[*vote].clone().into());
                }
                (tally.decision() == Some(Decision::Denied))
                    .then(|| {
                        let standing = tally.standing();
                        let is_repeated = standing.is_worth_repeating(None);
                        (tally.is_unavailable(), tally.is_foreign(), standing.is_split(), is_repeated)
                    })
            };
            proptest::prop_assert_eq!(reason(&votes), reason(&shuffled));
        }
    }
}
