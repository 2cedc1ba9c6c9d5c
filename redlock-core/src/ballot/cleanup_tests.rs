//! The clean-up after an attempt that was not granted, in paused time.

use std::time::Duration;

use super::attempt::tests::attempt;
use super::tests::Setup;
use crate::error::{LockError, NodeError, Vote};
use crate::node::fake::FakeMode;

/// A server in a transaction replies `QUEUED`, and sets the lock afterwards.
#[tokio::test(start_paused = true)]
async fn a_node_with_an_unexpected_reply_is_cleaned_up() {
    is_cleaned_up_after(FakeMode::UnexpectedReply, NodeError::UnexpectedReply).await;
}

/// A node may limit the time for which it waits for its store.
#[tokio::test(start_paused = true)]
async fn a_node_that_gave_up_waiting_for_its_store_is_cleaned_up() {
    let no_reply = NodeError::NoReply(Duration::from_millis(20));
    is_cleaned_up_after(FakeMode::TimedOut, no_reply).await;
}

/// Asserts the clean-up of two nodes that set the lock, but reply with an error.
async fn is_cleaned_up_after(mode: FakeMode, error: NodeError) {
    const EXPIRE: Duration = Duration::from_secs(30);
    let setup = Setup::new(3);
    setup.set(&[mode, mode, FakeMode::Up(Duration::ZERO)]);
    let attempt = attempt("order:42");
    let Err(LockError::Unavailable { votes, .. }) = setup.ballot.acquire(&attempt, EXPIRE).await
    else {
        panic!("the ballot was granted or contended")
    };
    let failed = Vote::Failed(error);
    let count = votes.iter().filter(|(_, vote)| *vote == Some(&failed)).count();
    assert_eq!(count, 2, "{votes}");
    assert!(setup.nodes[0].is_held() && setup.nodes[1].is_held());
    setup.set(&[FakeMode::Up(Duration::ZERO); 3]);
    assert!(setup.free().await);
}
