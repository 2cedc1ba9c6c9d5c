//! The line of a key alone: calls and wake-ups of its waiters, and readers that go together or join a lock.

use std::time::Duration;

use super::line::WaiterState;
use super::machine_tests::{Held, LONG, TestLine, Who};
use super::{Instant, Mode};

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A line with the waiters of these modes, numbered from 1 on, which came one after another.
struct Setup {
    begun: Instant,
    line: TestLine,
    woken: Vec<u32>,
}

impl Setup {
    fn new(modes: impl IntoIterator<Item = Mode>) -> Self {
        let begun = Instant::now();
        let mut setup = Self { begun, line: TestLine::default(), woken: Vec::new() };
        for (number, mode) in (1..).zip(modes) {
            setup.line.insert(&setup.who(number, mode), || ());
        }
        setup
    }

    /// Returns the waiter with this number: a higher one has come later.
    fn who(&self, number: u32, mode: Mode) -> Who {
        Who(number, mode, self.begun + SECOND + Duration::from_millis(number.into()))
    }

    fn hold(&mut self, number: usize, mode: Mode) -> Held {
        let held = Held(number, mode, self.begun + SECOND);
        self.line.add_holder(held);
        held
    }

    /// The nodes grant a lock that readers may join.
    fn open(&mut self) -> Held {
        let held = self.hold(7, Mode::SHARED);
        self.line.open_window(&held);
        held
    }

    fn join(&mut self, number: usize) -> Option<Held> {
        self.line.join(MILLI, self.begun, |open| Held(number, open.1, open.2))
    }

    fn state(&self, number: u32) -> Option<WaiterState> {
        self.line.state(&self.who(number, Mode::SHARED))
    }

    /// Returns the waiters that `f` has woken.
    fn woken<T>(&mut self, f: impl FnOnce(&mut TestLine, &mut dyn FnMut(&Who)) -> T) -> Vec<u32> {
        let woken = &mut self.woken;
        f(&mut self.line, &mut |who| woken.push(who.0));
        std::mem::take(woken)
    }
}

#[test]
fn a_writer_closes_the_window_when_it_comes_and_when_it_joins_the_line() {
    let mut setup = Setup::new([]);
    setup.open();
    assert!(setup.join(17).is_some());
    assert!(setup.line.keeps_out(Mode::SHARED, || setup.begun).is_none());
    assert!(setup.join(27).is_some(), "a reader has come");
    assert!(setup.line.keeps_out(Mode::Exclusive, || setup.begun).is_some());
    assert!(setup.join(37).is_none(), "a writer has come");
    // It asks the nodes before it joins the line, and they have granted a reader the lock meanwhile.
    let mut setup = Setup::new([]);
    setup.open();
    let writer = setup.who(1, Mode::Exclusive);
    setup.line.insert(&writer, || ());
    assert!(setup.join(17).is_none());
}

#[test]
fn a_waiting_writer_keeps_out_readers_that_do_not_queue() {
    for (waiter, is_kept_out) in [(Mode::Exclusive, true), (Mode::SHARED, false)] {
        let mut setup = Setup::new([waiter]);
        let held = setup.hold(7, Mode::SHARED);
        let kept_out = setup.line.keeps_out(Mode::SHARED, || setup.begun);
        assert_eq!(kept_out.is_some(), is_kept_out);
        assert!(setup.line.remove_holder(&held));
        assert!(setup.line.keeps_out(Mode::SHARED, || setup.begun).is_none(), "nobody holds it");
    }
}

/// The one behind it may not, because its lease is longer.
#[test]
fn a_waiter_is_called_when_the_reader_before_it_has_joined_a_lock() {
    let mut setup = Setup::new([Mode::SHARED]);
    let (now, stays) = (setup.begun, setup.who(LONG, Mode::SHARED));
    setup.line.set(&setup.who(1, Mode::SHARED), WaiterState::Refused);
    setup.line.insert(&stays, || ());
    assert_eq!(setup.state(LONG), Some(WaiterState::Queued));
    setup.open();
    let mut joined = Vec::new();
    let woken = setup.woken(|line, wake| {
        let make = |open: &Held, _: &Who| Held(17, open.1, open.2);
        line.join_waiting(now, make, |waiter, _, _| joined.push(waiter.0), wake);
    });
    assert_eq!((joined, woken), (vec![1], vec![LONG]));
    assert_eq!(setup.state(LONG), Some(WaiterState::Called));
}

