//! The clean-up after an attempt that was not granted, in paused time.

use std::sync::Arc;
use std::time::Duration;

use super::Refusal;
use super::attempt::tests::attempt;
use super::tests::Setup;
use crate::error::{NodeError, Vote};
use crate::node::fake::Mode;

/// A server inside of a transaction answers `QUEUED`, and sets the lock afterwards.
#[tokio::test(start_paused = true)]
async fn a_node_whose_answer_was_not_understood_is_cleaned_up() {
    const EXPIRE: Duration = Duration::from_secs(30);
    let setup = Setup::new(3);
    setup.set(&[Mode::NotUnderstood, Mode::NotUnderstood, Mode::Up(Duration::ZERO)]);
    let attempt = Arc::new(attempt("order:42"));
    let Err(Refusal::Unavailable(votes)) = setup.ballot.acquire(&attempt, EXPIRE).await else {
        panic!("granted or contended")
    };
    let not_understood = Vote::Failed(NodeError::NotUnderstood);
    let count = votes.iter().filter(|(_, vote)| *vote == Some(&not_understood)).count();
    assert_eq!(count, 2, "{votes}");
    assert!(setup.nodes[0].is_held() && setup.nodes[1].is_held());
    setup.set(&[Mode::Up(Duration::ZERO); 3]);
    assert!(setup.free().await);
}
