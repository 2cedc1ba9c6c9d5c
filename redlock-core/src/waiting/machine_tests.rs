//! The transitions of a waiter, one sequence of events for each: the steps of its machine, and its state in the line.

use std::cell::Cell;
use std::time::Duration;

use super::line::{Line, LineHolder, LineSignal, LineWaiter, WaiterState};
use super::machine::{
    AfterJoin, Failure, Fair, Machine, Pause, Sight, Step, Terms, WaitRefusal, Wake,
    end_outage_before,
};
use super::pauses::Now;
use super::{Instant, JOIN_WINDOW, Mode, TURN};

const MILLI: Duration = Duration::from_millis(1);
const GRACE: Duration = Duration::from_secs(2);
const CLEAR: Sight = Sight { was_handed_over: false, is_closed: false, blocked_key: None };
const TRANSIENT: WaitRefusal = WaitRefusal::NoQuorum { is_transient: true };

/// Readers from this number on ask for a longer lease.
pub(super) const LONG: u32 = 100;

/// A number, a mode, and since when the caller waits. Readers may join the lock of another one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Who(pub(super) u32, pub(super) Mode, pub(super) Instant);

/// A number, a mode, and the end of the lease.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Held(pub(super) usize, pub(super) Mode, pub(super) Instant);

thread_local! {
    /// How often a holder was asked for the rest of its validity.
    static RESTS: Cell<usize> = const { Cell::new(0) };
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Signal(u32);

pub(super) type TestLine = Line<Who, Held, Signal, ()>;
type TestMachine = Machine<Held, Signal>;

impl LineWaiter for Who {
    fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn since(&self) -> Instant {
        self.2
    }

    fn mode(&self) -> Mode {
        self.1
    }

    fn is_reader(&self) -> bool {
        self.1 == Mode::SHARED
    }

    fn joins(&self) -> Option<Duration> {
        self.is_reader().then(|| if self.0 >= LONG { 2 * MILLI } else { MILLI })
    }
}

impl LineHolder for Held {
    fn id(&self) -> usize {
        self.0
    }

    fn entry(&self) -> usize {
        self.0 % 10
    }

    fn mode(&self) -> Mode {
        self.1
    }

    fn may_be_joined(&self, lease: Duration, now: Instant) -> bool {
        lease <= MILLI && self.2 > now
    }

    fn remaining(&self, now: Instant) -> Duration {
        RESTS.set(RESTS.get() + 1);
        self.2.saturating_duration_since(now)
    }

    fn index(&self) -> usize {
        usize::MAX
    }

    fn set_index(&self, _: usize) {}
}

impl LineSignal for Signal {
    type Counts = u32;

    fn is(&self, other: &Self) -> bool {
        self == other
    }

    fn is_in_effect(&self) -> bool {
        true
    }

    fn serves(&self, _: Mode) -> bool {
        true
    }

    fn counts(&self) -> u32 {
        0
    }
}

/// A line, and one waiter with the number 0.
struct Setup {
    begun: Instant,
    passed: Duration,
    line: TestLine,
    who: Who,
    machine: TestMachine,
    woken: Vec<u32>,
}

impl Setup {
    fn new(change: impl FnOnce(&mut Terms)) -> Self {
        let begun = Instant::now();
        let mut terms = Terms {
            mode: Mode::Exclusive,
            has_several_keys: false,
            is_endless: false,
            since: begun,
            deadline: None,
            nodes: 1,
            has_turns: false,
            node_timeout: 50 * MILLI,
            outage_grace: GRACE,
        };
        change(&mut terms);
        let (who, line) = (Who(0, terms.mode, begun), TestLine::default());
        let machine = Machine::new(terms);
        Self { begun, passed: Duration::ZERO, line, who, machine, woken: Vec::new() }
    }

    fn writer() -> Self {
        Self::new(|_| {})
    }

    fn reader() -> Self {
        Self::new(|terms| (terms.mode, terms.has_turns) = (Mode::SHARED, true))
    }

    fn time(&self) -> Instant {
        self.begun + self.passed
    }

    fn now(&self) -> Now {
        Now { at: self.time(), chance: || 0.0 }
    }

    /// Adds another waiter to the line.
    fn add(&mut self, number: u32, mode: Mode) -> Who {
        let who = Who(number, mode, self.begun);
        self.line.insert(&who, || ());
        who
    }

    fn hold(&mut self, mode: Mode, time: Duration) -> Held {
        let held = Held(7, mode, self.time() + time);
        self.line.add_holder(held);
        held
    }

    /// The waiter comes while a quorum of nodes is up.
    fn arrive(&mut self) -> bool {
        let now = self.time();
        let joins = self.machine.arrive(&mut self.line, 0, || true, now);
        if joins {
            self.line.insert(&self.who, || ());
        }
        joins
    }

    fn look_with(&mut self, sight: Sight, fair: Fair) -> Step {
        let now = self.now();
        let line = self.machine.at().map(|_| &mut self.line);
        self.machine.look(line, &self.who, &now, sight, || fair)
    }

    fn look(&mut self) -> Step {
        self.look_with(CLEAR, Fair::First)
    }

    fn refuse(&mut self, refusal: WaitRefusal) -> Step {
        let (now, woken) = (self.now(), &mut self.woken);
        let line = self.machine.at().map(|_| &mut self.line);
        self.machine.refuse(line, &self.who, &now, refusal, |who| woken.push(who.0))
    }

    fn wake(&mut self, wake: Wake) -> Step {
        let is_queued = self.line.is_queued(&self.who);
        self.machine.wake(wake, false, || is_queued)
    }

    fn leave(&mut self, who: Who) {
        let woken = &mut self.woken;
        self.line.remove(&who, |who| woken.push(who.0));
    }

    fn state(&self) -> Option<WaiterState> {
        self.line.state(&self.who)
    }

    fn sleeps(&self, time: Duration) -> Step {
        Step::Sleep(Some(self.time() + time))
    }

    fn pause(&self) -> &'static str {
        self.machine.pause().map(Pause::name).unwrap_or_default()
    }
}

