//! Deployments that change the list of servers: callers of the old list and of the new one, with every minority of servers down for
//! each of them. The page about production has the lists.

use std::sync::Arc;

use crate::clock::fake::RuntimeClock;
use crate::node::Node;
use crate::node::fake::{FakeMode, FakeNode};
use crate::quorum::quorum;
use crate::{LockManager, LockManagerBuilder};

const UP: FakeMode = FakeMode::Up(std::time::Duration::ZERO);

/// Returns every set of so few of these servers that the others are a quorum.
fn minorities(list: &str) -> Vec<String> {
    let subset = |mask: usize| {
        let chosen = list.chars().enumerate().filter(|(index, _)| mask >> index & 1 == 1);
        chosen.map(|(_, server)| server).collect::<String>()
    };
    let most = list.len() - quorum(list.len());
    (0..1 << list.len()).map(subset).filter(|subset| subset.len() <= most).collect()
}

/// Returns how often a caller of each list had a valid lock, and how often that was tried.
async fn two_holders(old: &str, new: &str) -> (usize, usize) {
    let (mut both, mut tried) = (0, 0);
    for old_down in minorities(old) {
        for new_down in minorities(new) {
            let nodes = ['a', 'b', 'c', 'd', 'e'].map(|name| FakeNode::start(&name.to_string()));
            let node = |name: char| Arc::clone(&nodes[usize::from(name as u8 - b'a')]);
            let manager = |list: &str| -> LockManager {
                let nodes = list.chars().map(|name| node(name) as Arc<dyn Node>).collect();
                LockManagerBuilder::with_nodes(nodes, Arc::new(RuntimeClock::new()))
            };
            let (old, new) = (manager(old), manager(new));
            for name in old_down.chars() {
                node(name).set(FakeMode::Down);
            }
            let holder = old.lock("order:42").try_acquire().await.unwrap();
            for node in &nodes {
                node.set(UP);
            }
            for name in new_down.chars() {
                node(name).set(FakeMode::Down);
            }
            let second = new.lock("order:42").try_acquire().await;
            tried += 1;
            both += usize::from(second.is_ok() && holder.is_valid());
        }
    }
    (both, tried)
}

#[tokio::test(start_paused = true)]
async fn lists_that_differ_by_one_server_have_one_holder() {
    for change in [
        &["a", "ab", "abc"][..],
        &["abc", "abcd", "abcde"],
        &["abc", "abcd", "abd"],
        &["a", "ab", "b"],
    ] {
        for step in change.windows(2) {
            let (grown, tried) = two_holders(step[0], step[1]).await;
            let (shrunk, tried_back) = two_holders(step[1], step[0]).await;
            assert_eq!((grown, shrunk), (0, 0), "{step:?}");
            assert_eq!(tried, tried_back);
            assert_eq!(tried, minorities(step[0]).len() * minorities(step[1]).len());
        }
    }
}

/// These changes need a stop, or the steps above with their waits.
#[tokio::test(start_paused = true)]
async fn other_changes_of_the_list_have_two_holders() {
    for (old, new) in [
        ("a", "abc"),
        ("abc", "abcde"),
        ("abcde", "abc"),
        ("abc", "abd"),
        ("abc", "ade"),
        ("a", "b"),
    ] {
        let (both, tried) = two_holders(old, new).await;
        assert!(both > 0, "{old} {new}: {tried} tried");
    }
}
