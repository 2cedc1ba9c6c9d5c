//! The events of one step.

use std::fmt;
use std::mem;
use std::time::Duration;

use super::claim::Claim;
use super::line::{LineHolder, LineWaiter, WaiterState};
use super::machine::{
    AfterJoin, Fair, Machine, Pause, Question, Sight, Step, Terms, WaitRefusal, Wake, record_quorum,
};
use super::pauses::Now;
use super::state::{Caller, Held, Phase, Signal, State, Who};
use super::world::{Rule, World};
use super::{Instant, JOIN_WINDOW, Mode};

/// How long a lock is valid.
pub(super) const LEASE: Duration = Duration::from_millis(300);
pub(super) const GRACE: Duration = Duration::from_millis(100);
const NODE_TIMEOUT: Duration = Duration::from_millis(20);

/// A step of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Action {
    /// A caller comes.
    Come(usize),
    /// A caller that has left comes again.
    Return(usize),
    /// A caller does its next step.
    Do(usize),
    /// The nodes answer a caller.
    Answer(usize),
    /// The nodes refuse a caller, because several callers have votes.
    Split(usize),
    /// The lock is lost before the caller takes it.
    Lose(usize),
    /// A sleeping caller wakes.
    Wake(usize, Reason),
    /// A caller releases its lock.
    Release(usize),
    /// The nodes delete the lock that a caller has released.
    Delete(usize),
    /// The future of a caller is dropped.
    Drop(usize),
    /// Another process gets the lock.
    OtherAcquires,
    /// A writer of another process waits for the readers of this one.
    OtherMarks,
    /// That writer gives up.
    OtherGivesUp,
    /// The other process releases the lock.
    OtherReleases,
    /// No quorum of nodes answers any more.
    Fail,
    /// A quorum of nodes answers again.
    Recover,
    /// The nodes forget all locks.
    Forget,
    /// The manager is shut down.
    Close,
    /// The next timer fires.
    Tick,
}