fn held(remaining: Option<Duration>) -> WaitRefusal {
    WaitRefusal::Held { key: 0, remaining, is_split: false }
}

/// Each of them reads the clock.
#[test]
fn a_writer_asks_few_of_many_readers_for_their_rest() {
    let begun = Instant::now();
    for readers in [100, 10_000] {
        let mut line = TestLine::default();
        for number in 0..readers {
            line.add_holder(Held(number, Mode::SHARED, begun + MILLI));
        }
        RESTS.set(0);
        let conflict = line.keeps_out(Mode::Exclusive, || begun).map(|(held, _)| held.0);
        assert_eq!((conflict, RESTS.get()), (Some(readers - 1), 8));
        let over = line.keeps_out(Mode::Exclusive, || begun + MILLI);
        assert_eq!(over, None, "the leases of all of them are over");
        line.add_holder(Held(readers, Mode::SHARED, begun + 2 * MILLI));
        for number in readers + 1..readers + 20 {
            line.add_holder(Held(number, Mode::SHARED, begun + MILLI));
        }
        let (held, rest) = line.keeps_out(Mode::Exclusive, || begun + MILLI).unwrap();
        assert_eq!((held.0, rest), (readers, MILLI), "one that is not among the last ones");
    }
}

#[test]
fn a_waiter_behind_another_one_is_called_when_it_becomes_the_first() {
    let mut setup = Setup::writer();
    let first = setup.add(1, Mode::Exclusive);
    assert!(setup.arrive());
    assert_eq!((setup.look(), setup.pause()), (Step::Sleep(None), "Queue"));
    assert_eq!(setup.state(), Some(WaiterState::Queued));
    setup.leave(first);
    assert_eq!(setup.woken, [0]);
    assert_eq!(setup.wake(Wake::Notified), Step::Look);
    assert_eq!((setup.look(), setup.state()), (Step::Ask, Some(WaiterState::Asking)));
}

#[test]
fn readers_next_to_each_other_are_called_when_one_of_them_gets_the_lock() {
    let mut setup = Setup::reader();
    assert!(setup.arrive());
    assert_eq!(setup.look(), Step::Ask);
    assert_eq!(setup.refuse(held(None)), setup.sleeps(50 * MILLI));
    for number in [1, 2] {
        setup.add(number, Mode::SHARED);
    }
    setup.add(3, Mode::Exclusive);
    setup.add(4, Mode::SHARED);
    let woken = &mut setup.woken;
    setup.line.call_run(|who| woken.push(who.0));
    assert_eq!(setup.woken, [1, 2], "not behind a writer");
}

#[test]
fn a_reader_goes_together_with_a_leading_reader_before_it() {
    let mut setup = Setup::reader();
    setup.add(1, Mode::SHARED);
    let writer = setup.add(2, Mode::Exclusive);
    assert!(setup.arrive());
    assert_eq!(setup.state(), Some(WaiterState::Queued));
    setup.leave(writer);
    assert_eq!((&setup.woken[..], setup.state()), (&[0][..], Some(WaiterState::Called)));
    // A holder is in its way: the first waiter calls it again.
    setup.hold(Mode::Exclusive, 9 * MILLI);
    assert_eq!((setup.look(), setup.pause()), (Step::Sleep(None), "Queue"));
    assert_eq!(setup.state(), Some(WaiterState::Queued));
}

