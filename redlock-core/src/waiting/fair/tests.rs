//! Fair queues on nodes in memory, in paused time.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep, timeout};

use crate::clock::fake::RuntimeClock;
use crate::key::LockKey;
use crate::lock::{Dialect, LockSpec, Mode};
use crate::node::fake::{FakeMode, FakeNode};
use crate::node::{FairOrder, Node, ProcessId, QueueAction, QueueOp, Ticket};
use crate::waiting::tests::{settle, two_processes};
use crate::{LockError, LockGuard, LockManager, LockManagerBuilder, LockRequest, MemoryNode};

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn memory_nodes(count: usize) -> Vec<MemoryNode> {
    (0..count).map(|_| MemoryNode::with_clock(Arc::new(RuntimeClock::new()))).collect()
}

/// Returns a manager, which is a process of its own.
fn process<N: Node + Clone>(nodes: &[N]) -> LockManager {
    let nodes = nodes.iter().map(|node| Arc::new(node.clone()) as Arc<dyn Node>).collect();
    LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new()))
}

fn fake_process(nodes: &[Arc<FakeNode>]) -> LockManager {
    let nodes = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>).collect();
    LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new()))
}

/// Another process holds the lock for the whole test.
fn occupy(nodes: &[Arc<FakeNode>]) {
    for node in nodes {
        node.occupy(3600 * SECOND);
    }
}

fn fair(locks: &LockManager) -> LockRequest {
    locks.lock("a").expire(10 * SECOND).fair(true).wait_time(24 * 3600 * SECOND)
}

type Order = Arc<Mutex<Vec<usize>>>;

/// Starts a fair caller, which writes its number down when it has the lock.
fn caller(locks: &LockManager, number: usize, order: &Order) -> JoinHandle<()> {
    let (request, order) = (fair(locks), Arc::clone(order));
    tokio::spawn(async move {
        let guard = request.acquire().await.unwrap();
        order.lock().push(number);
        sleep(5 * MILLI).await;
        guard.release().await.unwrap();
    })
}

/// Waits until all callers are done.
async fn finish(callers: impl IntoIterator<Item = JoinHandle<()>>) {
    for caller in callers {
        timeout(20 * SECOND, caller).await.expect("the lock within 20 s").unwrap();
    }
}

fn spec() -> LockSpec {
    let key = LockKey::new("a").unwrap();
    LockSpec::new(key, Mode::Exclusive, Dialect::Plain)
}

/// Executes an operation of a process that has no manager, so that its presence is not refreshed.
async fn other_process(node: &impl FairOrder, action: QueueAction) {
    let process = ProcessId::parse("ffff").unwrap();
    node.queue(QueueOp::new(&spec(), process, action)).await.unwrap();
}

async fn enter_other(node: &impl FairOrder, number: u64) {
    let tickets = [Ticket::new(number, Duration::ZERO)];
    other_process(node, QueueAction::Enter { tickets: tickets.into() }).await;
}

#[tokio::test(start_paused = true)]
async fn fair_callers_of_several_processes_get_the_lock_in_the_order_of_their_arrival() {
    for count in [1, 3] {
        let nodes = memory_nodes(count);
        let processes: Vec<_> = (0..4).map(|_| process(&nodes)).collect();
        let (order, holder) =
            (Order::default(), processes[0].lock("a").try_acquire().await.unwrap());
        let mut callers = Vec::new();
        for number in 0..40 {
            callers.push(caller(&processes[(number * 7 + number / 3) % 4], number, &order));
            sleep(MILLI).await;
        }
        let begun = Instant::now();
        holder.release().await.unwrap();
        finish(callers).await;
        assert_eq!(*order.lock(), (0..40).collect::<Vec<_>>(), "{count} nodes");
        // Each waiter is woken by a message, not by a poll.
        assert!(begun.elapsed() < 40 * 10 * MILLI, "{:?}", begun.elapsed());
        settle().await;
        for (locks, node) in processes.iter().zip(&nodes) {
            assert!(locks.queues().is_empty() && locks.fair_queues().is_empty());
            assert!(node.has_empty_queues() && node.is_empty());
        }
    }
}

