//! Keys whose value is no lock, and locks that another owner took over: each is left alone.

use std::time::Duration;

use redlock_core::{ForeignKind, HoldError, LockError, LockGuard, ReleaseError, Vote};
use redlock_tests::{Servers, eventually};

use super::kind::{ALL, KEY, Kind};
use super::{LONG, SOON, connect, start};

use ForeignKind::{NoTimeToLive, TimeToLiveTooLong, WrongType};

/// `SET NX` returns nil for a foreign key, as for a lock that is held for ever. A waiter gets the error at once, and a set
/// is refused before any of its keys is set.
#[tokio::test]
async fn a_foreign_key_is_distinguished_from_a_held_lock_by_every_lock() {
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    // The value; the finding of a plain lock or of a set; the finding of a lock of Redisson.
    for (command, plain, redisson) in [
        (&["SET", KEY, "for ever"][..], NoTimeToLive, WrongType),
        (&["SET", KEY, "for nine days", "PX", "777600000"], TimeToLiveTooLong, WrongType),
        (&["RPUSH", KEY, "x"], WrongType, WrongType),
        (&["HSET", KEY, "field", "1"], WrongType, NoTimeToLive),
        (&["HSET", KEY, "mode", "shared", "r:x", "9999999999999"], WrongType, NoTimeToLive),
        (&["ZADD", KEY, "9999999999999", "r:x"], WrongType, WrongType),
        (&["ZADD", KEY, "1", "shared", "9999999999999", "r:x"], WrongType, WrongType),
        (&["ZADD", KEY, "0", "shared", "9999999999999", "r:x"], NoTimeToLive, WrongType),
    ] {
        probe.command::<redis::Value>(command).await;
        for kind in ALL {
            let waiting = kind.acquire_with(&locks, LONG, Duration::ZERO);
            let error = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap_err();
            let LockError::ForeignKey { votes, .. } = &error else { panic!("{kind:?}: {error}") };
            let found = if kind.is_redisson() { redisson } else { plain };
            let vote = votes.iter().next().unwrap().1;
            assert_eq!(vote, Some(&Vote::foreign(found)), "{kind:?} {command:?}: {error}");
            assert_eq!(error.key().unwrap().as_str(), KEY);
            assert_eq!(probe.keys().await, [KEY], "{kind:?} {command:?}");
        }
        probe.command::<()>(["DEL", KEY]).await;
    }
}

/// One of three nodes has a foreign key; the majority grants the lock.
#[tokio::test]
async fn a_foreign_key_on_a_minority_of_nodes_has_no_effect() {
    let (servers, locks) = start(3).await;
    servers[1].probe().await.command::<()>(["SET", KEY, "1"]).await;
    Kind::Plain.acquire(&locks).await.unwrap().release().await.unwrap();
    let foreign = format!("{}/{KEY}", servers[1].port());
    eventually("only the foreign key is left", SOON, async || {
        (servers.keys().await == [foreign.clone()]).then_some(())
    })
    .await;
}

/// A call of the former holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Extend,
    Release,
    /// A release before the end of the minimum hold time.
    ReleaseEarly,
    Drop,
}

impl Call {
    async fn make(self, guard: LockGuard) {
        match self {
            Self::Extend => {
                let error = guard.extend(LONG).await.unwrap_err();
                assert!(matches!(error, HoldError::Lost(_)), "{error}");
                assert!(!guard.is_valid());
                tokio::time::timeout(SOON, guard.lost()).await.unwrap();
            }
            Self::Release | Self::ReleaseEarly => {
                let error = guard.release().await.unwrap_err();
                assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
            }
            Self::Drop => drop(guard),
        }
    }
}

/// Gives a key of a held lock another value, on each server, and calls the guard. Checks that the value stays, and that
/// the other keys of a set are released or stay for their minimum hold time.
async fn takes_over(servers: &Servers, kind: Kind, value: &[&str], call: Call) {
    let locks = connect(servers.urls()).await;
    let min_hold = if call == Call::ReleaseEarly { SOON } else { Duration::ZERO };
    let guard = kind.acquire_with(&locks, Duration::ZERO, min_hold).await.unwrap();
    let taken = kind.middle_key();
    let command = [&value[..1], &[taken], &value[1..]].concat();
    let mut dumps = Vec::new();
    for server in servers.iter() {
        let mut probe = server.probe().await;
        eventually("each node has the lock", SOON, async || {
            (probe.command::<u8>(["DEL", taken]).await == 1).then_some(())
        })
        .await;
        probe.command::<redis::Value>(command.clone()).await;
        probe.command::<()>(["PEXPIRE", taken, "60000"]).await;
        dumps.push(probe.command::<Vec<u8>>(["DUMP", taken]).await);
    }
    call.make(guard).await;
    locks.shutdown().await;
    for (server, dump) in servers.iter().zip(dumps) {
        let mut probe = server.probe().await;
        assert_eq!(probe.command::<Vec<u8>>(["DUMP", taken]).await, dump, "{kind:?} {call:?}");
        for key in kind.keys() {
            let left = probe.time_to_live(key).await;
            let most = match (*key == taken, call) {
                (true, _) => Some(Duration::from_secs(60)),
                (false, Call::ReleaseEarly) => Some(SOON),
                (false, _) => None,
            };
            assert!(left.is_some() == most.is_some() && left <= most, "{kind:?} {call:?} {key}");
        }
        probe.command::<()>(["FLUSHALL"]).await;
    }
}

/// A former holder leaves the lock to its next holder (only the owner releases), and a value of another type alone.
#[tokio::test]
async fn a_lock_that_another_owner_took_over_is_not_changed() {
    let servers = Servers::start(3).await;
    for kind in ALL {
        let values = if kind.is_redisson() {
            [&["HSET", "another:1", "1"][..], &["HSET", "mode", "shared"]]
        } else {
            [&["SET", "another's"][..], &["ZADD", "0", "shared", "9999999999999", "r:x"]]
        };
        for value in values {
            for call in [Call::Extend, Call::Release, Call::ReleaseEarly, Call::Drop] {
                takes_over(&servers, kind, value, call).await;
            }
        }
    }
}