#[test]
fn no_reader_is_called_behind_a_first_one_that_the_nodes_have_refused() {
    let mut setup = Setup::reader();
    let first = setup.add(1, Mode::SHARED);
    assert!(setup.arrive());
    assert_eq!(setup.look(), Step::Ask);
    setup.line.set_if_first(&first, WaiterState::Refused);
    let next = setup.add(2, Mode::SHARED);
    assert_eq!(setup.line.state(&next), Some(WaiterState::Queued), "the one before it still asks");
}

/// The reader that came last has overrun its lease.
#[test]
fn a_waiting_writer_keeps_readers_out_as_long_as_one_of_them_is_valid() {
    let mut setup = Setup::writer();
    setup.hold(Mode::SHARED, 9 * MILLI);
    setup.hold(Mode::SHARED, MILLI);
    setup.add(1, Mode::Exclusive);
    for (passed, rest) in [(0, Some(9 * MILLI)), (2, Some(7 * MILLI)), (9, None)] {
        setup.passed = passed * MILLI;
        let now = setup.time();
        let kept = setup.line.keeps_out(Mode::SHARED, || now).map(|(_, rest)| rest);
        assert_eq!(kept, rest, "after {passed} ms");
    }
}

#[test]
fn the_first_waiter_sleeps_until_the_holder_of_its_process_ends() {
    let mut setup = Setup::writer();
    let held = setup.hold(Mode::Exclusive, 30 * MILLI);
    assert!(setup.arrive());
    assert_eq!(setup.look(), setup.sleeps(32 * MILLI));
    assert_eq!((setup.pause(), setup.state()), ("Holder", Some(WaiterState::Called)));
    let woken = &mut setup.woken;
    setup.line.remove_holder(&held);
    setup.line.wake_first_after(&held, |who| woken.push(who.0));
    assert_eq!(setup.woken, [0]);
    setup.wake(Wake::Notified);
    assert_eq!(setup.look(), Step::Ask);
}

#[test]
fn a_writer_asks_behind_readers_and_pauses_after_a_grant_beside_them() {
    let mut setup = Setup::writer();
    setup.hold(Mode::SHARED, GRACE);
    assert!(setup.arrive());
    assert_eq!(setup.look(), Step::Ask);
    let here = WaitRefusal::HeldHere { key: 0, remaining: GRACE };
    assert_eq!((setup.refuse(here), setup.state()), (Step::Look, Some(WaiterState::Called)));
    assert_eq!((setup.look(), setup.pause()), (setup.sleeps(252 * MILLI), "Holder"));
    setup.passed = 250 * MILLI;
    setup.wake(Wake::Timer);
    assert_eq!(setup.look(), Step::Ask);
}

#[test]
fn a_waiter_goes_on_to_the_line_of_a_key_that_its_process_holds() {
    let mut setup = Setup::new(|terms| terms.has_several_keys = true);
    assert!(setup.arrive());
    let sight = Sight { blocked_key: Some(2), ..CLEAR };
    assert_eq!(setup.look_with(sight, Fair::First), Step::Join(2, AfterJoin::Look));
}

#[test]
fn other_processes_have_their_turn_after_a_release() {
    let mut setup = Setup::writer();
    let begun = setup.begun;
    setup.line.fairness.record_release(Some(2), true, || begun);
    assert!(setup.arrive());
    assert_eq!((setup.look(), setup.pause()), (setup.sleeps(2 * MILLI), "Yield"));
    setup.passed = 2 * MILLI;
    setup.wake(Wake::Timer);
    assert_eq!(setup.look(), Step::Ask);
}

#[test]
fn a_lock_of_several_keys_goes_on_to_the_refused_key_and_pauses_if_nodes_name_one_and_then_another()
{
    let mut setup = Setup::new(|terms| (terms.has_several_keys, terms.nodes) = (true, 3));
    let of_key = |key| WaitRefusal::Held { key, remaining: None, is_split: false };
    // It asks before it joins a line.
    assert_eq!(setup.look(), Step::Ask);
    assert_eq!(setup.refuse(of_key(0)), Step::Join(0, AfterJoin::EndOutage));
    setup.line.insert(&setup.who, || ());
    setup.machine.join(0, &setup.now());
    assert_eq!((setup.look(), setup.pause()), (setup.sleeps(50 * MILLI), "Subscribe"));
    setup.line.set_signal(Signal(1));
    setup.wake(Wake::Subscribed);
    assert_eq!(setup.look(), Step::Ask);
    assert_eq!(setup.refuse(of_key(1)), Step::Join(1, AfterJoin::Look));
    setup.machine.leave();
    setup.machine.join(1, &setup.now());
    setup.line.set(&setup.who, WaiterState::Called);
    assert_eq!((setup.look(), setup.pause()), (setup.sleeps(4 * MILLI), "Yield"));
}

