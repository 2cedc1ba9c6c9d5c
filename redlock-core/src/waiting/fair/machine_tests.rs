//! The machine of a fair queue, event by event.

use std::time::Duration;

use tokio::time::Instant;

use super::machine::{FairAction, FairMachine, FairPosition, FairReply, First, Operation};

type Failure = &'static str;

const STALL: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);

/// A machine on two nodes at a time.
struct Queue {
    machine: FairMachine<Failure>,
    now: Instant,
}

impl Queue {
    fn new() -> Self {
        let now = Instant::now();
        Self { machine: FairMachine::new(2, 0, now), now }
    }

    fn next(&mut self) -> FairAction<Failure> {
        self.machine.next(self.now, false)
    }

    fn replied(&mut self, first: First) {
        self.machine.replied(Ok(FairReply { was_present: true, first: Some(first) }), self.now);
    }

    /// Adds a waiter, which enters, and is the first.
    fn enter_first(number: u64) -> Self {
        let mut queue = Self::new();
        queue.machine.add(number, queue.now);
        assert_eq!(queue.next(), enter(&[number]));
        queue.replied(First::Own(number));
        assert_eq!(queue.next(), FairAction::Record(0, None));
        queue.rest();
        queue
    }

    /// Adds a further waiter, which enters.
    fn enter(&mut self, number: u64, first: First) {
        self.machine.add(number, self.now);
        assert_eq!(self.next(), enter(&[number]));
        self.replied(first);
        assert_eq!(self.next(), FairAction::Record(0, None));
    }

    /// Adds a waiter, which enters behind that of another process.
    fn enter_behind(number: u64) -> Self {
        let mut queue = Self::new();
        queue.enter(number, First::Other(3 * SECOND));
        assert_eq!(queue.next(), FairAction::Subscribe(0));
        queue.machine.subscribed();
        assert_eq!(queue.next(), FairAction::Call(0, Operation::Refresh));
        queue.replied(First::Other(3 * SECOND));
        queue.rest();
        queue
    }

    fn rest(&mut self) {
        let action = self.next();
        assert!(matches!(action, FairAction::Wait(Some(_))), "{action:?}");
    }
}

fn enter(numbers: &[u64]) -> FairAction<Failure> {
    let tickets = numbers.iter().map(|number| (*number, Duration::ZERO)).collect();
    FairAction::Call(0, Operation::Enter(tickets))
}

fn leave(numbers: &[u64]) -> FairAction<Failure> {
    FairAction::Call(0, Operation::Leave(numbers.into()))
}

/// Another waiter of the process leaves meanwhile, and the conductor names the first ticket of the process once more.
#[test]
fn a_process_that_has_stalled_is_not_first_when_it_looks_again() {
    let mut queue = Queue::enter_first(0);
    queue.enter(1, First::Own(0));
    queue.now += STALL;
    queue.rest();
    assert!(queue.machine.may_have_stalled(queue.now) && !queue.machine.is_first());

    queue.machine.remove(1);
    assert_eq!(queue.next(), leave(&[1]));
    queue.replied(First::Own(0));
    queue.rest();
    assert!(!queue.machine.is_first());
    assert_eq!(queue.machine.look(0, queue.now), FairPosition::Unknown);
    assert!(!queue.machine.may_have_stalled(queue.now), "it enters its tickets again");
    assert_eq!(queue.next(), FairAction::Call(0, Operation::Enter(vec![(0, STALL)])));
    queue.replied(First::Own(0));
    assert!(matches!(queue.machine.look(0, queue.now), FairPosition::First(..)));
}

/// A holder of its process keeps the first waiter from asking.
#[test]
fn a_first_waiter_behind_a_holder_of_its_process_has_not_stalled() {
    let mut queue = Queue::enter_first(0);
    queue.now += STALL;
    assert!(queue.machine.may_have_stalled(queue.now));
    assert_eq!(queue.machine.next(queue.now, true), FairAction::Call(0, Operation::Refresh));
}

/// The simulation found a ticket that stayed for 3 s: a waiter whose own ticket was not sent yet had it.
#[test]
fn a_ticket_is_removed_whoever_has_it() {
    let mut queue = Queue::enter_first(0);
    queue.machine.add(1, queue.now);
    queue.machine.take_first(1);
    queue.machine.remove(1);
    assert!(!queue.machine.is_first());
    assert_eq!(queue.next(), leave(&[0]));
    queue.machine.replied(Ok(FairReply { was_present: true, first: None }), queue.now);
    assert_eq!(queue.next(), enter(&[1]));
}