/// Why a sleeping caller wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    /// Another caller has woken it.
    Notified,
    /// A release was published.
    Release,
    /// Its pause is over.
    Timer,
    /// The lock of the holder is lost.
    HolderEnded,
    /// Its subscription is in effect.
    Subscribed,
    /// A quorum of nodes is back.
    QuorumIsBack,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl State {
    pub(super) fn now(&self) -> Now {
        Now { at: self.now, chance: || 0.0 }
    }

    /// Returns the locks of this process on which a holder relies.
    pub(super) fn valid(&self) -> impl Iterator<Item = Held> {
        let held = self.callers.iter().filter_map(|caller| match caller.phase {
            Phase::Granted(_, held) | Phase::Holds(held) => Some(held),
            _ => caller.handed_over,
        });
        held.filter(|held| held.until > self.now)
    }

    fn wake_all(&mut self, woken: &[Who], world: &World) {
        if world.keeps(Rule::Wake) {
            for who in woken {
                self.callers[who.caller].is_woken = true;
            }
        }
    }

    pub(super) fn come(&mut self, caller: usize, world: &World) {
        let order = u64::try_from(caller).unwrap_or_default();
        let one = &mut self.callers[caller];
        one.who.since = if world.keeps(Rule::KeepOrder) {
            self.now
        } else {
            Instant(Duration::from_secs(10 - order))
        };
        (one.came, self.arrivals) = (self.arrivals, self.arrivals + 1);
        let who = one.who;
        // As `Acquisition::run`.
        if self.join(caller, world) {
            let held = self.callers[caller].handed_over.take();
            if let Some(held) = held {
                self.record_overtaken(caller, held);
                self.callers[caller].phase = Phase::Holds(held);
            }
            return;
        }
        let is_endless = world.endless == Some(caller);
        let mut machine = Machine::new(Terms {
            mode: who.mode,
            has_several_keys: false,
            is_endless,
            since: self.now,
            deadline: world.wait_time.filter(|_| !is_endless).map(|time| self.now + time),
            nodes: world.nodes,
            has_turns: who.mode.is_shared(),
            node_timeout: NODE_TIMEOUT,
            outage_grace: GRACE,
        });
        let queues = world.keeps(Rule::Queue) || !who.mode.is_shared();
        let are_up = self.are_up;
        if queues && machine.arrive(&mut self.line, 0, || are_up, self.now) {
            self.insert(caller);
        }
        self.callers[caller].phase = Phase::Steps(machine, Step::Look);
    }

    /// Makes a caller that has left a new one.
    pub(super) fn forget(&mut self, caller: usize) {
        self.callers.iter_mut().for_each(|other| other.excused &= !(1 << caller));
        let one = &mut self.callers[caller];
        (one.excused, one.overtaken, one.questions) = (0, 0, 0);
        (one.is_woken, one.has_followed) = (false, false);
    }

    /// Does the next step of a caller.
    pub(super) fn do_step(&mut self, caller: usize, world: &World) {
        let who = self.callers[caller].who;
        let mut woken = Vec::new();
        let now = self.now();
        match mem::replace(&mut self.callers[caller].phase, Phase::Gone) {
            Phase::Steps(mut machine, Step::Look) => {
                self.join(caller, world);
                let sight = Sight {
                    was_handed_over: self.callers[caller].handed_over.is_some(),
                    is_closed: self.is_closed,
                    blocked_key: None,
                };
                let line = machine.at().map(|_| &mut self.line);
                let step = machine.look(line, &who, &now, sight, || Fair::First);
                self.go_on(caller, machine, step);
            }
            Phase::Steps(machine, Step::Take) => {
                let held = self.callers[caller].handed_over.take();
                match held.filter(|held| held.until > self.now) {
                    Some(held) => self.grant(caller, machine, held),
                    None => self.return_to_head(caller, held, machine, world),
                }
            }
            Phase::Steps(mut machine, Step::Join(_, then)) => {
                self.insert(caller);
                machine.join(0, &now);
                if then == AfterJoin::EndOutage {
                    record_quorum(Some(&mut self.line), &who, |who| woken.push(*who));
                    // Others may have noticed an outage since the nodes have answered it. The line ends that, too.
                    self.noticed = None;
                }
                let step = if then == AfterJoin::EvaluateRefusal {
                    let refusal = WaitRefusal::NoQuorum { is_transient: true };
                    machine.refuse(Some(&mut self.line), &who, &now, refusal, |_| {})
                } else {
                    Step::Look
                };
                self.wake_all(&woken, world);
                self.go_on(caller, machine, step);
            }
            // It gives up.
            Phase::Steps(_, Step::Fail(_)) => self.leave(caller, world),
            Phase::Granted(_, held) => {
                self.leave(caller, world);
                self.callers[caller].phase = Phase::Holds(held);
            }
            phase => self.callers[caller].phase = phase,
        }
    }

    /// Loses the lock that was handed over to a caller, which has not taken it.
    pub(super) fn lose(&mut self, caller: usize) {
        let now = self.now;
        let Some(held) = &mut self.callers[caller].handed_over else { return };
        held.until = now;
        let lost = *held;
        self.granted.retain(|held| held.token != lost.token);
        if self.line.remove_holder(&lost) {
            self.line.add_holder(lost);
        }
    }

    /// Returns whether the lock of a holder is no longer valid, and was not released.
    pub(super) fn is_lost(&self, held: &Held) -> bool {
        let in_line = self.line.holders().iter().find(|holder| holder.id == held.id);
        in_line.unwrap_or(held).until <= self.now && !self.valid().any(|valid| valid.id == held.id)
    }

    /// Returns a caller to the head of its line, because the lock that was handed over to it is lost. A reader that has joined a
    /// lock before it was in a line looks again. As `Place::rejoin`.
    fn return_to_head(
        &mut self,
        caller: usize,
        lost: Option<Held>,
        machine: Machine<Held, Signal>,
        world: &World,
    ) {
        if let Some(lost) = lost {
            self.delete(lost, world);
        }
        if machine.at().is_none() {
            return self.go_on(caller, machine, Step::Look);
        }
        let who = self.callers[caller].who;
        self.line.insert_first(&who, || ());
        self.alone = None;
        let mut has_asked = 0;
        for (other, one) in self.callers.iter_mut().enumerate() {
            if self.line.state(&one.who).is_some() {
                one.excused |= 1 << caller;
            }
            if matches!(one.phase, Phase::Asks(_)) || one.handed_over.is_some() {
                has_asked |= 1 << other;
            }
        }
        self.callers[caller].excused |= has_asked;
        self.go_on(caller, machine, Step::Look);
    }

    /// Puts a caller into the line.
    fn insert(&mut self, caller: usize) {
        let who = self.callers[caller].who;
        self.line.insert(&who, || ());
        if self.line.state(&who) == Some(WaiterState::Called) {
            self.record_calls(&[who]);
        }
    }

    /// Records that waiters were called, although the nodes have not granted a lock.
    fn record_calls(&mut self, called: &[Who]) {
        let mut entries = self.line.entries().map(|entry| entry.waiter);
        let (first, second) = (entries.next(), entries.next());
        let is_alone = first.is_some_and(|first| self.alone == Some(first.caller));
        if is_alone && second.is_some_and(|second| called.iter().any(|who| who.is(&second))) {
            self.broken.push(Claim::FewAsk);
        }
    }

    /// Lets a caller join the lock of another reader, if it may. As `Queues::join`, and `Queues::join_as`.
    fn join(&mut self, caller: usize, world: &World) -> bool {
        let one = &self.callers[caller];
        let Some(lease) = one.who.joins else { return false };
        if self.is_closed || one.handed_over.is_some() {
            return false;
        }
        let (who, now) = (one.who, self.now);
        let is_counted = world.keeps(Rule::CountHolders);
        let joined = if is_counted {
            self.line.join(lease, now, |open| Held { id: caller, ..*open })
        } else {
            let holders = self.line.holders().iter().rev();
            let open = holders.copied().find(|held| held.may_be_joined(lease, now));
            open.map(|open| Held { id: caller, ..open })
        };
        let Some(held) = joined else { return false };
        self.record_join(&held);
        let mut woken = Vec::new();
        self.line.remove(&who, |who| woken.push(*who));
        self.wake_all(&woken, world);
        self.callers[caller].handed_over = Some(held);
        true
    }

    /// Checks the window of a lock that a reader joins, by the question of the caller that has acquired it.
    fn record_join(&mut self, held: &Held) {
        if self.now >= self.callers[held.token].asked + JOIN_WINDOW {
            self.broken.push(Claim::TheWindowEnds);
        }
        if self.line.entries().any(|entry| !entry.waiter.is_reader()) {
            self.broken.push(Claim::AWriterClosesTheWindow);
        }
        if self.was_refused {
            self.broken.push(Claim::ARefusalClosesTheWindow);
        }
    }

    /// Begins the next step of a caller.
    fn go_on(&mut self, caller: usize, machine: Machine<Held, Signal>, step: Step) {
        if let Step::Sleep(_) = step
            && let Some(Pause::Subscribe) = machine.pause()
        {
            let (mode, published) = (self.callers[caller].who.mode, self.published);
            let signal = Signal { caller, mode, in_effect: false, published };
            self.signal = Some(signal);
            self.line.set_signal(signal);
        }
        if step == Step::Ask && !self.is_closed {
            let who = self.callers[caller].who;
            // Readers next to each other ask together.
            let ends = |other: &Who| other.is(&who) || !(other.is_reader() && who.is_reader());
            let first = self.line.entries().map(|entry| entry.waiter).find(ends);
            if first.is_some_and(|first| !first.is(&who)) && machine.at().is_some() {
                self.broken.push(Claim::FewAsk);
            }
            self.record_question(caller, &machine);
        }
        if let (Step::Sleep(_), Some(pause)) = (step, machine.pause()) {
            match pause {
                Pause::Queue | Pause::Yield => {}
                Pause::Reader => {
                    if self.callers[caller].has_followed {
                        self.broken.push(Claim::OneAnswer);
                    }
                    self.callers[caller].has_followed = true;
                }
                _ => self.alone = Some(caller),
            }
        }
        let (one, now) = (&mut self.callers[caller], self.now);
        one.phase = match step {
            Step::Ask => {
                one.questions += 1;
                one.asked = now;
                Phase::Asks(machine)
            }
            Step::Sleep(until) => Phase::Sleeps(machine, self.now, until),
            step => Phase::Steps(machine, step),
        };
    }

    /// Checks that a reader which asks the nodes could not wait for the answer to another one.
    fn record_question(&mut self, caller: usize, machine: &Machine<Held, Signal>) {
        let now = self.now;
        let asks = |other: &Caller| {
            let is_in_line = |machine: &Machine<Held, Signal>| machine.at().is_some();
            matches!(&other.phase, Phase::Asks(machine) if is_in_line(machine))
                && other.who.joins >= self.callers[caller].who.joins
                && now < other.asked + JOIN_WINDOW
        };
        let one = &self.callers[caller];
        // At the end of its waiting time, a reader asks in any case.
        let is_over = machine.is_over(&self.now());
        let may_wait =
            one.who.joins.is_some() && !one.has_followed && machine.at().is_some() && !is_over;
        if may_wait && self.callers.iter().any(asks) {
            self.broken.push(Claim::FewReadersAsk);
        }
    }

    pub(super) fn answer(&mut self, caller: usize, is_split: bool, world: &World) {
        let who = self.callers[caller].who;
        let Phase::Asks(machine) = mem::replace(&mut self.callers[caller].phase, Phase::Gone)
        else {
            return;
        };
        if self.is_closed {
            return self.refuse(caller, machine, WaitRefusal::Final, world);
        }
        if !self.are_up {
            // A caller that asks before it joins the line does not wait in the outage.
            if machine.at().is_some() {
                self.noticed.get_or_insert(self.now);
            }
            if !world.keeps(Rule::ShareTheOutage) {
                self.line.end_outage();
            }
            let refusal = WaitRefusal::NoQuorum { is_transient: true };
            return self.refuse(caller, machine, refusal, world);
        }
        self.noticed = None;
        let now = self.now;
        self.granted.retain(|held| held.until > now);
        let other = self.granted.iter().find(|held| !held.mode.compatible(who.mode)).copied();
        let has_mark = self.other_waits || self.callers.iter().any(|other| other.has_mark);
        let is_marked = who.mode.is_shared() && has_mark;
        if is_split || other.is_some() || is_marked {
            if other.is_some_and(|other| other.mode.is_shared()) {
                self.callers[caller].has_mark = true;
            }
            let remaining = other.filter(|_| !is_split).map(|held| held.until - now);
            return self.refuse(
                caller,
                machine,
                WaitRefusal::Held { key: 0, remaining, is_split },
                world,
            );
        }
        let lease = who.joins.unwrap_or(LEASE);
        let until = now + lease;
        let open_since = who.joins.map(|_| self.callers[caller].asked);
        let (id, token, mode) = (caller, caller, who.mode);
        let held = Held { id, token, mode, until, hand_overs: 0, lease, open_since };
        // As `Queues::admit`.
        if let Some((_, remaining)) = self.line.conflict(who.mode, || now) {
            self.publish();
            return self.refuse(
                caller,
                machine,
                WaitRefusal::HeldHere { key: 0, remaining },
                world,
            );
        }
        self.granted.push(held);
        self.was_refused = false;
        self.callers[caller].has_mark = false;
        let mut woken = Vec::new();
        self.line.add_holder(held);
        if who.joins.is_some() {
            self.line.open_window(&held);
            let (mut joined, now) = (Vec::new(), self.now);
            let make = |open: &Held, waiter: &Who| Held { id: waiter.caller, ..*open };
            let add = |waiter: &Who, held, _| joined.push((*waiter, held));
            self.line.join_waiting(now, make, add, |who| woken.push(*who));
            for (waiter, held) in joined {
                self.record_join(&held);
                self.callers[waiter.caller].handed_over = Some(held);
                self.callers[waiter.caller].is_woken = true;
            }
        }
        if world.keeps(Rule::EndTheOutage) && self.line.end_outage() {
            self.line.wake_first(|who| woken.push(*who));
        }
        if who.mode.is_shared() {
            self.alone = None;
            self.line.call_run(|who| woken.push(*who));
            let readers = self.line.entries().map(|entry| entry.waiter);
            let next = readers.take_while(Who::is_reader).nth(1);
            if next.is_some_and(|next| self.line.is_queued(&next)) {
                self.broken.push(Claim::ReadersGoTogether);
            }
        }
        self.line.wake_first_beside(who.mode, |who| woken.push(*who));
        self.wake_all(&woken, world);
        self.grant(caller, machine, held);
    }

    fn refuse(
        &mut self,
        caller: usize,
        mut machine: Machine<Held, Signal>,
        refusal: WaitRefusal,
        world: &World,
    ) {
        let (who, mut woken, now) = (self.callers[caller].who, Vec::new(), self.now());
        self.callers[caller].has_followed = false;
        let line = machine.at().map(|_| &mut self.line);
        let step = machine.refuse(line, &who, &now, refusal, |who| woken.push(*who));
        self.was_refused |= who.mode.is_shared()
            && machine.at().is_some()
            && matches!(refusal, WaitRefusal::Held { .. })
            && !matches!(step, Step::Fail(_));
        self.wake_all(&woken, world);
        self.go_on(caller, machine, step);
    }

    fn grant(&mut self, caller: usize, mut machine: Machine<Held, Signal>, held: Held) {
        machine.acquired();
        self.record_overtaken(caller, held);
        self.callers[caller].phase = Phase::Granted(machine, held);
    }

    fn record_overtaken(&mut self, caller: usize, held: Held) {
        let came = self.callers[caller].came;
        // Readers that go together do not overtake each other. If a waiter takes too late the lock that was handed over to it,
        // another one may ask already.
        for other in &mut self.callers {
            let is_in_line = self.line.state(&other.who).is_some();
            let is_before = is_in_line && other.phase.waits() && other.came < came;
            if is_before && !(held.mode.is_shared() && other.who.mode.is_shared()) {
                other.overtaken += u8::from(other.excused & (1 << caller) == 0);
            }
        }
    }

    pub(super) fn wake(&mut self, caller: usize, reason: Reason) {
        let line = &mut self.line;
        let one = &mut self.callers[caller];
        let Phase::Sleeps(mut machine, ..) = mem::replace(&mut one.phase, Phase::Gone) else {
            return;
        };
        one.is_woken = false;
        one.questions = 0;
        let has_fired = match machine.pause() {
            Some(Pause::Split(Question { heard: Some((_, published)), .. })) => {
                self.published > *published
            }
            Some(Pause::Subscribe) => {
                if let Some(signal) = self.signal.filter(|signal| signal.caller == caller) {
                    let signal = Signal { in_effect: true, ..signal };
                    self.signal = Some(signal);
                    line.set_signal(signal);
                }
                false
            }
            _ => false,
        };
        let wake = match reason {
            Reason::Notified => Wake::Notified,
            Reason::Release => Wake::Release,
            Reason::Timer => Wake::Timer,
            Reason::HolderEnded => Wake::HolderEnded,
            Reason::Subscribed => Wake::Subscribed,
            Reason::QuorumIsBack => Wake::QuorumIsBack,
        };
        let who = one.who;
        let step = machine.wake(wake, has_fired, || line.is_queued(&who));
        if matches!(step, Step::Fail(_)) && line.is_queued(&who) {
            self.broken.push(Claim::OnlyTheFirstGivesUp);
        }
        self.go_on(caller, machine, step);
    }

    /// Ends a holding. Returns whether the nodes keep the lock: it is handed over, or other readers share it.
    pub(super) fn release(&mut self, held: Held, world: &World) -> bool {
        let mut woken = Vec::new();
        let is_last = self.line.leave(&held, |who| woken.push(*who));
        self.wake_all(&woken, world);
        if !is_last {
            return true;
        }
        let mut woken = Vec::new();
        let pass = |next: &Who, fairness: &super::fairness::Fairness| {
            let is_allowed = next.mode == Mode::Exclusive
                && held.mode == Mode::Exclusive
                && held.until > self.now
                && fairness.may_continue(held.hand_overs, Duration::ZERO);
            is_allowed.then_some(Held { id: next.caller, hand_overs: held.hand_overs + 1, ..held })
        };
        let handed_over = self.line.hand_over(&held, pass, |who| woken.push(*who));
        self.wake_all(&woken, world);
        let Some((next, held)) = handed_over else { return false };
        self.callers[next.caller].handed_over = Some(held);
        self.callers[next.caller].is_woken = true;
        true
    }

    /// Deletes a lock on the nodes, and lets the next waiter ask. As `ReleasePermit`.
    pub(super) fn delete(&mut self, held: Held, world: &World) {
        if self.are_up {
            self.granted.retain(|other| other.token != held.token);
            self.publish();
        }
        let (mut woken, now, own) = (Vec::new(), self.now, self.line.subscribes());
        self.line.remove_holder(&held);
        // The other process is always subscribed.
        self.line.fairness.record_release(Some(1 + usize::from(own)), own, || now);
        self.line.wake_first_after(&held, |who| woken.push(*who));
        self.end_if_idle();
        self.wake_all(&woken, world);
    }

    /// Drops the place of a caller.
    pub(super) fn leave(&mut self, caller: usize, world: &World) {
        let (who, mut woken) = (self.callers[caller].who, Vec::new());
        self.callers[caller].has_mark = false;
        if world.keeps(Rule::Leave) {
            self.alone = self.alone.filter(|alone| *alone != caller);
            let entries = self.line.entries().map(|entry| entry.waiter);
            let queued: Vec<_> = entries.filter(|other| self.line.is_queued(other)).collect();
            self.line.remove(&who, |who| woken.push(*who));
            let next = woken.iter().filter(|who| queued.contains(who)).copied();
            self.record_calls(&next.collect::<Vec<_>>());
            self.end_if_idle();
        }
        self.wake_all(&woken, world);
        self.callers[caller].phase = Phase::Gone;
        if let Some(held) = self.callers[caller].handed_over.take()
            && !self.release(held, world)
        {
            self.delete(held, world);
        }
    }

    fn end_if_idle(&mut self) {
        self.line.end_if_idle();
        if self.line.is_idle() {
            // Nobody is left whose grace it is.
            self.noticed = None;
        }
    }

    pub(super) fn publish(&mut self) {
        self.published += 1;
        // The signal of the line, if it has one, is the last one.
        if let Some(signal) = &mut self.signal
            && self.line.subscribes()
        {
            signal.published = self.published;
            self.line.set_signal(*signal);
        }
    }

    /// Wakes all waiters, as a shutdown does.
    pub(super) fn close(&mut self, world: &World) {
        self.is_closed = true;
        let all: Vec<_> = self.line.entries().map(|entry| entry.waiter).collect();
        self.wake_all(&all, world);
    }

    /// Returns when the next timer fires.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let timers = self.callers.iter().flat_map(|caller| match &caller.phase {
            Phase::Sleeps(machine, since, until) => {
                let ends = match machine.pause() {
                    Some(Pause::Outage { pause, .. }) => Some(*since + *pause),
                    Some(Pause::Holder(held)) => Some(held.until),
                    _ => None,
                };
                [ends, *until]
            }
            Phase::Granted(_, held) | Phase::Holds(held) => [Some(held.until), None],
            _ => [caller.handed_over.map(|held| held.until), None],
        });
        let granted = self.granted.iter().map(|held| Some(held.until));
        let windows = self.granted.iter().map(|held| Some(held.open_since? + JOIN_WINDOW));
        let granted = granted.chain(windows);
        timers.chain(granted).flatten().filter(|timer| *timer > self.now).min()
    }
}