#[test]
fn a_fair_waiter_sleeps_until_its_process_has_the_first_ticket() {
    let mut setup = Setup::writer();
    assert!(setup.arrive());
    assert_eq!((setup.look_with(CLEAR, Fair::Unknown), setup.pause()), (Step::Sleep(None), "Fair"));
    setup.line.record_outage(setup.begun);
    let behind = Fair::Behind(setup.begun + MILLI);
    assert_eq!(setup.look_with(CLEAR, behind), Step::Sleep(None));
    assert_eq!(setup.line.outage(), None, "the conductor has answered since then");
    let none = Step::Fail(Failure::NoConductor);
    assert_eq!(setup.look_with(CLEAR, Fair::NoConductor), none);
    // It counts as waiting, so it keeps its place.
    setup.passed = MILLI;
    assert_eq!(setup.refuse(TRANSIENT), setup.sleeps(GRACE));
    assert_eq!(setup.wake(Wake::Timer), Step::Fail(Failure::Refused));
}

#[test]
fn an_answer_of_the_conductor_ends_an_earlier_outage_only() {
    let mut setup = Setup::writer();
    assert!(setup.arrive());
    setup.line.record_outage(setup.begun);
    end_outage_before(&mut setup.line, setup.begun);
    assert_eq!(setup.line.outage(), Some(setup.begun));
}

#[test]
fn an_older_waiter_goes_in_front_of_a_waiter_that_does_not_ask() {
    for (mode, asks, state) in [
        (Mode::Exclusive, false, WaiterState::Queued),
        (Mode::SHARED, false, WaiterState::Queued),
        (Mode::Exclusive, true, WaiterState::Asking),
    ] {
        let mut setup = Setup::new(|terms| terms.mode = mode);
        setup.who.2 = setup.begun + MILLI;
        assert!(setup.arrive());
        if asks {
            assert_eq!(setup.look(), Step::Ask);
        }
        let older = setup.add(1, Mode::Exclusive);
        assert_eq!((setup.line.is_first(&older), setup.state()), (!asks, Some(state)));
    }
}

/// A holder of its process is in its way now, so it does not ask.
#[test]
fn an_older_waiter_goes_in_front_of_a_refused_one_whose_pause_is_over() {
    let mut setup = Setup::writer();
    setup.who.2 = setup.begun + MILLI;
    assert!(setup.arrive());
    assert_eq!(setup.look(), Step::Ask);
    setup.refuse(held(None));
    setup.hold(Mode::Exclusive, GRACE);
    setup.wake(Wake::Timer);
    setup.look();
    assert_eq!((setup.pause(), setup.state()), ("Holder", Some(WaiterState::Called)));
    let older = setup.add(1, Mode::Exclusive);
    assert_eq!((setup.line.is_first(&older), setup.state()), (true, Some(WaiterState::Queued)));
}

/// Otherwise, readers that get no lock to join would ask one after another.
#[test]
fn a_reader_waits_for_one_answer_to_another_reader() {
    let mut setup = Setup::reader();
    let others = [1, 2].map(|number| setup.add(number, Mode::SHARED));
    assert!(setup.arrive());
    let begun = setup.begun;
    setup.line.begin_question(&others[0], begun);
    assert_eq!((setup.look(), setup.pause()), (setup.sleeps(JOIN_WINDOW), "Reader"));
    setup.line.end_question(&others[0], |_| {});
    setup.line.begin_question(&others[1], begun);
    setup.wake(Wake::Notified);
    assert_eq!(setup.look(), Step::Ask);
}

/// A random walk of the model found a writer that had come earlier, and that a reader behind it overtook.
#[test]
fn a_writer_that_joins_between_readers_holds_up_those_behind_it() {
    let mut setup = Setup::reader();
    assert!(setup.arrive());
    assert_eq!(setup.look(), Step::Ask);
    let later = setup.begun + MILLI;
    let readers = [1, 2].map(|number| Who(number, Mode::SHARED, later));
    for reader in readers {
        setup.line.insert(&reader, || ());
        assert_eq!(setup.line.state(&reader), Some(WaiterState::Called));
    }
    let writer = setup.add(3, Mode::Exclusive);
    for waiter in [writer, readers[0], readers[1]] {
        assert_eq!(setup.line.state(&waiter), Some(WaiterState::Queued));
    }
    assert_eq!(setup.state(), Some(WaiterState::Asking));
}

#[test]
fn a_waiter_that_is_refused_behind_another_one_waits_in_its_place() {
    let mut setup = Setup::writer();
    assert!(setup.arrive());
    assert_eq!(setup.look(), Step::Ask);
    // A lock was handed over to it, and lost.
    let first = Who(1, Mode::Exclusive, setup.begun);
    setup.line.insert_first(&first, || ());
    assert_eq!(setup.refuse(held(None)), Step::Look);
    assert_eq!(setup.state(), Some(WaiterState::Queued));
}

