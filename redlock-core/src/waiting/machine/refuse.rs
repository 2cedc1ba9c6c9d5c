//! The answers of the nodes to a waiter that has not got the lock, and the pause after each of them.

use std::mem;

use super::super::line::{Line, LineHolder, LineSignal, LineWaiter, WaiterState};
use super::super::pauses::{Backoff, Now, SHORT_WAIT};
use super::{
    Activity, AfterJoin, Failure, Machine, Outage, Pause, Question, Step, WaitRefusal,
    record_quorum,
};

impl<H: LineHolder, G: LineSignal> Machine<H, G> {
    /// Records that the lock was not acquired, and chooses the pause. `wake` is called for waiters that learn that a quorum
    /// of nodes answers.
    pub(crate) fn refuse<W: LineWaiter, S>(
        &mut self,
        mut line: Option<&mut Line<W, H, G, S>>,
        waiter: &W,
        now: &Now,
        refusal: WaitRefusal,
        mut wake: impl FnMut(&W),
    ) -> Step {
        self.has_followed = false;
        if let Some(line) = &mut line {
            line.end_question(waiter, &mut wake);
        }
        let (held_at, remaining, is_split) = match refusal {
            WaitRefusal::NoQuorum { is_transient } => {
                return self.wait_in_outage(line, waiter, now, is_transient);
            }
            WaitRefusal::Final => {
                record_quorum(line, waiter, wake);
                return Step::Fail(Failure::Refused);
            }
            WaitRefusal::Held { key, remaining, is_split } => (key, remaining, is_split),
            WaitRefusal::HeldHere { key, remaining } => (key, Some(remaining), false),
        };
        self.waiting_since.get_or_insert(now.at);
        self.outage = None;
        record_quorum(line.as_deref_mut(), waiter, wake);
        if self.is_over(now) {
            return Step::Fail(Failure::Refused);
        }
        let (Some(at), Some(line)) = (self.at, line) else {
            self.moved = Some(now.at).filter(|_| self.terms.has_several_keys);
            return Step::Join(held_at, AfterJoin::EndOutage);
        };
        if let WaitRefusal::HeldHere { remaining, .. } = refusal {
            // The release of this attempt is published, so the waiter does not listen. Its next look finds the holder in its way.
            self.behind_readers_until = Some(now.at + now.poll_pause(remaining));
            self.stay_first(line, waiter, WaiterState::Called);
            return Step::Look;
        }
        let question = match mem::replace(&mut self.state, Activity::Looks) {
            Activity::Asks(question) => question,
            _ => Question { begun: now.at, heard: None },
        };
        if !self.stay_first(line, waiter, WaiterState::Refused) {
            return Step::Look;
        }
        let present = line.signal(self.terms.mode);
        let is_subscribed = question
            .heard
            .as_ref()
            .zip(present)
            .is_some_and(|((heard, _), present)| heard.is(present));
        if is_split && is_subscribed {
            // The other callers got the remaining votes. All of them release their votes, and each
            // release wakes all waiters at once. A waiter that asked again at each wake-up would meet
            // the same callers again and again, so it pauses for a random time instead.
            return self.pause_after_split(question, now);
        }
        if held_at != at && self.terms.has_several_keys {
            return self.go_on_to(held_at, now);
        }
        if remaining.is_some() {
            self.backoff = Backoff::new();
        }
        match remaining {
            // A release that was published before the subscription was missed: ask once more.
            _ if !is_subscribed => self.sleep_for(Pause::Subscribe, self.terms.node_timeout, now),
            Some(remaining) => {
                self.sleep_for(Pause::Release(question), now.poll_pause(remaining), now)
            }
            None if self.skips_lookup => {
                self.sleep_for(Pause::Release(question), now.wake_retry_delay(), now)
            }
            // A single node, whose votes are not split, does not know the rest of the lease.
            None if self.terms.nodes == 1 => {
                let pause = self.backoff.pause(now);
                self.sleep_for(Pause::Release(question), pause, now)
            }
            None => self.pause_after_split(question, now),
        }
    }

    fn pause_after_split(&mut self, question: Question<G>, now: &Now) -> Step {
        let pause = self.patience.limit(self.backoff.pause(now), now);
        self.sleep_for(Pause::Split(question), pause, now)
    }

    /// Goes on to the line of another key, for which the nodes have refused the lock.
    fn go_on_to(&mut self, key: usize, now: &Now) -> Step {
        let since = self.moved.max(self.not_before);
        let was_short = since.is_some_and(|since| now.at < since + SHORT_WAIT);
        self.moved = Some(now.at);
        if was_short && self.terms.nodes > 1 {
            // Nodes that disagree name one key and then another. Without a pause, the caller could ask
            // them again and again without ever waiting for a holder.
            self.not_before = Some(now.at + now.between(SHORT_WAIT / 2, SHORT_WAIT));
        }
        Step::Join(key, AfterJoin::Look)
    }

    /// Records that no quorum of nodes has answered, and chooses the pause.
    ///
    /// Only a caller that waited before the outage began keeps its place for the grace. A new caller fails within one
    /// round. A caller that waits for ever waits for the end of the outage, whenever it has begun.
    fn wait_in_outage<W: LineWaiter, S>(
        &mut self,
        line: Option<&mut Line<W, H, G, S>>,
        waiter: &W,
        now: &Now,
        is_transient: bool,
    ) -> Step {
        let begun = match self.state {
            Activity::Asks(Question { begun, .. }) | Activity::Takes(begun) => begun,
            Activity::Looks | Activity::Sleeps(_) => now.at,
        };
        let is_endless = self.terms.is_endless && is_transient;
        if is_endless && self.at.is_none() {
            return Step::Join(0, AfterJoin::EvaluateRefusal);
        }
        self.state = Activity::Looks;
        let Some(line) = line else { return Step::Fail(Failure::Refused) };
        let since = line.record_outage(begun);
        let waited_before = self.waiting_since.is_some_and(|waiting| waiting <= since);
        if !(is_endless || waited_before && is_transient) {
            return Step::Fail(Failure::Refused);
        }
        self.skips_lookup = false;
        let grace = since + self.terms.outage_grace;
        let until = self.terms.deadline.map_or(grace, |deadline| deadline.min(grace));
        if !self.stay_first(line, waiter, WaiterState::Refused) {
            return Step::Look;
        }
        let reconnects = is_endless && self.outage.is_none();
        let new_outage = || Outage { since: None, backoff: Backoff::new() };
        let outage = self.outage.get_or_insert_with(new_outage);
        outage.since = outage.since.or(Some(now.at).filter(|_| is_endless));
        let pause = outage.backoff.pause(now);
        self.state = Activity::Sleeps(Pause::Outage { pause, reconnects });
        Step::Sleep((!is_endless).then_some(until))
    }

    /// Sets the state of the first waiter. Every other waiter waits in its place again. Returns whether the waiter is the
    /// first. A waiter to which a lock was handed over is in no line, so it is not.
    fn stay_first<W: LineWaiter, S>(
        &mut self,
        line: &mut Line<W, H, G, S>,
        waiter: &W,
        state: WaiterState,
    ) -> bool {
        self.state = Activity::Looks;
        let Some(is_first) = line.set_if_first(waiter, state) else { return false };
        if !is_first {
            self.start_anew();
        }
        is_first
    }
}
