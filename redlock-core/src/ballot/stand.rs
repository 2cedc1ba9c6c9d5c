//! Reads the holders of a lock from the votes.

use super::standing::{Stand, Standing};
use crate::error::{LockError, Vote};
use crate::lock::HolderId;

impl From<Option<&Vote>> for Stand<HolderId> {
    fn from(vote: Option<&Vote>) -> Self {
        match vote {
            None => Self::Undecided,
            Some(Vote::Agreed) => Self::Own,
            Some(Vote::Held { holder: Some(holder), .. }) => Self::Of(*holder),
            Some(Vote::Held { remaining: Some(rest), .. }) if rest.is_zero() => Self::Left,
            Some(Vote::Held { .. } | Vote::NotHeld | Vote::Foreign { .. }) => Self::Hidden,
            Some(Vote::Failed(_)) => Self::Failed,
        }
    }
}

impl Standing<HolderId> {
    /// Returns the standing at the end of an acquisition that was refused because of holders.
    pub(crate) fn of_refusal(refused: &LockError) -> Option<Self> {
        match refused {
            LockError::Contended { votes, .. } | LockError::Split { votes, .. } => {
                Some(Self::of(votes.iter().map(|(_, vote)| vote.into())))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::{ForeignKind, NodeError};

    /// A refusal that does not name a holder may hide one, unless the lock was released after it.
    #[test]
    fn every_vote_says_what_it_knows_about_the_holder() {
        let (rest, id) = (Duration::from_millis(1), HolderId::of("a"));
        for (vote, expected) in [
            (Vote::Agreed, Stand::Own),
            (Vote::held_by(id, Some(rest)), Stand::Of(id)),
            (Vote::held_by(id, Some(Duration::ZERO)), Stand::Of(id)),
            (Vote::held_by(id, None), Stand::Of(id)),
            (Vote::held(Some(rest)), Stand::Hidden),
            (Vote::held(None), Stand::Hidden),
            (Vote::held(Some(Duration::ZERO)), Stand::Left),
            (Vote::NotHeld, Stand::Hidden),
            (Vote::foreign(ForeignKind::WrongType), Stand::Hidden),
            (Vote::Failed(NodeError::NoReply(rest)), Stand::Failed),
        ] {
            assert_eq!(Stand::from(Some(&vote)), expected, "{vote}");
        }
        assert_eq!(Stand::<HolderId>::from(None), Stand::Undecided);
    }
}
