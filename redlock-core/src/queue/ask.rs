//! The questions of one caller to the nodes.

use crate::ballot::{Ballot, Enquiry};
use crate::lock::{LockSpec, Mark, Mode};

/// The state of a caller between two questions.
#[derive(Debug, Default)]
pub(crate) struct Ask<'a> {
    /// Whether a refusal does not need to report how long the other holder's lease lasts.
    pub(super) skip_lookup: bool,
    /// Whether shared holders have refused an exclusive lock.
    met_marks: bool,
    /// The mark of a caller that waits for an exclusive lock.
    mark: Option<OwnMark<'a>>,
}

/// A mark, which shows shared holders that a caller waits for an exclusive lock.
#[derive(Debug)]
struct OwnMark<'a> {
    ballot: &'a Ballot,
    spec: &'a LockSpec,
    id: Mark,
    is_set: bool,
}

impl<'a> Ask<'a> {
    /// Returns the state of a caller that waits for the lock.
    pub(super) fn of_waiter(ballot: &'a Ballot, spec: &'a LockSpec) -> Self {
        let mark = OwnMark { ballot, spec, id: Mark::random(), is_set: false };
        Self { mark: (spec.mode() == Mode::Exclusive).then_some(mark), ..Self::default() }
    }

    /// Returns the next question. A fenced lock is acquired by a script, which distinguishes shared holders in any case.
    pub(crate) fn enquiry(&mut self, fenced: bool) -> Enquiry {
        let mark = self.mark.as_mut().filter(|_| self.met_marks).map(|mark| {
            mark.is_set = true;
            mark.id
        });
        Enquiry { ttl_lookup: !self.skip_lookup, met_marks: self.met_marks || fenced, mark }
    }

    /// Records that nodes which take marks have refused the lock. Returns whether the same question makes sense once more,
    /// now with a mark.
    pub(crate) fn record_marks(&mut self, met_marks: bool, fenced: bool) -> bool {
        let is_news = met_marks && !self.met_marks;
        self.met_marks |= met_marks;
        is_news && (!fenced || self.mark.is_some())
    }

    /// Records that the lock was acquired, which has removed all marks on the nodes that have granted it.
    pub(crate) fn acquired(&mut self) {
        if let Some(mark) = &mut self.mark {
            // Of several nodes, a minority may have refused the lock, and keep the mark.
            mark.is_set &= mark.ballot.nodes.len() > 1;
        }
    }

    /// Withdraws the mark from the nodes that may have it.
    pub(super) fn withdraw_mark(&mut self) {
        if let Some(mark) = self.mark.take()
            && mark.is_set
        {
            mark.ballot.withdraw_in_background(mark.spec, mark.id);
        }
    }
}
