//! Values that an application or the author of a node builds, although their variants may get more fields.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::{
    ConnectError, ExtendError, ForeignKind, InvalidOption, KeyError, LockError, LockKey, LostError,
    NodeError, ReleaseError, RunError, Vote, Votes,
};

const SECOND: Duration = Duration::from_secs(1);

fn key() -> LockKey {
    LockKey::new("order:42").unwrap()
}

fn votes() -> Votes {
    let votes: [(Arc<str>, Option<Vote>); 3] = [
        ("10.0.0.1:6379".into(), Some(Vote::Granted)),
        ("10.0.0.2:6379".into(), Some(Vote::held(Some(SECOND)))),
        ("10.0.0.3:6379".into(), None),
    ];
    votes.into_iter().collect()
}

#[test]
fn a_vote_is_found_by_the_name_of_its_node() {
    let votes = votes();
    assert_eq!(votes.get("10.0.0.1:6379"), Some(&Vote::Granted));
    assert_eq!(votes.get("10.0.0.2:6379"), Some(&Vote::held(Some(SECOND))));
    assert_eq!(votes.get("10.0.0.3:6379"), None, "the node had not voted yet");
    assert_eq!(votes.get("10.0.0.1"), None, "there is no such node");
    assert_eq!(Votes::default().get("10.0.0.1:6379"), None);
}

#[test]
fn the_first_of_two_nodes_with_one_name_counts() {
    let votes: [(Arc<str>, Option<Vote>); 2] =
        [("map".into(), None), ("map".into(), Some(Vote::NotHeld))];
    assert_eq!(votes.into_iter().collect::<Votes>().get("map"), None);
}

#[test]
fn votes_and_failures_are_built_from_their_values() {
    for (vote, text) in [
        (Vote::held(Some(SECOND)), "held by another holder for 1s"),
        (Vote::held(None), "held by another holder"),
        (
            Vote::foreign(ForeignKind::NoTimeToLive),
            "not a lock of this dialect: a key without a time to live",
        ),
        (
            Vote::Failed(NodeError::restarted(Some(SECOND), 2 * SECOND)),
            "failed: restarted 1s ago, votes again in 2s",
        ),
        (
            Vote::Failed(NodeError::restarted(None, SECOND / 2)),
            "failed: uptime unknown (INFO denied), votes in 500ms",
        ),
        (
            Vote::Failed(NodeError::clock_stepped(SECOND, 2 * SECOND)),
            "failed: wall clock stepped forward by 1000ms, votes again in 2s",
        ),
        (
            Vote::Failed(NodeError::promoted(2 * SECOND, SECOND)),
            "failed: promoted 2s ago, votes in 1000ms",
        ),
    ] {
        assert_eq!(vote.to_string(), text);
    }
}

#[test]
fn errors_of_an_acquisition_are_built_from_their_values() {
    let error = LockError::contended(key(), Some(SECOND), votes());
    assert!(error.is_contended());
    assert_eq!(error.to_string(), "the lock is held by another holder for 1s");
    let diagnostics = error.diagnostics().to_string();
    let expected =
        "the lock is held by another holder for 1s; lock order:42; 10.0.0.1:6379 granted, ";
    assert!(diagnostics.starts_with(expected), "{diagnostics}");
    assert_eq!(error.key(), Some(&key()));
    assert_eq!(error.votes().unwrap().len(), 3);
    let error = LockError::unavailable(key(), votes());
    assert!(matches!(error, LockError::Unavailable { .. }));
    assert_eq!(error.to_string(), "no quorum of nodes answered");
}

#[test]
fn errors_of_a_held_lock_are_built_from_their_values() {
    let lost = ExtendError::lost(key(), votes());
    assert!(matches!(&lost, ExtendError::Lost { key: of, .. } if *of == key()), "{lost:?}");
    assert_eq!(lost.to_string(), "the lock is lost");
    assert_eq!(lost.votes().map(Votes::len), Some(3));
    let unavailable = ExtendError::unavailable(key(), votes());
    assert_eq!(unavailable.votes().map(Votes::len), Some(3));
    assert!(matches!(unavailable, ExtendError::Unavailable { .. }), "{unavailable:?}");
    let expired = ReleaseError::expired(key(), votes());
    assert!(matches!(expired, ReleaseError::Expired { .. }), "{expired:?}");
    assert_eq!(expired.votes().len(), 3);
    let unavailable = ReleaseError::unavailable(key(), votes());
    assert!(matches!(unavailable, ReleaseError::Unavailable { .. }), "{unavailable:?}");
    assert_eq!(unavailable.votes().len(), 3);
}