#[test]
fn a_refused_waiter_chooses_its_pause() {
    let split = WaitRefusal::Held { key: 0, remaining: None, is_split: true };
    let long = held(Some(GRACE));
    for (nodes, subscribed, refusal, pause, time) in [
        (1, false, long, "Subscribe", 50 * MILLI),
        (3, false, split, "Subscribe", 50 * MILLI),
        (3, true, split, "Split", 2 * MILLI),
        (3, true, long, "Release", 250 * MILLI),
        (1, true, held(Some(MILLI)), "Release", 3 * MILLI),
        (1, true, held(None), "Release", 2 * MILLI),
        (3, true, held(None), "Split", 2 * MILLI),
    ] {
        let mut setup = Setup::new(|terms| terms.nodes = nodes);
        assert!(setup.arrive());
        if subscribed {
            setup.line.set_signal(Signal(1));
        }
        assert_eq!(setup.look(), Step::Ask);
        assert_eq!(setup.refuse(refusal), setup.sleeps(time), "{refusal:?}");
        assert_eq!((setup.pause(), setup.state()), (pause, Some(WaiterState::Refused)));
        // Its pause ends.
        assert_eq!(setup.wake(Wake::Timer), Step::Look);
        assert_eq!((setup.look(), setup.state()), (Step::Ask, Some(WaiterState::Asking)));
    }
}

#[test]
fn a_waiter_that_a_release_has_woken_skips_the_look_up() {
    for (nodes, skips) in [(1, true), (3, false)] {
        let mut setup = Setup::new(|terms| terms.nodes = nodes);
        assert!(setup.arrive());
        setup.line.set_signal(Signal(1));
        assert_eq!(setup.look(), Step::Ask);
        setup.refuse(held(Some(GRACE)));
        setup.wake(Wake::Release);
        assert_eq!(setup.machine.skips_lookup(), skips);
        assert_eq!(setup.look(), Step::Ask);
        let time = if skips { 10 * MILLI } else { 2 * MILLI };
        assert_eq!(setup.refuse(held(None)), setup.sleeps(time));
    }
}

#[test]
fn a_waiter_keeps_its_place_for_the_grace_of_an_outage() {
    let mut setup = Setup::writer();
    setup.add(1, Mode::Exclusive);
    assert!(setup.arrive());
    let waits_ahead = Who(1, Mode::Exclusive, setup.begun);
    setup.leave(waits_ahead);
    assert_eq!(setup.look(), Step::Ask);
    setup.passed = GRACE / 2;
    assert_eq!(setup.refuse(TRANSIENT), Step::Sleep(Some(setup.begun + GRACE)));
    assert_eq!((setup.pause(), setup.state()), ("Outage", Some(WaiterState::Refused)));
    // Another attempt does not begin another grace.
    setup.wake(Wake::QuorumIsBack);
    assert_eq!(setup.look(), Step::Ask);
    assert_eq!(setup.refuse(TRANSIENT), Step::Sleep(Some(setup.begun + GRACE)));
    // An older waiter asks at the end of the grace.
    setup.line.insert_first(&waits_ahead, || ());
    assert_eq!(setup.wake(Wake::Timer), Step::Look);
}

/// Nobody polls the first waiter, so its attempt never ends. The nodes have failed before this caller came, and nobody knows
/// that before the first waiter leaves.
#[test]
fn an_outage_begins_with_the_first_question_that_finds_it() {
    let mut setup = Setup::writer();
    let first = setup.add(1, Mode::Exclusive);
    setup.line.set(&first, WaiterState::Asking);
    setup.passed = MILLI;
    assert!(setup.arrive());
    assert_eq!(setup.look(), Step::Sleep(None));
    setup.passed = 10 * GRACE;
    setup.leave(first);
    let asked = setup.time();
    setup.wake(Wake::Notified);
    assert_eq!(setup.look(), Step::Ask);
    setup.passed += MILLI;
    assert_eq!(setup.refuse(TRANSIENT), Step::Sleep(Some(asked + GRACE)));
}

#[test]
fn a_new_caller_fails_in_an_outage_and_a_reason_that_lasts_ends_every_wait() {
    let mut setup = Setup::writer();
    assert!(setup.arrive());
    assert_eq!(setup.look(), Step::Ask);
    assert_eq!(setup.refuse(TRANSIENT), Step::Fail(Failure::Refused));
    let mut setup = Setup::writer();
    setup.add(1, Mode::Exclusive);
    setup.line.record_outage(setup.begun);
    assert!(!setup.arrive(), "it asks before it joins a line");
    assert_eq!(setup.look(), Step::Ask);
    assert_eq!(setup.refuse(TRANSIENT), Step::Fail(Failure::Refused));
    let mut setup = Setup::new(|terms| terms.is_endless = true);
    assert!(setup.arrive());
    assert_eq!(setup.look(), Step::Ask);
    let lasting = WaitRefusal::NoQuorum { is_transient: false };
    assert_eq!(setup.refuse(lasting), Step::Fail(Failure::Refused));
}

