//! Errors and votes, which an application or the author of a node builds, although their variants may get more fields.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::{
    ConnectError, ForeignKind, HoldError, HolderId, InvalidOption, KeyError, LockError, LockKey,
    LossCause, LostError, NodeError, ReleaseError, RunError, Vote, Votes,
};

const SECOND: Duration = Duration::from_secs(1);

fn key() -> LockKey {
    LockKey::new("order:42").unwrap()
}

fn votes() -> Votes {
    let votes: [(Arc<str>, Option<Vote>); 3] = [
        ("10.0.0.1:6379".into(), Some(Vote::Agreed)),
        ("10.0.0.2:6379".into(), Some(Vote::held(Some(SECOND)))),
        ("10.0.0.3:6379".into(), None),
    ];
    votes.into_iter().collect()
}

#[test]
fn a_vote_is_found_by_the_name_of_its_node() {
    let votes = votes();
    assert_eq!(votes.get("10.0.0.1:6379"), Some(&Vote::Agreed));
    assert_eq!(votes.get("10.0.0.2:6379"), Some(&Vote::held(Some(SECOND))));
    assert_eq!(votes.get("10.0.0.3:6379"), None, "the node had not voted yet");
    assert_eq!(votes.get("10.0.0.1"), None, "there is no such node");
    // The first of two nodes with one name counts.
    let twice = [(Arc::from("map"), None), ("map".into(), Some(Vote::NotHeld))];
    assert_eq!(Votes::from_iter(twice).get("map"), None);
}

#[test]
fn each_vote_says_what_the_node_answered() {
    let foreign = Vote::foreign(ForeignKind::NoTimeToLive);
    let restarted = NodeError::restarted(Some(SECOND), 2 * SECOND);
    let unknown = NodeError::restarted(None, SECOND / 2);
    let stepped = NodeError::clock_stepped(SECOND, 2 * SECOND);
    for (vote, text) in [
        (Vote::held(Some(SECOND)), "held by another holder for 1s"),
        (Vote::held(None), "held by another holder"),
        (Vote::held_by(HolderId::of("abc"), Some(SECOND)), "held by a9993e364706816a for 1s"),
        (foreign, "not a lock of this dialect: a key without a time to live"),
        (
            Vote::foreign(ForeignKind::OtherRecipe),
            "not a lock of this recipe: a znode of another recipe, such as the Lock of kazoo or a read-write lock of Curator",
        ),
        (Vote::Failed(restarted), "failed: restarted 1s ago, votes again in 2s"),
        (Vote::Failed(unknown), "failed: uptime unknown (INFO denied), votes in 500ms"),
        (Vote::Failed(stepped), "failed: wall clock stepped forward by 1000ms, votes again in 2s"),
        (
            Vote::Failed(NodeError::promoted(2 * SECOND, SECOND)),
            "failed: promoted 2s ago, votes in 1000ms",
        ),
    ] {
        assert_eq!(vote.to_string(), text);
    }
}

fn lost(cause: LossCause) -> LostError {
    LostError::new(key(), cause, votes())
}

/// Returns every error about one lock, with its message and its diagnostics.
fn errors_of_one_lock() -> Vec<(Box<dyn Error>, &'static str, String)> {
    macro_rules! rows {
        ($($error:expr => $text:literal,)+) => {
            vec![$({
                let error = $error;
                let diagnostics = error.diagnostics().to_string();
                (Box::new(error) as Box<dyn Error>, $text, diagnostics)
            }),+]
        };
    }
    rows![
        LockError::contended(key(), Some(SECOND), votes()) => "the lock is held by another holder for 1s",
        LockError::contended(key(), None, votes()) => "the lock is held by another holder",
        LockError::contended(key(), Some(SECOND), Votes::default()) => "the lock is held by another caller of this process for 1s",
        LockError::contended(key(), None, Votes::default()) => "other callers wait for the lock, and come first",
        LockError::split(key(), votes()) => "the votes are split: several callers asked at once",
        LockError::unavailable(key(), votes()) => "no quorum of nodes answered",
        LockError::timed_out(key(), 2 * SECOND, SECOND, votes()) => "within its lease of 1s (waited 2s)",
        LockError::Lost(lost(LossCause::LeaseEnded)) => "the lock was lost before the work under it began: its lease ended",
        LockError::foreign_key(key(), votes()) => "is not a lock of this dialect",
        LockError::already_held(key()) => "the lock is already held by the same request",
        LockError::too_many_waiters(key(), 9) => "9 callers already wait for the lock",
        HoldError::Lost(lost(LossCause::NotOnNodes)) => "the lock was lost: a quorum of nodes no longer holds it",
        HoldError::unavailable(key(), votes()) => "no quorum of nodes confirmed the change",
        ReleaseError::Lost(lost(LossCause::LeaseEnded)) => "the lock was lost before it was released: its lease ended",
        ReleaseError::unavailable(key(), votes()) => "has confirmed the release of the lock yet",
        lost(LossCause::ManagerEnded) => "the lock was lost: its manager has ended",
        RunError::from(lost(LossCause::NotOnNodes)) => "the lock was lost, and the work under it was stopped: a quorum",
        LostError::new(key(), LossCause::Released, Votes::default()) => "the lock was lost: it was released before",
        RunError::from(LockError::contended(key(), None, votes())) => "held by another holder",
        RunError::from(LockError::unavailable(key(), votes())) => "no quorum of nodes answered",
    ]
}

