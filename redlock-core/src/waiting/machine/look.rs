//! The look at the line: the waiter asks the nodes, or pauses for the obstacle in its way.

use std::time::Duration;

use super::super::line::{Line, LineHolder, LineSignal, LineWaiter, WaiterState};
use super::super::pauses::{AFTER_EXPIRY, Now};
use super::super::{Instant, Mode};
use super::{
    Activity, AfterJoin, Failure, Fair, Machine, Pause, Question, Sight, Step, end_outage_before,
};

impl<H: LineHolder, G: LineSignal> Machine<H, G> {
    /// Looks at the line, and decides whether the waiter asks the nodes. `fair` is called if nothing else is in its way, for a
    /// caller in a line.
    pub(crate) fn look<W: LineWaiter, S>(
        &mut self,
        mut line: Option<&mut Line<W, H, G, S>>,
        waiter: &W,
        now: &Now,
        sight: Sight,
        fair: impl FnOnce() -> Fair,
    ) -> Step {
        self.state = Activity::Looks;
        if sight.was_handed_over {
            self.state = Activity::Takes(now.at);
            return Step::Take;
        }
        let mut question = Question { begun: now.at, heard: None };
        if sight.is_closed {
            // The attempt fails.
            self.state = Activity::Asks(question);
            return Step::Ask;
        }
        // Another caller may have learnt that the outage is over.
        self.end_outage_with(line.as_deref());
        match line.as_ref().and_then(|line| line.state(waiter)) {
            Some(WaiterState::Queued) => return self.queue(now),
            // Its pause is over.
            Some(WaiterState::Refused) => {
                if let Some(line) = &mut line {
                    line.set(waiter, WaiterState::Called);
                }
            }
            Some(WaiterState::Called | WaiterState::Asking) | None => {}
        }
        if let Some(key) = sight.blocked_key.filter(|key| self.at != Some(*key)) {
            return Step::Join(key, AfterJoin::Look);
        }
        if let Some(line) = &mut line
            && let Some(step) = self.obstacle(line, waiter, now)
        {
            return step;
        }
        // A caller that comes in an outage finds out itself whether the outage is over, before it waits for its turn.
        if self.at.is_some() {
            match fair() {
                Fair::First => {}
                Fair::Unknown => return self.sleep(Pause::Fair, None, now),
                Fair::Behind(since) => {
                    // The caller waits for a holder, as if the nodes had refused it the lock.
                    self.waiting_since.get_or_insert(now.at);
                    if let Some(line) = line {
                        end_outage_before(line, since);
                        self.end_outage_with(Some(line));
                    }
                    return self.sleep(Pause::Fair, None, now);
                }
                Fair::NoConductor => return Step::Fail(Failure::NoConductor),
            }
        }
        if let Some(line) = line {
            line.begin_question(waiter, now.at);
            // Counted before the question: a release that is published meanwhile is not missed.
            let signal = line.signal(self.terms.mode);
            question.heard = signal.map(|signal| (signal.clone(), signal.counts()));
            line.set(waiter, WaiterState::Asking);
        }
        self.state = Activity::Asks(question);
        Step::Ask
    }

    /// Ends the outage of the waiter if that of its line is over.
    fn end_outage_with<W: LineWaiter, S>(&mut self, line: Option<&Line<W, H, G, S>>) {
        if line.is_some_and(|line| line.outage().is_none()) {
            self.outage = None;
        }
    }

    /// Returns the holder of this process that keeps the waiter from asking the nodes.
    pub(crate) fn blocking<'l, W: LineWaiter, S>(
        &self,
        line: &'l Line<W, H, G, S>,
        now: Instant,
    ) -> Option<(&'l H, Duration)> {
        let (held, remaining) = line.conflict(self.terms.mode, || now)?;
        // A writer behind the readers of its own process asks the nodes: it leaves its mark there, so that they admit no
        // further readers.
        let asks = self.terms.mode == Mode::Exclusive && held.mode().is_shared();
        match self.behind_readers_until.filter(|until| *until > now) {
            Some(until) if asks => Some((held, remaining.min(until - now))),
            None if asks => None,
            _ => Some((held, remaining)),
        }
    }

    /// Returns the pause of a waiter that was called and does not ask the nodes, as far as this process knows.
    fn obstacle<W: LineWaiter, S>(
        &mut self,
        line: &mut Line<W, H, G, S>,
        waiter: &W,
        now: &Now,
    ) -> Option<Step> {
        if let Some((held, remaining)) = self.blocking(line, now.at) {
            let held = held.clone();
            if !line.is_first(waiter) {
                // The first waiter calls it again.
                line.set(waiter, WaiterState::Queued);
                return Some(self.queue(now));
            }
            line.watch(waiter, held.id());
            // The holder may overrun its lease.
            let until = now.at.checked_add(remaining.saturating_add(AFTER_EXPIRY));
            return Some(self.sleep(Pause::Holder(held), until, now));
        }
        if self.is_over(now) {
            // It asks once more, without a pause.
            return None;
        }
        if let Some(until) = self.not_before.filter(|until| *until > now.at) {
            return Some(self.sleep(Pause::Yield, Some(until), now));
        }
        // A lock of several keys was refused for this key before, so it is likely to be refused again.
        if self.moved.is_some() && line.signal(self.terms.mode).is_none() {
            return Some(self.sleep_for(Pause::Subscribe, self.terms.node_timeout, now));
        }
        if let Some(until) =
            line.fairness.yields_until(now.at).filter(|_| line.holders().is_empty())
        {
            return Some(self.sleep(Pause::Yield, Some(until), now));
        }
        // Once only: the answer was of no use to it.
        let until = line.follows(waiter, now.at).filter(|_| !self.has_followed)?;
        self.has_followed = true;
        Some(self.sleep(Pause::Reader, Some(until), now))
    }
}