/// Otherwise the removal could arrive at the node before the ticket, which then has no waiter.
#[test]
fn a_ticket_leaves_after_it_has_entered() {
    let mut queue = Queue::new();
    queue.machine.add(0, queue.now);
    assert_eq!(queue.next(), enter(&[0]));
    queue.machine.remove(0);
    assert_eq!(queue.next(), FairAction::Wait(None));
    queue.replied(First::Own(0));
    assert_eq!(queue.next(), FairAction::Record(0, None));
    assert_eq!(queue.next(), leave(&[0]));
    queue.machine.replied(Ok(FairReply { was_present: true, first: None }), queue.now);
    assert_eq!(queue.next(), FairAction::End);
}

/// The simulation found callers of other processes that asked during the subscription, and got the lock first.
#[test]
fn tickets_that_come_or_go_while_another_one_enters_do_not_wait_for_the_subscription() {
    let behind = First::Other(3 * SECOND);
    let mut queue = Queue::new();
    queue.machine.add(0, queue.now);
    assert_eq!(queue.next(), enter(&[0]));
    queue.machine.add(1, queue.now);
    queue.replied(behind);
    assert_eq!(queue.next(), FairAction::Record(0, None));
    assert_eq!(queue.next(), enter(&[1]));
    queue.machine.remove(0);
    queue.replied(behind);
    assert_eq!(queue.next(), FairAction::Record(0, None));
    assert_eq!(queue.next(), leave(&[0]));
    queue.replied(behind);
    assert_eq!(queue.next(), FairAction::Subscribe(0));
}

/// The reply to the ticket may be lost, and not the ticket.
#[test]
fn a_ticket_without_a_reply_leaves_too() {
    let mut queue = Queue::new();
    queue.machine.add(0, queue.now);
    assert_eq!(queue.next(), enter(&[0]));
    queue.machine.remove(0);
    queue.machine.replied(Err("no reply"), queue.now);
    assert_eq!(queue.next(), FairAction::Check(1));
    queue.machine.checked(Some("down"), queue.now);
    assert_eq!(queue.next(), FairAction::Remove(vec![0], vec![0]));
    assert_eq!(queue.next(), FairAction::End);
}

#[test]
fn a_shutdown_abandons_a_search_and_no_removal() {
    let mut queue = Queue::enter_first(0);
    queue.machine.add(1, queue.now);
    queue.machine.add(2, queue.now);
    assert_eq!(queue.next(), enter(&[1, 2]));
    assert!(queue.machine.close());
    assert_eq!(queue.next(), leave(&[0, 1, 2]));
    assert_eq!(queue.next(), FairAction::Wait(None));
    assert!(!queue.machine.close());
    queue.replied(First::Other(SECOND));
    assert_eq!(queue.next(), FairAction::End);
}

/// A node that stands before the conductor, and answers, gets the tickets. If it fails then, the conductor keeps them.
#[test]
fn a_node_that_answers_only_once_does_not_become_the_conductor() {
    let mut queue = Queue::new();
    queue.machine.add(0, queue.now);
    assert_eq!(queue.next(), enter(&[0]));
    queue.machine.replied(Err("broken"), queue.now);
    assert_eq!(queue.next(), FairAction::Check(1));
    queue.machine.checked(None, queue.now);
    let second = |operation| FairAction::Call(1, operation);
    assert_eq!(queue.next(), second(Operation::Enter(vec![(0, Duration::ZERO)])));
    queue.replied(First::Own(0));
    assert_eq!(queue.next(), FairAction::Record(1, Some("broken")));
    assert_eq!(queue.next(), FairAction::Remove(vec![0], vec![0]));
    queue.rest();

    queue.now += SECOND;
    assert_eq!(queue.next(), second(Operation::Refresh));
    queue.replied(First::Own(0));
    assert_eq!(queue.next(), FairAction::Probe(1));
    queue.rest();
    queue.machine.probed(Some(0));
    assert_eq!(queue.next(), FairAction::Call(0, Operation::Enter(vec![(0, SECOND)])));
    queue.machine.replied(Err("broken"), queue.now);
    queue.rest();
    queue.machine.remove(0);
    assert_eq!(queue.next(), FairAction::Remove(vec![0], vec![0]));
    assert_eq!(queue.next(), second(Operation::Leave(vec![0])));
}

#[test]
fn a_waiter_that_comes_while_another_one_enters_is_next() {
    let mut queue = Queue::new();
    queue.machine.add(0, queue.now);
    assert_eq!(queue.next(), enter(&[0]));
    queue.machine.add(1, queue.now);
    queue.replied(First::Own(0));
    assert_eq!(queue.next(), FairAction::Record(0, None));
    assert_eq!(queue.next(), enter(&[1]));
}