/// An application may send the message of an error, or the whole chain of its sources, to a client.
#[test]
fn messages_of_errors_and_of_their_sources_name_no_key_and_no_node_but_diagnostics_do() {
    let mut with_votes = 0;
    for (error, text, diagnostics) in errors_of_one_lock() {
        assert!(error.to_string().contains(text), "{error}");
        let mut chain = Some(&*error);
        while let Some(error) = chain {
            for text in [error.to_string(), format!("{error:#}")] {
                assert!(!text.is_empty());
                for secret in ["order:42", "order", "42", "10.0.0", "6379"] {
                    assert!(!text.contains(secret), "{text:?} contains {secret}");
                }
            }
            chain = error.source();
        }
        assert!(diagnostics.starts_with(&error.to_string()), "{diagnostics}");
        assert!(diagnostics.contains("; lock order:42"), "{diagnostics}");
        if diagnostics.contains("10.0.0") {
            assert!(
                diagnostics.contains("; lock order:42; 10.0.0.1:6379 agreed, "),
                "{diagnostics}"
            );
            assert!(diagnostics.ends_with("10.0.0.3:6379 no vote yet"), "{diagnostics}");
            with_votes += 1;
        }
    }
    assert_eq!(with_votes, 15);
}

#[test]
fn an_error_gives_access_to_its_key_and_its_votes() {
    let contended = LockError::contended(key(), Some(SECOND), votes());
    assert!(contended.is_contended() && !contended.is_split());
    let split = LockError::split(key(), votes());
    assert!(split.is_split() && !split.is_contended());
    let run = RunError::from(contended.clone());
    assert!(run.is_contended() && !RunError::from(split).is_contended());
    assert!(!RunError::from(lost(LossCause::LeaseEnded)).is_contended());
    assert_eq!(contended.key(), Some(&key()));
    for error in [
        contended,
        LockError::split(key(), votes()),
        LockError::unavailable(key(), votes()),
        LockError::timed_out(key(), SECOND, SECOND, votes()),
        LockError::foreign_key(key(), votes()),
    ] {
        assert_eq!(error.votes().map(Votes::len), Some(3), "{error:?}");
    }
    for error in
        [HoldError::Lost(lost(LossCause::LeaseEnded)), HoldError::unavailable(key(), votes())]
    {
        assert_eq!(error.votes().map(Votes::len), Some(3), "{error:?}");
    }
    for error in
        [ReleaseError::Lost(lost(LossCause::LeaseEnded)), ReleaseError::unavailable(key(), votes())]
    {
        assert_eq!(error.votes().map(Votes::len), Some(3), "{error:?}");
    }
    for (error, text) in [
        (LockError::already_held(key()), "the lock is already held by the same request"),
        (InvalidOption::new("expire", "1ms", "longer").into(), "expire is 1ms, but must be longer"),
        (LockKey::new("").unwrap_err().into(), "invalid lock key: the lock key is empty"),
        (LockError::Draining, "the lock manager is draining, and grants no new locks"),
        (LockError::ShutDown, "the lock manager was shut down"),
        (
            LockError::RuntimeEnded,
            "the Tokio runtime of the lock manager has ended; use one manager for each runtime",
        ),
    ] {
        assert!(error.votes().is_none(), "{error:?}");
        assert_eq!(error.to_string(), text);
    }
    let no_key = LockError::from(KeyError::Empty);
    assert_eq!(no_key.diagnostics().to_string(), no_key.to_string());
    assert_eq!(no_key.key(), None);
}

#[test]
fn an_error_of_connecting_names_the_nodes() {
    for (error, text) in [
        (
            ConnectError::invalid_url(2, "it has no host"),
            "the URL of node 2 is invalid: it has no host",
        ),
        (
            ConnectError::same_server("a:1", "b:2"),
            "a:1 and b:2 are the same server; each node must be an independent server",
        ),
        (
            ConnectError::unavailable(1, 2, votes()),
            "connected to only 1 of 3 nodes, 2 are needed; 10.0.0.1:6379 agreed",
        ),
        (InvalidOption::new("max_waiters", 0, "at least 1").into(), "max_waiters is 0"),
    ] {
        assert!(error.to_string().starts_with(text), "{error}");
    }
}