#[test]
fn a_caller_that_waits_for_ever_waits_through_an_outage_in_the_line() {
    let mut setup = Setup::new(|terms| terms.is_endless = true);
    assert_eq!(setup.look(), Step::Ask);
    assert_eq!(setup.refuse(TRANSIENT), Step::Join(0, AfterJoin::EvaluateRefusal));
    setup.line.insert(&setup.who, || ());
    setup.machine.join(0, &setup.now());
    assert_eq!(setup.refuse(TRANSIENT), Step::Sleep(None));
    let outage = |reconnects| Pause::Outage { pause: 2 * MILLI, reconnects };
    assert_eq!(setup.machine.pause(), Some(&outage(true)));
    assert_eq!(setup.machine.outage_since(), Some(setup.begun));
    setup.wake(Wake::QuorumIsBack);
    assert_eq!(setup.look(), Step::Ask);
    setup.refuse(held(None));
    assert_eq!(setup.machine.outage_since(), None);
}

/// The next outage begins anew for the caller.
#[test]
fn an_outage_is_over_for_a_waiter_when_another_caller_or_the_fair_queue_has_ended_it() {
    for is_fair in [false, true] {
        let mut setup = Setup::new(|terms| terms.is_endless = true);
        assert!(setup.arrive());
        for _ in 0..2 {
            assert_eq!(setup.look(), Step::Ask);
            assert_eq!(setup.refuse(TRANSIENT), Step::Sleep(None));
            let pause = Pause::Outage { pause: 2 * MILLI, reconnects: true };
            assert_eq!(setup.machine.pause(), Some(&pause), "fair: {is_fair}");
            setup.wake(Wake::Notified);
            setup.passed += MILLI;
            if is_fair {
                setup.look_with(CLEAR, Fair::Behind(setup.time()));
            } else {
                setup.line.end_outage();
                setup.look_with(CLEAR, Fair::Unknown);
            }
            assert_eq!(setup.machine.outage_since(), None, "fair: {is_fair}");
            setup.wake(Wake::FairQueue);
        }
    }
}

#[test]
fn an_answer_of_the_nodes_ends_the_outage_and_wakes_the_first_waiter() {
    let mut setup = Setup::writer();
    assert!(setup.arrive());
    assert_eq!(setup.look(), Step::Ask);
    setup.line.insert_first(&Who(1, Mode::Exclusive, setup.begun), || ());
    setup.line.set_signal(Signal(1));
    setup.line.record_outage(setup.begun);
    assert_eq!(setup.refuse(WaitRefusal::Final), Step::Fail(Failure::Refused));
    assert_eq!(setup.woken, [1]);
    assert!(!setup.line.subscribes(), "it may have missed releases");
}

#[test]
fn the_end_of_the_wait_time_ends_a_wait_behind_others_and_allows_one_more_question() {
    let wait = |is_behind| {
        let mut setup = Setup::new(|terms| terms.deadline = Some(terms.since + MILLI));
        if is_behind {
            setup.add(1, Mode::Exclusive);
        }
        assert!(setup.arrive());
        setup.passed = MILLI;
        setup
    };
    assert_eq!(wait(true).look(), Step::Fail(Failure::TimedOut));
    let mut setup = wait(false);
    let begun = setup.begun;
    setup.line.fairness.record_release(Some(2), true, || begun);
    assert_eq!(setup.look(), Step::Ask);
    assert_eq!(setup.refuse(held(None)), Step::Fail(Failure::Refused));
}

#[test]
fn a_lock_is_handed_over_to_the_first_waiter_unless_it_asks() {
    for asks in [false, true] {
        let mut setup = Setup::writer();
        assert!(setup.arrive());
        if asks {
            assert_eq!(setup.look(), Step::Ask);
        }
        setup.add(1, Mode::Exclusive);
        let held = setup.hold(Mode::Exclusive, GRACE);
        let next = Held(8, held.1, held.2);
        let woken = &mut setup.woken;
        let handed_over = setup.line.hand_over(&held, |_, _| Some(next), |who| woken.push(who.0));
        assert_eq!(handed_over.is_none(), asks);
        if !asks {
            assert_eq!(handed_over, Some((setup.who, next)));
            assert_eq!((&setup.woken[..], setup.state()), (&[1][..], None));
            let sight = Sight { was_handed_over: true, ..CLEAR };
            assert_eq!(setup.look_with(sight, Fair::First), Step::Take);
            // It was lost before.
            setup.line.insert_first(&setup.who, || ());
            assert_eq!(setup.state(), Some(WaiterState::Called));
        }
    }
}

