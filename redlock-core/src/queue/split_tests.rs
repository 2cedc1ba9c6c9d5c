//! Processes that split the votes, in paused time.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::tests::{SECOND, acquisitions, nodes, wait};
use crate::clock::fake::RuntimeClock;
use crate::node::{Answer, Claim, Listening, LockName, Node, Ready, Ring};
use crate::{LockManager, LockManagerBuilder, MemoryNode};

const MILLI: Duration = Duration::from_millis(1);

/// A node in memory that is so far away.
#[derive(Debug)]
struct FarNode {
    node: Arc<MemoryNode>,
    way: Duration,
}

impl FarNode {
    fn ask(&self, question: impl FnOnce(&MemoryNode) -> Answer + Send + 'static) -> Answer {
        let (node, way) = (Arc::clone(&self.node), self.way);
        Answer::pending(async move {
            sleep(way).await;
            let vote = question(&node).await;
            sleep(way).await;
            vote
        })
    }
}

impl Node for FarNode {
    fn name(&self) -> &Arc<str> {
        self.node.name()
    }

    fn acquire(&self, claim: &Arc<Claim>, expire: Duration) -> Answer {
        let claim = Arc::clone(claim);
        self.ask(move |node| node.acquire(&claim, expire))
    }

    fn extend(&self, claim: &Arc<Claim>, expire: Duration) -> Answer {
        let claim = Arc::clone(claim);
        self.ask(move |node| node.extend(&claim, expire))
    }

    fn confirm(&self, claim: &Arc<Claim>, number: i64) -> Answer {
        let claim = Arc::clone(claim);
        self.ask(move |node| node.confirm(&claim, number))
    }

    fn release(&self, claim: &Arc<Claim>) -> Answer {
        let claim = Arc::clone(claim);
        self.ask(move |node| node.release(&claim))
    }

    fn listen(&self, name: &LockName, ring: Ring) -> (Listening, Ready) {
        self.node.listen(name, ring)
    }

    fn is_up(&self) -> bool {
        true
    }

    fn recovered(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.node.recovered()
    }
}

/// Processes, each as far away from each node as it is said.
fn processes(ways: &[&[u32]]) -> Vec<LockManager> {
    let clock = Arc::new(RuntimeClock::new());
    let node = |_: &u32| Arc::new(MemoryNode::with_clock(Arc::<RuntimeClock>::clone(&clock)));
    let nodes: Vec<_> = ways[0].iter().map(node).collect();
    let process = |ways: &&[u32]| {
        let far = |(node, way): (&Arc<MemoryNode>, &u32)| {
            Arc::new(FarNode { node: Arc::clone(node), way: MILLI * *way }) as Arc<dyn Node>
        };
        let nodes = nodes.iter().zip(*ways).map(far).collect();
        LockManagerBuilder::over(nodes, Arc::<RuntimeClock>::clone(&clock))
    };
    ways.iter().map(process).collect()
}

/// Each is the first on a part of the nodes, and gives it back when it hears of the others.
#[tokio::test(start_paused = true)]
async fn who_splits_the_votes_does_not_meet_the_others_again_and_again() {
    let two: &[&[u32]] = &[&[1, 1, 5, 5], &[5, 5, 1, 1]];
    let three: &[&[u32]] = &[&[1, 1, 5, 5, 9], &[9, 5, 1, 1, 5], &[5, 9, 5, 9, 1]];
    for ways in [two, three] {
        for _ in 0..20 {
            let turns = processes(ways).into_iter().map(|locks| async move {
                for _ in 0..5 {
                    wait(&locks, "a").await.unwrap().release().await.unwrap();
                }
            });
            let turns = futures_util::future::join_all(turns);
            timeout(10 * SECOND, turns).await.expect("a turn for everybody");
        }
    }
}

/// Those who split the votes give their parts back at the same time, and each hears of that.
#[tokio::test(start_paused = true)]
async fn what_the_others_give_back_does_not_hurry_who_got_a_part_too() {
    let (locks, nodes) = nodes(3);
    for node in &nodes[..2] {
        node.occupy(60 * SECOND);
    }
    let waiter = tokio::spawn(async move { wait(&locks, "a").await.map(drop) });
    for _ in 0..1000 {
        for node in &nodes {
            node.announce();
        }
        sleep(MILLI).await;
    }
    let attempts = acquisitions(&nodes[0]);
    assert!((8..=20).contains(&attempts), "{attempts} attempts in 1 s");
    waiter.abort();
}

/// A holder with no more than a quorum leaves a node on which the waiter is the first each time.
#[tokio::test(start_paused = true)]
async fn who_gets_a_part_of_the_votes_asks_seldom_and_hears_of_the_release() {
    let (locks, nodes) = nodes(3);
    for node in &nodes[..2] {
        node.occupy(60 * SECOND);
    }
    let waiter = tokio::spawn(async move { wait(&locks, "a").await.map(|_| Instant::now()) });
    sleep(10 * SECOND).await;
    let polls = acquisitions(&nodes[0]);
    assert!((15..=60).contains(&polls), "{polls} polls in 10 s");
    for node in &nodes[..2] {
        node.forget();
        node.announce();
    }
    let released = Instant::now();
    let acquired = waiter.await.unwrap().unwrap();
    assert!(acquired - released <= 401 * MILLI, "{:?}", acquired - released);
}