/// Its callers rely on their lock no longer.
#[test]
fn a_new_holder_ends_the_holding_and_the_window_of_others() {
    let mut setup = Setup::new([]);
    setup.open();
    let held = setup.hold(8, Mode::Exclusive);
    assert_eq!(setup.line.holders(), [held]);
    assert!(setup.join(17).is_none());
}

/// It looks for another holder to wait for.
#[test]
fn the_first_waiter_is_woken_when_the_holder_leaves_for_which_it_waits() {
    let mut setup = Setup::new([]);
    let first = setup.open();
    let second = setup.join(17).unwrap();
    let third = setup.join(27).unwrap();
    let writer = setup.who(1, Mode::Exclusive);
    setup.line.insert(&writer, || ());
    setup.line.watch(&writer, second.0);
    assert!(setup.woken(|line, wake| assert!(!line.leave(&third, wake))).is_empty());
    assert_eq!(setup.woken(|line, wake| assert!(!line.leave(&second, wake))), [1]);
    assert!(setup.woken(|line, wake| assert!(line.leave(&first, wake))).is_empty());
    // The nodes have deleted the lock, and the waiter pauses for another reason.
    assert!(setup.line.remove_holder(&first));
    assert_eq!(setup.woken(|line, wake| line.wake_first_after(&first, wake)), [1]);
}

#[test]
fn readers_that_wait_for_an_answer_ask_themselves_when_it_is_of_no_use() {
    let mut setup = Setup::new([Mode::SHARED, Mode::SHARED, Mode::SHARED, Mode::Exclusive]);
    let (asker, now) = (setup.who(1, Mode::SHARED), setup.begun);
    setup.line.begin_question(&asker, now);
    setup.line.set(&asker, WaiterState::Asking);
    assert!(setup.line.follows(&setup.who(2, Mode::SHARED), now).is_some());
    setup.line.set(&setup.who(3, Mode::SHARED), WaiterState::Queued);
    let woken = setup.woken(|line, wake| line.end_question(&asker, wake));
    assert_eq!(woken, [2], "not one that was not called");
    assert!(setup.line.follows(&setup.who(2, Mode::SHARED), now).is_none());
    assert!(setup.woken(|line, wake| line.end_question(&asker, wake)).is_empty());
}

#[test]
fn an_older_reader_goes_together_with_the_readers_behind_it() {
    let mut setup = Setup::new([Mode::SHARED, Mode::SHARED]);
    let older = setup.who(0, Mode::SHARED);
    setup.line.insert(&older, || ());
    assert!(setup.line.is_first(&older));
    for number in 0..=2 {
        assert_eq!(setup.state(number), Some(WaiterState::Called), "{number}");
    }
}

#[test]
fn a_new_holder_wakes_the_first_waiter_unless_readers_keep_it_out_in_any_case() {
    for (first, held, is_woken) in [
        (Mode::Exclusive, Mode::SHARED, false),
        (Mode::Exclusive, Mode::Exclusive, true),
        (Mode::SHARED, Mode::SHARED, true),
        (Mode::SHARED, Mode::Exclusive, true),
    ] {
        let mut setup = Setup::new([first]);
        let woken = setup.woken(|line, wake| line.wake_first_beside(held, wake));
        assert_eq!(woken == [1], is_woken, "{first:?} beside {held:?}");
    }
}

/// The nodes have refused it, and an older waiter has been put before it since.
#[test]
fn a_reader_that_was_displaced_goes_together_with_others_again() {
    let mut setup = Setup::new([Mode::SHARED]);
    let (reader, writer) = (setup.who(1, Mode::SHARED), setup.who(0, Mode::Exclusive));
    assert_eq!(setup.line.set_if_first(&reader, WaiterState::Refused), Some(true));
    setup.line.insert_first(&writer, || ());
    assert_eq!(setup.state(1), Some(WaiterState::Queued));
    assert_eq!(setup.woken(|line, wake| assert!(line.remove(&writer, wake))), [1]);
    setup.line.insert(&setup.who(2, Mode::SHARED), || ());
    assert_eq!(setup.state(2), Some(WaiterState::Called));
}