#[test]
fn a_shutdown_lets_a_waiter_ask_at_once() {
    let mut setup = Setup::writer();
    setup.add(1, Mode::Exclusive);
    assert!(setup.arrive());
    let sight = Sight { is_closed: true, ..CLEAR };
    assert_eq!(setup.look_with(sight, Fair::First), Step::Ask);
}

#[test]
fn a_reader_wants_a_turn_after_three_releases() {
    let mut setup = Setup::reader();
    assert!(setup.arrive());
    for releases in 1..=3 {
        setup.line.set_signal(Signal(1));
        assert_eq!(setup.look(), Step::Ask);
        setup.refuse(held(Some(GRACE)));
        setup.wake(Wake::Release);
        assert_eq!(setup.machine.wants_turn(), releases == 3);
    }
    // It waits in its place again, as if it had just come.
    assert_eq!(setup.look(), Step::Ask);
    setup.line.insert_first(&Who(1, Mode::Exclusive, setup.begun), || ());
    setup.refuse(held(None));
    assert!(!setup.machine.wants_turn());
}

/// Before the subscription, a release may have passed unnoticed. An answer of the nodes does not count.
#[test]
fn the_begin_of_a_subscription_counts_as_one_release() {
    let mut setup = Setup::reader();
    assert!(setup.arrive());
    assert_eq!(setup.look(), Step::Ask);
    setup.refuse(held(Some(GRACE)));
    assert_eq!(setup.pause(), "Subscribe");
    setup.wake(Wake::Subscribed);
    setup.line.set_signal(Signal(1));
    for releases in 1..=2 {
        assert!(!setup.machine.wants_turn());
        assert_eq!(setup.look(), Step::Ask);
        setup.refuse(held(Some(GRACE)));
        setup.wake(Wake::Timer);
        assert_eq!(setup.look(), Step::Ask);
        setup.refuse(held(Some(GRACE)));
        setup.wake(Wake::Release);
        assert_eq!(setup.machine.wants_turn(), releases == 2);
    }
}

/// Its wish would keep the writer before it out, beyond the turn.
#[test]
fn a_reader_that_is_displaced_while_it_pauses_wants_no_turn() {
    let mut setup = Setup::reader();
    assert!(setup.arrive());
    setup.line.set_signal(Signal(1));
    for _ in 0..3 {
        assert_eq!(setup.look(), Step::Ask);
        setup.refuse(held(Some(GRACE)));
        setup.wake(Wake::Release);
    }
    assert_eq!(setup.look(), Step::Ask);
    setup.refuse(held(Some(GRACE)));
    setup.line.insert_first(&Who(1, Mode::Exclusive, setup.begun), || ());
    assert!(setup.machine.wants_turn());
    setup.wake(Wake::Timer);
    assert_eq!((setup.look(), setup.pause()), (Step::Sleep(None), "Queue"));
    assert!(!setup.machine.wants_turn());
}

#[test]
fn a_line_has_room_for_a_number_of_waiters() {
    let mut setup = Setup::writer();
    assert!(setup.line.has_room(1));
    assert!(setup.arrive());
    assert!(!setup.line.has_room(1));
}

/// A holder of its process keeps it waiting, and not the nodes.
#[test]
fn a_caller_behind_a_holder_of_its_process_joins_the_line_in_an_outage() {
    let mut setup = Setup::writer();
    setup.add(1, Mode::Exclusive);
    setup.hold(Mode::Exclusive, GRACE);
    setup.line.record_outage(setup.begun);
    assert!(setup.arrive());
}

#[test]
fn a_fair_caller_that_comes_in_an_outage_asks_before_its_turn() {
    let mut setup = Setup::writer();
    setup.add(1, Mode::Exclusive);
    setup.line.record_outage(setup.begun);
    assert!(!setup.arrive());
    assert_eq!(setup.look_with(CLEAR, Fair::Unknown), Step::Ask);
}

#[test]
fn the_wait_time_ends_every_sleep() {
    let mut setup = Setup::writer();
    let deadline = setup.begun + GRACE;
    setup.machine = Setup::new(|terms| terms.deadline = Some(deadline)).machine;
    setup.add(1, Mode::Exclusive);
    assert!(setup.arrive());
    assert_eq!(setup.look(), Step::Sleep(Some(deadline)));
}

/// A holder of its process has kept it from asking, so it is no new caller.
#[test]
fn a_caller_that_has_gone_on_to_another_key_keeps_its_place_in_an_outage() {
    let mut setup = Setup::new(|terms| terms.has_several_keys = true);
    let sight = Sight { blocked_key: Some(1), ..CLEAR };
    assert_eq!(setup.look_with(sight, Fair::First), Step::Join(1, AfterJoin::Look));
    let now = setup.now();
    setup.line.insert(&setup.who, || ());
    setup.machine.join(1, &now);
    assert_eq!(setup.look(), Step::Ask);
    assert_eq!(setup.refuse(TRANSIENT), Step::Sleep(Some(setup.begun + GRACE)));
}