#[test]
fn every_error_of_an_acquisition_can_be_built() {
    let timed_out = LockError::timed_out(key(), 2 * SECOND, SECOND, votes());
    assert!(matches!(timed_out, LockError::TimedOut { .. }), "{timed_out:?}");
    assert!(timed_out.to_string().contains("within its lease of 1s (waited 2s)"));
    assert_eq!(timed_out.votes().map(Votes::len), Some(3));
    let foreign = LockError::foreign_key(key(), votes());
    assert!(matches!(foreign, LockError::ForeignKey { .. }), "{foreign:?}");
    assert_eq!(foreign.votes().map(Votes::len), Some(3));
    for (error, text) in [
        (LockError::already_held(key()), "the lock is already held by the same request"),
        (LockError::too_many_waiters(key(), 9), "9 callers already wait for the lock"),
        (InvalidOption::new("expire", "1ms", "longer").into(), "expire is 1ms, but must be longer"),
        (LockKey::new("").unwrap_err().into(), "invalid lock key: the lock key is empty"),
        (LockError::ShutDown, "the lock manager was shut down"),
    ] {
        assert!(error.votes().is_none(), "{error:?}");
        assert_eq!(error.to_string(), text);
    }
}

/// Returns every error about one lock, with its diagnostics.
fn errors_of_one_lock() -> Vec<(Box<dyn Error>, String)> {
    macro_rules! with_diagnostics {
        ($($error:expr),+ $(,)?) => {
            vec![$({
                let error = $error;
                let diagnostics = error.diagnostics().to_string();
                (Box::new(error) as Box<dyn Error>, diagnostics)
            }),+]
        };
    }
    with_diagnostics![
        LockError::contended(key(), Some(SECOND), votes()),
        LockError::contended(key(), None, votes()),
        LockError::unavailable(key(), votes()),
        LockError::timed_out(key(), 2 * SECOND, SECOND, votes()),
        LockError::foreign_key(key(), votes()),
        LockError::already_held(key()),
        LockError::too_many_waiters(key(), 9),
        ExtendError::lost(key(), votes()),
        ExtendError::unavailable(key(), votes()),
        ReleaseError::expired(key(), votes()),
        ReleaseError::unavailable(key(), votes()),
        LostError::new(key()),
        RunError::from(LostError::new(key())),
        RunError::from(LockError::contended(key(), None, votes())),
        RunError::from(LockError::unavailable(key(), votes())),
    ]
}

/// An application may send the message of an error, or the whole chain of its sources, to a client.
#[test]
fn the_messages_of_an_error_and_of_its_sources_name_no_key_and_no_node() {
    for (error, diagnostics) in errors_of_one_lock() {
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
    }
}

#[test]
fn diagnostics_name_the_votes_of_every_node() {
    let of_nodes: Vec<_> = errors_of_one_lock()
        .into_iter()
        .map(|(_, diagnostics)| diagnostics)
        .filter(|diagnostics| diagnostics.contains("10.0.0"))
        .collect();
    assert_eq!(of_nodes.len(), 11, "{of_nodes:#?}");
    for diagnostics in of_nodes {
        assert!(diagnostics.ends_with("10.0.0.3:6379 no vote yet"), "{diagnostics}");
    }
    let no_key = LockError::from(KeyError::Empty);
    assert_eq!(no_key.diagnostics().to_string(), no_key.to_string());
    assert_eq!(no_key.key(), None);
}

#[test]
fn every_error_of_connecting_can_be_built() {
    for (error, text) in [
        (
            ConnectError::invalid_url(2, "it has no host"),
            "the URL of node 2 is invalid: it has no host",
        ),
        (
            ConnectError::same_server("a:1", "b:2"),
            "a:1 and b:2 are the same server; each node must be an independent Redis",
        ),
        (
            ConnectError::unavailable(1, 2, votes()),
            "connected to only 1 of 3 nodes, 2 are needed; 10.0.0.1:6379 granted",
        ),
        (InvalidOption::new("max_waiters", 0, "at least 1").into(), "max_waiters is 0"),
    ] {
        assert!(error.to_string().starts_with(text), "{error}");
    }
}

/// The message is the first that a newcomer reads who has not started Redis.
#[test]
fn a_failed_connect_asks_whether_redis_runs_at_the_nodes_that_were_not_reached() {
    let refused = || Some(Vote::Failed(NodeError::NotConnected("Connection refused".into())));
    let no_password = Some(Vote::Failed(NodeError::NotPermitted("NOAUTH".into())));
    let unavailable = |votes: &[(&str, Option<Vote>)]| {
        let votes = votes.iter().map(|(node, vote)| ((*node).into(), vote.clone()));
        ConnectError::unavailable(0, 2, votes.collect()).to_string()
    };
    let (one, two, three) = ("10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379");
    let text = unavailable(&[(one, refused()), (two, no_password.clone()), (three, refused())]);
    let question = "; is Redis running at 10.0.0.1:6379, 10.0.0.3:6379?";
    assert_eq!(text.ends_with(question), cfg!(feature = "redis"), "{text}");
    let text = unavailable(&[(one, no_password), (two, Some(Vote::Granted))]);
    assert!(
        text.ends_with("10.0.0.1:6379 failed: not permitted: NOAUTH, 10.0.0.2:6379 granted"),
        "{text}"
    );
}
