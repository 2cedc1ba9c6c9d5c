//! A server that has forgotten its scripts, by a restart or by an administrator's `SCRIPT FLUSH`, gets them again.

use std::time::Duration;

use redlock_core::{Dialect, LockError};
use redlock_tests::{Logs, Moment, RedisServer, drop_after, eventually};

use super::kind::ALL;
use super::{LONG, SOON, connect, start};

#[tokio::test]
async fn every_operation_of_every_lock_succeeds_after_its_script_was_forgotten() {
    let (servers, locks) = start(1).await;
    let stranger = connect(servers.urls()).await;
    let mut probe = servers[0].probe().await;
    let flush = async || servers[0].probe().await.command::<()>(["SCRIPT", "FLUSH"]).await;
    for kind in ALL {
        for min_hold in [Duration::ZERO, SOON] {
            flush().await;
            let guard = kind.acquire_with(&locks, Duration::ZERO, min_hold).await.unwrap();
            flush().await;
            guard.extend(LONG * 2).await.unwrap();
            flush().await;
            let error = kind.acquire(&stranger).await.unwrap_err();
            let has_remaining = matches!(error, LockError::Contended { remaining: Some(_), .. });
            assert!(has_remaining, "{kind:?}: {error}");
            flush().await;
            guard.release().await.unwrap();
            let stays = probe.command::<bool>(["EXISTS", kind.keys()[0]]).await;
            assert_eq!(stays, !min_hold.is_zero(), "{kind:?}");
            probe.command::<()>(["FLUSHALL"]).await;
        }
    }
}

/// The words of the server do not name the command.
#[tokio::test]
async fn a_server_without_time_says_which_command_is_missing() {
    let logs = Logs::collect();
    let server = RedisServer::options().rename("TIME", "").start().await;
    let locks = connect([server.url()]).await;
    assert_eq!(logs.count("WARN", "the server does not execute TIME"), 1);
    locks.lock("order:42").try_acquire().await.unwrap().release().await.unwrap();
    for request in [locks.lock("order:42").fenced(true), locks.lock("order:42").shared(true)] {
        let diagnostics = request.try_acquire().await.unwrap_err().diagnostics().to_string();
        for words in [" time, ", "rename-command has renamed or disabled one of them"] {
            assert!(diagnostics.contains(words), "{diagnostics}");
        }
    }
}

/// The server has forgotten the script of the acquisition but knows that of the release. The clean-up must
/// not overtake the acquisition (an abandoned attempt leaves nothing behind).
#[tokio::test]
async fn an_acquisition_dropped_while_its_script_is_sent_again_leaves_nothing() {
    let (servers, locks) = start(1).await;
    let other = connect(servers.urls()).await;
    let mut probe = servers[0].probe().await;
    let redisson = Dialect::Redisson;
    for moment in [Moment::AtOnce, Moment::WhenWoken] {
        for polls in 0..10 {
            let held = other.lock("other").dialect(redisson).try_acquire().await.unwrap();
            probe.command::<()>(["SCRIPT", "FLUSH"]).await;
            held.release().await.unwrap();
            let request = locks.lock("order:42").expire(LONG).dialect(redisson);
            drop(drop_after(polls, moment, request.try_acquire()).await);
            // These locks use the same connection. When they are done, so are the commands before them and
            // the commands that follow on their replies.
            for _ in 0..3 {
                locks.lock("later").try_acquire().await.unwrap().release().await.unwrap();
            }
            eventually(&format!("no lock is left, {polls} {moment:?}"), SOON, async || {
                probe.keys().await.is_empty().then_some(())
            })
            .await;
        }
    }
}