/// Only nodes that name one key and then another within a moment disagree.
#[test]
fn a_lock_of_several_keys_goes_on_without_a_pause_for_the_first_time() {
    let mut setup = Setup::new(|terms| (terms.has_several_keys, terms.nodes) = (true, 3));
    assert!(setup.arrive());
    assert_eq!(setup.look(), Step::Ask);
    let refusal = WaitRefusal::Held { key: 1, remaining: Some(GRACE), is_split: false };
    setup.line.set_signal(Signal(1));
    assert_eq!(setup.look(), Step::Ask);
    assert_eq!(setup.refuse(refusal), Step::Join(1, AfterJoin::Look));
    let now = setup.now();
    setup.machine.join(1, &now);
    assert_eq!(setup.look(), Step::Ask);
}

/// The lock of the reader is compatible with that of its process: other processes cannot have it in between.
#[test]
fn a_reader_beside_a_reader_of_its_process_gives_other_processes_no_turn() {
    let mut setup = Setup::reader();
    setup.hold(Mode::SHARED, GRACE);
    assert!(setup.arrive());
    let now = setup.time();
    setup.line.fairness.record_release(None, false, || now);
    assert_eq!(setup.look(), Step::Ask);
}

#[test]
fn a_reader_that_wants_a_turn_does_not_miss_it_while_the_votes_are_split() {
    let split = WaitRefusal::Held { key: 0, remaining: None, is_split: true };
    // Several nodes that do not know the holder may be split, too.
    for (nodes, split) in [(1, split), (5, split), (5, held(None))] {
        misses_no_turn(nodes, split);
    }
}

fn misses_no_turn(nodes: usize, split: WaitRefusal) {
    let mut setup = Setup::new(|terms| {
        (terms.mode, terms.has_turns, terms.nodes) = (Mode::SHARED, true, nodes);
    });
    assert!(setup.arrive());
    setup.line.set_signal(Signal(1));
    for releases in 1..=12 {
        assert_eq!(setup.look(), Step::Ask);
        let step = setup.refuse(split);
        assert_eq!(step == setup.sleeps(TURN / 4), releases > 5, "{releases}: {step:?}");
        assert_eq!(setup.pause(), "Split");
        setup.machine.wake(Wake::Timer, true, || false);
        assert_eq!(setup.machine.wants_turn(), releases >= 3);
    }
    // A holder is known again, so the next callers that meet are others.
    assert_eq!(setup.look(), Step::Ask);
    setup.refuse(held(Some(GRACE)));
    setup.wake(Wake::Timer);
    assert_eq!(setup.look(), Step::Ask);
    assert_eq!(setup.refuse(split), setup.sleeps(2 * MILLI));
}

#[test]
fn neither_the_fair_queue_nor_an_outage_counts_as_a_release() {
    let mut setup = Setup::new(|terms| {
        (terms.mode, terms.has_turns, terms.is_endless) = (Mode::SHARED, true, true);
    });
    assert!(setup.arrive());
    for reconnects in [true, false, false, false] {
        assert_eq!(setup.look_with(CLEAR, Fair::Unknown), Step::Sleep(None));
        setup.wake(Wake::FairQueue);
        assert_eq!(setup.look(), Step::Ask);
        assert_eq!(setup.refuse(TRANSIENT), Step::Sleep(None));
        let pause = setup.machine.pause();
        assert!(
            matches!(pause, Some(Pause::Outage { reconnects: is, .. }) if *is == reconnects),
            "it connects once in an outage: {pause:?}"
        );
        setup.wake(Wake::QuorumIsBack);
    }
    assert!(!setup.machine.wants_turn());
}

#[test]
fn an_outage_ends_the_skipping_of_look_ups() {
    let mut setup = Setup::new(|terms| terms.is_endless = true);
    assert!(setup.arrive());
    setup.line.set_signal(Signal(1));
    assert_eq!(setup.look(), Step::Ask);
    setup.refuse(held(Some(GRACE)));
    setup.wake(Wake::Release);
    assert!(setup.machine.skips_lookup());
    assert_eq!(setup.look(), Step::Ask);
    setup.refuse(TRANSIENT);
    assert!(!setup.machine.skips_lookup());
}

#[test]
fn a_waiter_that_finds_an_outage_behind_another_one_waits_in_its_place() {
    let mut setup = Setup::new(|terms| terms.is_endless = true);
    assert!(setup.arrive());
    assert_eq!(setup.look(), Step::Ask);
    setup.line.insert_first(&Who(1, Mode::Exclusive, setup.begun), || ());
    assert_eq!(setup.refuse(TRANSIENT), Step::Look);
    assert_eq!(setup.state(), Some(WaiterState::Queued));
}
