//! The number of lines that a manager writes into the log, in paused time.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use redlock_logs::Logs;
use tokio::time::sleep;

#[cfg(feature = "redis")]
use crate::ConnectError;
use crate::clock::fake::RuntimeClock;
use crate::node::Node;
use crate::node::fake::{FakeMode, FakeNode};
use crate::{LockManager, LockManagerBuilder, MemoryNode};

const SECOND: Duration = Duration::from_secs(1);

fn manager() -> LockManager {
    let clock = Arc::new(RuntimeClock::new());
    let node = MemoryNode::with_clock(Arc::<RuntimeClock>::clone(&clock));
    LockManagerBuilder::with_nodes(vec![Arc::new(node)], clock)
}

/// Each loss is an event (loss is never silent), and one warning per second stands for all of them.
#[tokio::test(start_paused = true)]
async fn thousands_of_locks_that_are_lost_at_once_share_a_warning() {
    const LOCKS: usize = 2000;
    let logs = Logs::collect();
    let (locks, others) = (manager(), manager());
    let mut held = Vec::new();
    for lock in 0..LOCKS {
        let request = locks.lock(format!("order:{lock}")).expire(SECOND);
        held.push(request.try_acquire().await.unwrap());
    }
    let one = others.lock("of another manager").expire(SECOND).try_acquire().await.unwrap();
    for guard in &held {
        guard.lost().await;
    }
    one.lost().await;
    drop((held, one));
    assert_eq!(logs.count("WARN", "a lock was lost"), 2, "one of each manager");
    assert_eq!(logs.count("DEBUG", "a lock was lost"), LOCKS - 1);
    assert_eq!(logs.count("WARN", "lock=of another manager"), 1);

    sleep(SECOND).await;
    let late = locks.lock("late").expire(SECOND).try_acquire().await.unwrap();
    late.lost().await;
    drop(late);
    let line = format!("suppressed={}", LOCKS - 1);
    assert_eq!(logs.count("WARN", "a lock was lost"), 3);
    assert_eq!(logs.count("WARN", &line), 1, "{line}");
    let lines = logs.lines().into_iter().filter(|line| line.contains("lock=order:"));
    let lost =
        lines.filter_map(|line| Some(line.split_once("lock=")?.1.split_once(' ')?.0.to_owned()));
    let lost: Vec<_> = lost.collect();
    assert_eq!((lost.len(), lost.iter().collect::<HashSet<_>>().len()), (LOCKS, LOCKS));
}

#[tokio::test(start_paused = true)]
async fn failed_extensions_after_hand_overs_share_a_warning() {
    const TURNS: usize = 10;
    let logs = Logs::collect();
    let node = FakeNode::start("node");
    let nodes = vec![Arc::clone(&node) as Arc<dyn Node>];
    let locks = LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new()));
    let hand_over = async || {
        let request = || locks.lock("a").wait_time(60 * SECOND);
        let first = request().expire(8 * SECOND).acquire().await.unwrap();
        let mut second = Box::pin(request().expire(10 * SECOND).acquire());
        assert!(second.as_mut().now_or_never().is_none());
        node.set(FakeMode::Broken);
        first.release().await.unwrap();
        let second = second.await.unwrap();
        sleep(Duration::from_millis(10)).await;
        node.set(FakeMode::Up(Duration::ZERO));
        second.release().await.unwrap();
    };
    for _ in 0..TURNS {
        hand_over().await;
    }
    assert_eq!(logs.count("WARN", "was not extended"), 1);
    assert_eq!(logs.count("DEBUG", "was not extended"), TURNS - 1);
    sleep(SECOND).await;
    hand_over().await;
    assert_eq!(logs.count("WARN", &format!("suppressed={}", TURNS - 1)), 1);
}

/// Two nodes need both votes: the first failure of either is an outage.
#[tokio::test]
async fn an_even_number_of_nodes_is_reported() {
    for count in 1..=5 {
        let nodes: Vec<_> = (0..count).map(|_| MemoryNode::new()).collect();
        let builder = nodes.iter().fold(LockManager::builder(), LockManagerBuilder::memory_node);
        let logs = Logs::collect();
        builder.connect().await.unwrap();
        assert_eq!(
            logs.count("WARN", "an even number of nodes"),
            usize::from(count % 2 == 0),
            "{count}"
        );
    }
}

/// A set of keys in several slots fails at its first request, after the deployment was green.
#[cfg(feature = "redis")]
#[tokio::test]
async fn a_cluster_says_at_connect_that_a_set_needs_a_hash_tag() {
    let logs = Logs::collect();
    for (url, count) in [("redis://127.0.0.1:1", 0), ("redis-cluster://127.0.0.1:1", 1)] {
        let connect = LockManager::connect([url]).await;
        assert!(matches!(connect, Err(ConnectError::Unavailable { .. })), "{connect:?}");
        assert_eq!(
            logs.count("INFO", "common hash tag, as in {shop}:sku:7 (in a template: {{shop}})"),
            count,
            "{url}"
        );
    }
}