/// Without the order, a process would hand its lock over to its own waiters.
#[tokio::test(start_paused = true)]
async fn a_lock_is_handed_over_only_to_the_waiter_that_is_next_of_all() {
    let (here, there, _) = two_processes(1);
    let order = Order::default();
    let holder = fair(&here).acquire().await.unwrap();
    let mut callers = Vec::new();
    for (number, locks) in [&here, &there, &here, &here, &there].into_iter().enumerate() {
        callers.push(caller(locks, number, &order));
        sleep(MILLI).await;
    }
    holder.release().await.unwrap();
    finish(callers).await;
    assert_eq!(*order.lock(), [0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_fair_try_does_not_overtake_the_queue() {
    let (here, there, nodes) = two_processes(1);
    enter_other(&nodes[0], 1).await;
    for locks in [&here, &there] {
        let refused = locks.lock("a").fair(true).try_acquire().await.unwrap_err();
        assert!(refused.is_contended(), "{refused}");
        assert_eq!(refused.to_string(), "other callers wait for the lock, and come first");
        // A caller that is not fair does overtake.
        locks.lock("a").try_acquire().await.unwrap().release().await.unwrap();
    }
    other_process(&nodes[0], QueueAction::Leave { numbers: [1].into() }).await;
    here.lock("a").fair(true).try_acquire().await.unwrap().release().await.unwrap();
    assert!(nodes[0].has_empty_queues());
}

/// The node does not know the ticket yet: it follows the reply to the removal of another one.
#[tokio::test(start_paused = true)]
async fn a_fair_try_does_not_overtake_a_waiter_whose_ticket_is_on_its_way() {
    let nodes: Vec<_> = ["x"].map(FakeNode::start).into();
    let [here, there] = [fake_process(&nodes), fake_process(&nodes)];
    nodes[0].set(FakeMode::Up(10 * MILLI));
    let holder = there.lock("a").try_acquire().await.unwrap();
    let mut former = Box::pin(fair(&here).acquire());
    assert!(timeout(100 * MILLI, &mut former).await.is_err());
    drop(former);
    let waiting = tokio::spawn(fair(&here).acquire());
    yield_now().await;
    let (released, tried) = tokio::join!(holder.release(), here.lock("a").fair(true).try_acquire());
    released.unwrap();
    let refused = tried.unwrap_err();
    assert_eq!(refused.to_string(), "other callers wait for the lock, and come first");
    waiting.await.unwrap().unwrap().release().await.unwrap();
    here.lock("a").fair(true).try_acquire().await.unwrap().release().await.unwrap();
}

/// Its process may lose its places, and other processes do not wait for it either.
#[tokio::test(start_paused = true)]
async fn a_waiter_whose_future_is_not_polled_keeps_no_fair_try_out() {
    let (here, there, _) = two_processes(1);
    let holder = there.lock("a").expire(60 * SECOND).try_acquire().await.unwrap();
    let mut stalled = Box::pin(fair(&here).acquire());
    assert!(timeout(100 * MILLI, &mut stalled).await.is_err());
    holder.release().await.unwrap();
    assert!(here.lock("a").fair(true).try_acquire().await.unwrap_err().is_contended());
    sleep(8 * SECOND).await;
    here.lock("a").fair(true).try_acquire().await.unwrap().release().await.unwrap();
    drop(stalled);
}

/// The killed process has the first ticket and one in the middle.
#[tokio::test(start_paused = true)]
async fn a_killed_process_delays_the_others_once_by_its_presence() {
    let (here, there, nodes) = two_processes(1);
    let order = Order::default();
    let mut callers = Vec::new();
    for number in 0..6 {
        enter_other(&nodes[0], number as u64).await;
        callers.push(caller([&here, &there][number % 2], number, &order));
        sleep(MILLI).await;
    }
    let killed = Instant::now();
    finish(callers).await;
    let took = killed.elapsed();
    assert_eq!(*order.lock(), [0, 1, 2, 3, 4, 5]);
    assert!((SECOND * 29 / 10..SECOND * 32 / 10).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_leaves_at_once() {
    let (here, there, nodes) = two_processes(1);
    let holder = here.lock("a").try_acquire().await.unwrap();
    let first = caller(&here, 0, &Order::default());
    sleep(MILLI).await;
    let order = Order::default();
    let second = caller(&there, 1, &order);
    sleep(MILLI).await;
    first.abort();
    settle().await;
    let timed_out = fair(&here).wait_time(20 * MILLI).acquire().await.unwrap_err();
    assert!(timed_out.is_contended(), "{timed_out}");
    let released = Instant::now();
    holder.release().await.unwrap();
    second.await.unwrap();
    assert!(released.elapsed() < 10 * MILLI, "{:?}", released.elapsed());
    settle().await;
    assert!(nodes[0].has_empty_queues());
    assert!(here.fair_queues().is_empty() && there.fair_queues().is_empty());
}

/// The next request of the caller, such as a fair try, looks at the queue.
#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_has_left_the_queue_before_another_task_runs() {
    let nodes = memory_nodes(1);
    let locks = process(&nodes);
    let _holder = locks.lock("a").try_acquire().await.unwrap();
    let mut waiting = Box::pin(fair(&locks).acquire());
    assert!(timeout(100 * MILLI, &mut waiting).await.is_err());
    assert!(!nodes[0].has_empty_queues());
    drop(waiting);
    assert!(nodes[0].has_empty_queues());
}

/// The second waiter gives up while the removal of the first ticket is under way.
#[tokio::test(start_paused = true)]
async fn waiters_that_give_up_one_after_another_leave_no_ticket() {
    let nodes: Vec<_> = ["x"].map(FakeNode::start).into();
    let locks = fake_process(&nodes);
    occupy(&nodes);
    nodes[0].set(FakeMode::Up(10 * MILLI));
    let mut waiting = Vec::new();
    for number in 0..3 {
        waiting.push(caller(&locks, number, &Order::default()));
        sleep(100 * MILLI).await;
    }
    for waiter in waiting {
        waiter.abort();
        sleep(2 * MILLI).await;
    }
    sleep(100 * MILLI).await;
    assert!(nodes[0].queues.has_empty_queues() && locks.fair_queues().is_empty());
}

/// The attendant awaits the removal of another ticket then.
#[tokio::test(start_paused = true)]
async fn a_shutdown_during_a_removal_removes_the_other_tickets_too() {
    let nodes: Vec<_> = ["x"].map(FakeNode::start).into();
    let locks = fake_process(&nodes);
    occupy(&nodes);
    nodes[0].set(FakeMode::Up(10 * MILLI));
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(tokio::spawn(fair(&locks).acquire()));
        sleep(100 * MILLI).await;
    }
    waiting[0].abort();
    sleep(2 * MILLI).await;
    locks.shutdown().await;
    sleep(20 * MILLI).await;
    assert!(nodes[0].queues.has_empty_queues() && locks.fair_queues().is_empty());
    for waiter in waiting.drain(1..) {
        assert!(matches!(waiter.await.unwrap(), Err(LockError::ShutDown)));
    }
}

/// Other callers of its process come and go, which must not keep its places.
#[tokio::test(start_paused = true)]
async fn a_first_waiter_whose_future_is_not_polled_keeps_no_other_process_out() {
    let (here, there, _) = two_processes(1);
    let holder = there.lock("a").expire(60 * SECOND).try_acquire().await.unwrap();
    let mut stalled = Box::pin(fair(&here).acquire());
    assert!(timeout(100 * MILLI, &mut stalled).await.is_err());
    let begun = Instant::now();
    let second = caller(&there, 1, &Order::default());
    let others = tokio::spawn(async move {
        loop {
            let _ = fair(&here).wait_time(100 * MILLI).acquire().await;
            sleep(SECOND / 2).await;
        }
    });
    holder.release().await.unwrap();
    finish([second]).await;
    assert!(begun.elapsed() < 8 * SECOND, "{:?}", begun.elapsed());
    others.abort();
    drop(stalled);
}

/// The removal of a ticket was lost with its connection. The process is present, because it has another waiter.
#[tokio::test(start_paused = true)]
async fn a_ticket_without_a_waiter_is_removed_when_it_is_the_first() {
    let nodes = memory_nodes(1);
    let locks = process(&nodes);
    let op = |number| {
        let tickets = [Ticket::new(number, SECOND)];
        let enter = QueueAction::Enter { tickets: tickets.into() };
        QueueOp::new(&spec(), locks.fair_queues().process(), enter)
    };
    nodes[0].queue(op(1000)).await.unwrap();
    nodes[0].queue(op(1001)).await.unwrap();
    let guard = timeout(SECOND, fair(&locks).acquire()).await.unwrap().unwrap();
    guard.release().await.unwrap();
    settle().await;
    assert!(nodes[0].has_empty_queues());
}

/// A waiter that is first from the beginning needs the refresh, too.
#[tokio::test(start_paused = true)]
async fn the_presence_of_a_process_is_refreshed_as_long_as_it_waits() {
    let (here, there, nodes) = two_processes(1);
    // The keeper has nothing to do at first.
    sleep(10 * SECOND).await;
    let holder = there.lock("a").expire(60 * SECOND).try_acquire().await.unwrap();
    let order = Order::default();
    let first = caller(&here, 0, &order);
    sleep(MILLI).await;
    for _ in 0..100 {
        sleep(SECOND / 10).await;
        let process = here.fair_queues().process();
        let inspect = QueueOp::new(&spec(), process, QueueAction::Inspect);
        let present_for = nodes[0].queue(inspect).await.unwrap().first.unwrap().present_for;
        assert!(present_for >= 1990 * MILLI, "{present_for:?}");
    }
    holder.release().await.unwrap();
    finish([first]).await;
}

/// The waiters of one process keep their order, but its tickets count: the second waiter's ticket was delayed less.
#[tokio::test(start_paused = true)]
async fn waiters_of_a_process_use_its_tickets_in_the_order_of_the_tickets() {
    let nodes = memory_nodes(1);
    let [here, there, holding] = [(); 3].map(|()| process(&nodes));
    let holder = holding.lock("a").try_acquire().await.unwrap();
    let order = Order::default();
    let mut callers = Vec::new();
    for (number, locks) in [&here, &here, &there].into_iter().enumerate() {
        callers.push(caller(locks, number, &order));
        sleep(MILLI).await;
    }
    // The second ticket of `here` is the first, and the first one is the last.
    nodes[0].forget_queues();
    for (locks, ticket, waited) in [(&here, 1, 10), (&there, 0, 5), (&here, 0, 1)] {
        let tickets = [Ticket::new(ticket, waited * SECOND)];
        let enter = QueueAction::Enter { tickets: tickets.into() };
        let process = locks.fair_queues().process();
        nodes[0].queue(QueueOp::new(&spec(), process, enter)).await.unwrap();
    }
    sleep(3 * SECOND / 2).await;
    holder.release().await.unwrap();
    finish(callers).await;
    assert_eq!(*order.lock(), [0, 2, 1]);
    settle().await;
    assert!(nodes[0].has_empty_queues());
}

/// The conductor does not answer when a waiter gives up, and recovers before the presence is over.
#[tokio::test(start_paused = true)]
async fn a_ticket_that_was_not_removed_in_an_outage_does_not_block_the_queue() {
    let nodes: Vec<_> = ["x"].map(FakeNode::start).into();
    let locks = fake_process(&nodes);
    occupy(&nodes);
    let mut first = Box::pin(fair(&locks).acquire());
    let order = Order::default();
    assert!(timeout(SECOND, &mut first).await.is_err());
    let second = caller(&locks, 1, &order);
    sleep(100 * MILLI).await;
    nodes[0].set(FakeMode::Down);
    // The keeper notices the outage.
    sleep(3 * SECOND / 2).await;
    drop(first);
    nodes[0].forget();
    nodes[0].set(FakeMode::Up(Duration::ZERO));
    timeout(3 * SECOND, second).await.unwrap().unwrap();
    settle().await;
    assert!(nodes[0].queues.has_empty_queues());
}

/// As in a `select!` whose other branch runs for long.
#[tokio::test(start_paused = true)]
async fn a_first_waiter_whose_future_is_not_polled_loses_its_place_and_gets_it_back() {
    let (here, there, _) = two_processes(1);
    let holder = there.lock("a").expire(SECOND).try_acquire().await.unwrap();
    let mut stalled = Box::pin(fair(&here).acquire());
    // It has the first ticket, and has seen that the lock is held.
    assert!(timeout(100 * MILLI, &mut stalled).await.is_err());
    let begun = Instant::now();
    let order = Order::default();
    let second = caller(&there, 1, &order);
    holder.release().await.unwrap();
    finish([second]).await;
    let took = begun.elapsed();
    assert!((3 * SECOND..7 * SECOND).contains(&took), "{took:?}");

    // Its ticket is as old as before, so it comes before this caller.
    let holder = there.lock("a").try_acquire().await.unwrap();
    let third = caller(&there, 3, &order);
    sleep(3 * SECOND / 2).await;
    let order_of_stalled = Arc::clone(&order);
    let stalled = tokio::spawn(async move {
        let guard = stalled.await.unwrap();
        order_of_stalled.lock().push(2);
        guard.release().await.unwrap();
    });
    sleep(100 * MILLI).await;
    holder.release().await.unwrap();
    finish([stalled, third]).await;
    assert_eq!(*order.lock(), [1, 2, 3]);
}

/// The store has forgotten the queue, as a restarted server does.
#[tokio::test(start_paused = true)]
async fn waiters_enter_a_forgotten_queue_again_in_their_order() {
    let (here, there, nodes) = two_processes(1);
    let holder = here.lock("a").try_acquire().await.unwrap();
    let order = Order::default();
    let mut callers = Vec::new();
    for (number, locks) in [&there, &here, &there, &here].into_iter().enumerate() {
        callers.push(caller(locks, number, &order));
        sleep(10 * MILLI).await;
    }
    nodes[0].forget_queues();
    callers.push(caller(&here, 4, &order));
    sleep(2 * SECOND).await;
    holder.release().await.unwrap();
    finish(callers).await;
    assert_eq!(*order.lock(), [0, 1, 2, 3, 4]);
}

fn conductor_changes(logs: &redlock_logs::Logs) -> usize {
    logs.count("WARN", "another node keeps the order of fair waiters")
}

#[tokio::test(start_paused = true)]
async fn when_the_conductor_fails_the_waiters_keep_their_order_on_the_next_node() {
    for mode in [FakeMode::Down, FakeMode::Frozen] {
        let logs = redlock_logs::Logs::collect();
        #[cfg(feature = "metrics")]
        let counted = crate::telemetry::Counted::begin();
        let nodes: Vec<_> = ["x", "y", "z"].map(FakeNode::start).into();
        let [here, there] = [fake_process(&nodes), fake_process(&nodes)];
        for node in &nodes {
            node.occupy(3 * SECOND);
        }
        let order = Order::default();
        let mut callers = Vec::new();
        for (number, locks) in [&here, &there, &here, &there].into_iter().enumerate() {
            callers.push(caller(locks, number, &order));
            sleep(10 * MILLI).await;
        }
        assert_eq!(conductor_changes(&logs), 0);
        nodes[0].set(mode);
        sleep(3 * SECOND / 2).await;
        callers.push(caller(&here, 4, &order));
        finish(callers).await;
        assert_eq!(*order.lock(), [0, 1, 2, 3, 4], "{mode:?}");
        // Each of the two managers has its own limit of log lines.
        assert_eq!(conductor_changes(&logs), 2, "{mode:?}");
        #[cfg(feature = "metrics")]
        assert_eq!(counted.events("redlock_conductor_changes_total"), [": 2"]);
        settle().await;
        assert!(nodes.iter().all(|node| node.queues.has_empty_queues()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_node_is_the_conductor_again_when_it_is_back() {
    let nodes: Vec<_> = ["x", "y", "z"].map(FakeNode::start).into();
    let [here, there] = [fake_process(&nodes), fake_process(&nodes)];
    nodes[0].set(FakeMode::Down);
    occupy(&nodes);
    let order = Order::default();
    let first = caller(&here, 0, &order);
    sleep(MILLI).await;
    assert!(!nodes[1].queues.has_empty_queues());
    nodes[0].set(FakeMode::Up(Duration::ZERO));
    sleep(3 * SECOND / 2).await;
    assert!(nodes[1].queues.has_empty_queues() && !nodes[0].queues.has_empty_queues());
    let second = caller(&there, 1, &order);
    sleep(MILLI).await;
    for node in &nodes {
        node.forget();
    }
    finish([first, second]).await;
    assert_eq!(*order.lock(), [0, 1]);
}

/// The first node accepts commands, and never replies. The attendant looks once a second whether it is back.
#[tokio::test(start_paused = true)]
async fn a_frozen_node_before_the_conductor_delays_no_waiter() {
    for offset in (0..100).map(|step| 10 * step) {
        let nodes: Vec<_> = ["x", "y", "z"].map(FakeNode::start).into();
        nodes[0].set(FakeMode::Frozen);
        enter_other(&nodes[1].queues, 1).await;
        let waiting = fair(&fake_process(&nodes)).acquire();
        let waiting = tokio::spawn(async move { (waiting.await, Instant::now()) });
        sleep(3 * SECOND / 2 + offset * MILLI).await;
        assert!(!waiting.is_finished());
        let left = Instant::now();
        other_process(&nodes[1].queues, QueueAction::Leave { numbers: [1].into() }).await;
        let (result, acquired) = waiting.await.unwrap();
        drop(result.unwrap());
        assert_eq!(acquired - left, Duration::ZERO, "after {offset} ms");
    }
}

/// The attendant waits for the replies of the nodes, one after another.
#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_search_of_a_conductor() {
    let nodes: Vec<_> = ["x", "y", "z", "v", "w"].map(FakeNode::start).into();
    let locks = fake_process(&nodes);
    for node in &nodes {
        node.set(FakeMode::Frozen);
    }
    let waiting = tokio::spawn(fair(&locks).acquire());
    // The node timeout is 50 ms. One of them is for the removal of the tickets.
    sleep(75 * MILLI).await;
    let begun = Instant::now();
    locks.shutdown().await;
    assert!(begun.elapsed() <= 51 * MILLI, "{:?}", begun.elapsed());
    assert!(matches!(waiting.await.unwrap(), Err(LockError::ShutDown)));
    assert!(locks.fair_queues().is_empty());
}

/// The attendant has sent the ticket to the next node, whose reply is late.
#[tokio::test(start_paused = true)]
async fn a_shutdown_during_a_search_removes_the_tickets() {
    let nodes: Vec<_> = ["x", "y", "z"].map(FakeNode::start).into();
    let locks = fake_process(&nodes);
    occupy(&nodes);
    let waiting = tokio::spawn(fair(&locks).acquire());
    sleep(SECOND / 2).await;
    nodes[0].set(FakeMode::Broken);
    nodes[1].set(FakeMode::Up(20 * MILLI));
    sleep(SECOND / 2 + 10 * MILLI).await;
    locks.shutdown().await;
    assert!(matches!(waiting.await.unwrap(), Err(LockError::ShutDown)));
    assert!(nodes[1].queues.has_empty_queues() && locks.fair_queues().is_empty());
}

/// The second node becomes the conductor, and forgets the queue before the attendant has subscribed and looks at the order
/// once more.
#[tokio::test(start_paused = true)]
async fn tickets_that_a_node_forgets_before_the_subscription_are_entered_again() {
    for other_enters in [false, true] {
        let nodes: Vec<_> = ["x", "y"].map(FakeNode::start).into();
        let [_, next] = &nodes[..] else { unreachable!() };
        occupy(&nodes);
        let _waiting = tokio::spawn(fair(&fake_process(&nodes)).acquire());
        sleep(SECOND / 2).await;
        nodes[0].set(FakeMode::Broken);
        let enter = || QueueAction::Enter { tickets: [Ticket::new(1, 60 * SECOND)].into() };
        other_process(&next.queues, enter()).await;
        next.set(FakeMode::Up(10 * MILLI));
        sleep(SECOND / 2 + 5 * MILLI).await;
        assert!(!next.queues.has_empty_queues());
        next.queues.forget_queues();
        if other_enters {
            other_process(&next.queues, enter()).await;
        }
        sleep(50 * MILLI).await;
        other_process(&next.queues, QueueAction::Leave { numbers: [1].into() }).await;
        assert!(!next.queues.has_empty_queues(), "other enters: {other_enters}");
    }
}

/// The waiter still pauses when the nodes answer again.
#[tokio::test(start_paused = true)]
async fn a_caller_that_arrives_after_an_outage_does_not_overtake_the_waiters_before_it() {
    for count in [1, 3] {
        let nodes: Vec<_> = ["x", "y", "z"].into_iter().take(count).map(FakeNode::start).collect();
        let locks = fake_process(&nodes);
        occupy(&nodes);
        let order = Order::default();
        let first = caller(&locks, 0, &order);
        sleep(SECOND).await;
        for node in &nodes {
            node.set(FakeMode::Broken);
        }
        // The waiter notices the outage within half a second, and has not given up yet.
        sleep(SECOND).await;
        // A new caller does not wait for the end of the outage.
        let begun = Instant::now();
        let error = fair(&locks).acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
        assert!(begun.elapsed() < 100 * MILLI, "{:?}", begun.elapsed());
        for node in &nodes {
            node.forget();
            node.set(FakeMode::Up(Duration::ZERO));
        }
        let second = caller(&locks, 1, &order);
        finish([first, second]).await;
        assert_eq!(*order.lock(), [0, 1], "{count} nodes");
        settle().await;
        assert!(locks.queues().is_empty() && locks.fair_queues().is_empty());
    }
}

/// No caller gets a fair lock without an order.
#[tokio::test(start_paused = true)]
async fn without_a_conductor_a_fair_caller_fails_as_in_an_outage() {
    let nodes: Vec<_> = ["x"].map(FakeNode::start).into();
    let locks = fake_process(&nodes);
    nodes[0].set(FakeMode::Down);
    for request in [fair(&locks), locks.lock("a").fair(true).wait_time(Duration::ZERO)] {
        let begun = Instant::now();
        let error = request.acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
        assert!(begun.elapsed() < SECOND / 2, "{:?}", begun.elapsed());
    }
    // A caller that was waiting before keeps its place for the grace period.
    nodes[0].set(FakeMode::Up(Duration::ZERO));
    occupy(&nodes);
    let waiting = tokio::spawn(fair(&locks).acquire());
    sleep(SECOND).await;
    nodes[0].set(FakeMode::Down);
    sleep(SECOND).await;
    nodes[0].forget();
    nodes[0].set(FakeMode::Up(Duration::ZERO));
    let guard = timeout(3 * SECOND, waiting).await.unwrap().unwrap().unwrap();
    guard.release().await.unwrap();
}

type FairWaiter = JoinHandle<(Result<LockGuard, LockError>, Instant)>;

/// Returns two callers of two processes, of which the second is behind the first. The nodes have refused the lock to the
/// first only.
async fn two_callers(nodes: &[Arc<FakeNode>]) -> [FairWaiter; 2] {
    occupy(nodes);
    let mut callers = Vec::new();
    for locks in [fake_process(nodes), fake_process(nodes)] {
        let acquire = async move { (fair(&locks).acquire().await, Instant::now()) };
        callers.push(tokio::spawn(acquire));
        sleep(5 * SECOND).await;
    }
    callers.try_into().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_caller_behind_another_process_outlasts_a_short_outage_and_fails_after_a_long_one() {
    // If the first node fails at the arrival of a caller, the keeper enters its ticket on the second node.
    for first_node in [FakeMode::Up(Duration::ZERO), FakeMode::Broken] {
        for (outage, outlasts) in [(SECOND, true), (10 * SECOND, false)] {
            let nodes: Vec<_> = ["x", "y", "z"].map(FakeNode::start).into();
            nodes[0].set(first_node);
            let [first, second] = two_callers(&nodes).await;
            let begun = Instant::now();
            for node in &nodes {
                node.set(FakeMode::Down);
            }
            sleep(outage).await;
            for node in &nodes {
                node.forget();
                node.set(FakeMode::Up(Duration::ZERO));
            }
            for caller in [first, second] {
                let (result, ended) = timeout(20 * SECOND, caller).await.unwrap().unwrap();
                match result {
                    Ok(guard) if outlasts => guard.release().await.unwrap(),
                    Err(LockError::Unavailable { .. }) if !outlasts => {
                        assert!(ended - begun >= 2 * SECOND);
                    }
                    result => panic!("{result:?} after an outage of {outage:?}"),
                }
            }
        }
    }
}

/// Nobody in its process asks the nodes between the outages.
#[tokio::test(start_paused = true)]
async fn a_caller_behind_another_process_has_a_grace_for_each_outage() {
    let nodes: Vec<_> = ["x", "y", "z"].map(FakeNode::start).into();
    occupy(&nodes);
    let _first = tokio::spawn(fair(&fake_process(&nodes)).acquire());
    settle().await;
    let second = fair(&fake_process(&nodes)).wait_time(60 * SECOND).acquire();
    let second = tokio::spawn(second);
    for _ in 0..3 {
        sleep(10 * SECOND).await;
        for mode in [FakeMode::Down, FakeMode::Up(Duration::ZERO)] {
            for node in &nodes {
                node.set(mode);
            }
            sleep(SECOND).await;
        }
    }
    assert!(!second.is_finished());
    // The last outage is over.
    let error = second.await.unwrap().unwrap_err();
    assert!(error.is_contended(), "{error:?}");
}

/// Its ticket was behind another one, so it is no new caller.
#[tokio::test(start_paused = true)]
async fn a_caller_whose_turn_comes_in_an_outage_keeps_its_place_for_the_grace() {
    let nodes: Vec<_> = ["x", "y", "z"].map(FakeNode::start).into();
    let [first, second] = two_callers(&nodes).await;
    for node in &nodes[1..] {
        node.set(FakeMode::Down);
    }
    let (first, its_end) = first.await.unwrap();
    let (second, end) = second.await.unwrap();
    for result in [first, second] {
        assert!(matches!(result, Err(LockError::Unavailable { .. })), "{result:?}");
    }
    assert!(end - its_end >= 2 * SECOND, "{:?}", end - its_end);
}

/// The keeper has not found the node again yet.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_after_an_outage_leaves_no_ticket() {
    let nodes: Vec<_> = ["x"].map(FakeNode::start).into();
    let locks = fake_process(&nodes);
    occupy(&nodes);
    let waiting = tokio::spawn(fair(&locks).acquire());
    sleep(SECOND / 2).await;
    nodes[0].set(FakeMode::Down);
    sleep(SECOND).await;
    nodes[0].set(FakeMode::Up(Duration::ZERO));
    assert!(!nodes[0].queues.has_empty_queues(), "the process is still present");
    waiting.abort();
    settle().await;
    assert!(nodes[0].queues.has_empty_queues());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_removes_all_tickets_and_ends_all_waiting() {
    let (here, there, nodes) = two_processes(1);
    let _holder = there.lock("a").try_acquire().await.unwrap();
    enter_other(&nodes[0], 1).await;
    let mut polled = Box::pin(fair(&here).acquire());
    let mut behind = Box::pin(fair(&here).acquire());
    assert!(timeout(100 * MILLI, &mut polled).await.is_err());
    assert!((&mut behind).now_or_never().is_none());
    here.shutdown().await;
    // The futures have not been polled since, and only the ticket of the other process is left.
    other_process(&nodes[0], QueueAction::Leave { numbers: [1].into() }).await;
    assert!(nodes[0].has_empty_queues());
    for waiting in [polled, behind] {
        let ended = timeout(SECOND, waiting).await.unwrap().unwrap_err();
        assert!(matches!(ended, LockError::ShutDown), "{ended}");
    }
    assert!(nodes[0].has_empty_queues());
}

/// Nobody can tell the waiter any more when its ticket is the first.
#[test]
fn a_waiter_behind_another_process_ends_with_the_runtime_of_its_manager() {
    let [home, other] = [(); 2]
        .map(|()| Builder::new_current_thread().enable_all().start_paused(true).build().unwrap());
    let node = [MemoryNode::new()];
    let (locks, mut waiting) = home.block_on(async {
        let locks = process(&node);
        enter_other(&node[0], 1).await;
        let mut waiting = Box::pin(fair(&locks).acquire());
        assert!(timeout(100 * MILLI, &mut waiting).await.is_err());
        (locks, waiting)
    });
    drop(home);
    let ended = other.block_on(async { timeout(SECOND, &mut waiting).await });
    let ended = ended.expect("the wait ends").unwrap_err();
    assert!(matches!(ended, LockError::RuntimeEnded), "{ended}");
    drop(waiting);
    assert!(locks.queues().is_empty() && locks.fair_queues().is_empty());
}

/// The holder waits for its sibling, which waits behind another process.
#[tokio::test(start_paused = true)]
async fn a_fair_caller_does_not_wait_for_a_lock_of_its_own_scope() {
    let (here, there, nodes) = two_processes(1);
    let blocker = there.lock("a").try_acquire().await.unwrap();
    enter_other(&nodes[0], 1).await;
    let both = crate::scope(async {
        let waiting = fair(&here).reentrant(true).acquire();
        let holding = async {
            sleep(MILLI).await;
            blocker.release().await.unwrap();
            let guard = here.lock("a").try_acquire().await.unwrap();
            (guard, Instant::now())
        };
        let (shared, (guard, held_since)) = tokio::join!(waiting, holding);
        assert!(held_since.elapsed() < SECOND, "{:?}", held_since.elapsed());
        drop((shared.unwrap(), guard));
    });
    timeout(10 * SECOND, both).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fair_request_needs_nodes_with_fair_queues() {
    let (node, _sent) = crate::node::deferring::DeferringNode::new();
    let locks = process_of(Arc::new(node));
    let error = fair(&locks).acquire().await.unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, LockError::InvalidOption(_)), "{error:?}");
    assert!(message.starts_with("fair is true, but must be unset: the node"), "{message}");
}

fn process_of(node: Arc<dyn Node>) -> LockManager {
    LockManagerBuilder::with_nodes(vec![node], Arc::new(RuntimeClock::new()))
}

/// There is no task that could enter the ticket. A caller that waits without a runtime would wait for ever.
#[test]
fn a_fair_caller_outside_of_every_runtime_fails_at_once() {
    for request in [fair, |locks: &LockManager| fair(locks).wait_forever()] {
        let locks = LockManager::in_memory();
        let error = request(&locks).acquire().now_or_never().expect("it waits").unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        assert!(error.diagnostics().to_string().contains("is not driven"), "{error:?}");
        assert!(locks.fair_queues().is_empty());
    }
}

/// A caller that drops its future polls the node, whose timer would panic after the end of the runtime.
#[test]
fn a_node_is_not_polled_after_the_end_of_its_runtime() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (polled, polls) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let (waiting, _subscription) = runtime.block_on(async {
        let nodes = [FakeNode::start("x")];
        occupy(&nodes);
        let locks = fake_process(&nodes);
        let mut waiting = Box::pin(async move { fair(&locks).acquire().await });
        assert!(timeout(100 * MILLI, &mut waiting).await.is_err());
        enter_other(&nodes[0].queues, 1).await;
        // Called by the removal of the first ticket, before its timer.
        let notify = Arc::new(move || {
            polled.send(()).unwrap();
            let _ = may_go_on.lock().recv();
        });
        nodes[0].set(FakeMode::Up(MILLI));
        let other = ProcessId::parse("ffff").unwrap();
        (waiting, nodes[0].subscribe_queue(&spec(), other, notify))
    });
    let caller = std::thread::spawn(move || drop(waiting));
    polls.recv().unwrap();
    let end = std::thread::spawn(move || drop(runtime));
    std::thread::sleep(100 * MILLI);
    drop(go_on);
    end.join().unwrap();
    caller.join().expect("the caller panicked");
}