/// The node was restarted before the second waiter came.
#[test]
fn all_tickets_enter_again_at_once_on_a_node_that_has_forgotten_them() {
    let mut queue = Queue::enter_first(0);
    queue.machine.add(1, queue.now);
    assert_eq!(queue.next(), enter(&[1]));
    queue
        .machine
        .replied(Ok(FairReply { was_present: false, first: Some(First::Own(1)) }), queue.now);
    assert_eq!(queue.next(), FairAction::Record(0, None));
    assert_eq!(queue.next(), enter(&[0]));
}

/// The process is present, but somebody has deleted the queue.
#[test]
fn tickets_that_an_empty_queue_does_not_have_enter_again() {
    let mut queue = Queue::enter_behind(0);
    queue.now += SECOND;
    assert_eq!(queue.next(), FairAction::Call(0, Operation::Refresh));
    queue.machine.replied(Ok(FairReply { was_present: true, first: None }), queue.now);
    assert_eq!(queue.next(), FairAction::Call(0, Operation::Enter(vec![(0, SECOND)])));
}

/// The reply came before its ticket, so it says nothing about it. In an outage, it would be taken for an answer.
#[test]
fn a_waiter_is_behind_others_from_its_ticket_on_and_is_told() {
    let mut queue = Queue::enter_behind(0);
    queue.machine.add(1, queue.now);
    assert_eq!(queue.machine.look(1, queue.now), FairPosition::Unknown);
    assert!(matches!(queue.machine.look(0, queue.now), FairPosition::Behind(_)));
    assert_eq!(queue.next(), enter(&[1]));
    assert_eq!(queue.machine.changes(), queue.machine.seen(1));
    queue.replied(First::Other(3 * SECOND));
    assert!(queue.machine.changes() > queue.machine.seen(1));
    assert!(matches!(queue.machine.look(1, queue.now), FairPosition::Behind(_)));
    assert_eq!(queue.next(), FairAction::Record(0, None));
    // It subscribes once.
    queue.rest();
}

#[test]
fn a_waiter_is_told_once_for_each_search_that_no_node_keeps_the_order() {
    let mut queue = Queue::new();
    queue.machine.add(0, queue.now);
    assert_eq!(queue.next(), enter(&[0]));
    queue.machine.replied(Err("broken"), queue.now);
    for _ in 0..2 {
        assert_eq!(queue.next(), FairAction::Check(1));
        queue.machine.checked(Some("down"), queue.now);
        let reasons = FairPosition::NoConductor(vec!["broken", "down"]);
        assert_eq!(queue.machine.look(0, queue.now), reasons);
        assert_eq!(queue.machine.look(0, queue.now), FairPosition::Unknown);
        // The waiter that looks again begins another search.
        assert_eq!(queue.next(), FairAction::Check(0));
        queue.machine.checked(Some("broken"), queue.now);
    }
}

/// The conductor was the last node when the probe began.
#[test]
fn a_node_behind_the_conductor_that_answers_gets_no_ticket() {
    let now = Instant::now();
    let mut queue = Queue { machine: FairMachine::new(3, 2, now), now };
    let call = |node, operation| FairAction::Call(node, operation);
    queue.machine.add(0, queue.now);
    assert_eq!(queue.next(), call(2, Operation::Enter(vec![(0, Duration::ZERO)])));
    queue.replied(First::Own(0));
    assert_eq!(queue.next(), FairAction::Record(2, None));
    for _ in 0..2 {
        queue.now += SECOND;
        queue.machine.look(0, queue.now);
        assert_eq!(queue.next(), call(2, Operation::Refresh));
        queue.replied(First::Own(0));
        assert_eq!(queue.next(), FairAction::Probe(2), "once for each refresh");
        queue.machine.probed(None);
    }
    queue.now += SECOND;
    assert_eq!(queue.next(), call(2, Operation::Refresh));
    queue.replied(First::Own(0));
    assert_eq!(queue.next(), FairAction::Probe(2));
    queue.now += SECOND;
    queue.machine.look(0, queue.now);
    assert_eq!(queue.next(), call(2, Operation::Refresh));
    queue.machine.replied(Err("broken"), queue.now);
    assert_eq!(queue.next(), FairAction::Check(0));
    queue.machine.checked(None, queue.now);
    assert_eq!(queue.next(), call(0, Operation::Enter(vec![(0, 4 * SECOND)])));
    queue.replied(First::Own(0));
    assert_eq!(queue.next(), FairAction::Record(0, None));
    assert_eq!(queue.next(), FairAction::Remove(vec![2], vec![0]));
    queue.machine.probed(Some(1));
    queue.rest();
}
