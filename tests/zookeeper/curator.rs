//! A Java process with Curator's `InterProcessMutex` and this library exclude and wake each other.

use std::time::Duration;

use redlock_tests::{
    Hold, Peer, Sharing, ZookeeperServer, eventually, java, monotonic_nanos, overlaps, skip,
};
use rustix::process::Signal;

use crate::client::{Recorded, signal};
use crate::{KEY, LONG, SESSION, SOON, are_queued, connect, no_lock_is_left, start};

/// Starts a Java process with Curator in the folder of this test.
pub(crate) fn curator(server: &ZookeeperServer, session_timeout: Duration) -> Option<Peer> {
    let mut java = java("curator").inspect_err(|why| skip(why)).ok()?;
    java.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=off");
    let address = format!("127.0.0.1:{}{}", server.port(), server.chroot());
    let timeout = session_timeout.as_millis().to_string();
    let mut peer = Peer::start(java.args(["CuratorPeer", &address, &timeout]));
    assert_eq!(peer.answer(), "ready");
    Some(peer)
}

/// Returns the time in an answer such as `acquired 17`.
pub(crate) fn time(answer: &str, word: &str) -> u64 {
    let time = answer.strip_prefix(word).and_then(|rest| rest.trim().parse().ok());
    time.unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutex_of_curator_and_we_exclude_and_wake_each_other() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let Some(mut java) = curator(&server, SOON) else { return };
    let locks = connect(&server.url()).await;
    for key in [KEY, "a/b%🔒", ".."] {
        let path = server.path(key);
        let path = path.strip_prefix(server.chroot()).unwrap();
        time(&java.ask(&format!("acquire 0 {path}")), "acquired");
        let refused = locks.lock(key).try_acquire().await.unwrap_err();
        assert!(refused.is_contended(), "{key}: {refused}");
        let waiting = tokio::spawn(locks.lock(key).expire(LONG).wait_time(LONG).acquire());
        are_queued(&server, key, 2).await;
        let released = time(&java.ask(&format!("release {path}")), "released");
        let guard = waiting.await.unwrap().unwrap();
        assert!(monotonic_nanos() > released && guard.is_valid());

        assert_eq!(java.ask(&format!("acquire 1 {path}")), "refused");
        java.order(&format!("acquire 60000 {path}"));
        are_queued(&server, key, 2).await;
        let before = monotonic_nanos();
        guard.release().await.unwrap();
        assert!(time(&java.answer(), "acquired") > before);
        assert!(locks.lock(key).try_acquire().await.unwrap_err().is_contended());
        time(&java.ask(&format!("release {path}")), "released");
    }
    no_lock_is_left(&server).await;
}

mod thorough {
    use super::*;

    /// The server ends the session of a dead process, and its children with it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_lock_of_a_killed_holder_passes_to_the_other_side() {
        let options = ZookeeperServer::options().session_timeout(SESSION);
        let Some(server) = start(options).await else { return };
        let Some(mut java) = curator(&server, SESSION) else { return };
        let locks = connect(&server.url()).await;
        let recorded = Recorded::new();

        time(&java.ask(&format!("acquire 0 /{KEY}")), "acquired");
        drop(java);
        let guard = locks.lock(KEY).wait_time(LONG).acquire().await.unwrap();
        guard.release().await.unwrap();

        let Some(mut java) = curator(&server, SESSION) else { return };
        let mut holder = recorded.start(&server.url());
        assert_eq!(holder.ask(&format!("acquire {KEY} 1000 0")), "acquired");
        signal(&holder, Signal::KILL);
        let acquired = time(&java.ask(&format!("acquire 60000 /{KEY}")), "acquired");
        let holds = recorded.checked();
        assert!(holds.iter().all(|hold| hold.end <= acquired), "{holds:?} {acquired}");
    }

    /// A guard is over before the server ends its session.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_lock_of_an_expired_session_passes_to_the_other_side() {
        let options = ZookeeperServer::options().session_timeout(SESSION);
        let Some(server) = start(options).await else { return };
        let Some(mut java) = curator(&server, SESSION) else { return };
        let locks = connect(&server.url()).await;
        let recorded = Recorded::new();

        time(&java.ask(&format!("acquire 0 /{KEY}")), "acquired");
        assert_eq!(java.ask("expire"), "expired");
        let guard = locks.lock(KEY).wait_time(LONG).acquire().await.unwrap();
        // Curator has not noticed that its lock is gone. Its late release leaves ours alone.
        time(&java.ask(&format!("release /{KEY}")), "released");
        assert_eq!(server.queue(KEY).await.len(), 1);
        guard.release().await.unwrap();

        let mut holder = recorded.start(&server.url());
        assert_eq!(holder.ask(&format!("acquire {KEY} 1000 0")), "acquired");
        signal(&holder, Signal::STOP);
        let acquired = time(&java.ask(&format!("acquire 60000 /{KEY}")), "acquired");
        signal(&holder, Signal::CONT);
        let late = holder.ask("release");
        assert_ne!(late, "released");
        let holds = recorded.checked();
        assert!(holds.iter().all(|hold| hold.end <= acquired), "{holds:?} {acquired}");
        // The late release has not deleted the child of the other side.
        assert!(locks.lock(KEY).try_acquire().await.unwrap_err().is_contended());
        time(&java.ask(&format!("release /{KEY}")), "released");
    }

    /// Two callers on each side never rest. Without a place in the queue, those of this library would get one turn of sixty.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn neither_side_starves() {
        const TURNS: usize = 150;
        let Some(server) = start(ZookeeperServer::options()).await else { return };
        let Some(mut java) = curator(&server, SOON) else { return };
        let locks = connect(&server.url()).await;
        assert_eq!(java.ask(&format!("turns 2 2 /{KEY}")), "started");
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let locks = locks.clone();
                tokio::spawn(async move {
                    let mut turns = Vec::new();
                    while turns.len() < TURNS {
                        let request = locks.lock(KEY).expire(LONG).wait_time(LONG);
                        let guard = request.acquire().await.unwrap();
                        let begin = monotonic_nanos();
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        turns.push((begin, monotonic_nanos()));
                        guard.release().await.unwrap();
                    }
                    turns
                })
            })
            .collect();
        let mut ours = Vec::new();
        for caller in callers {
            ours.extend(tokio::time::timeout(2 * SOON, caller).await.unwrap().unwrap());
        }
        let theirs: Vec<_> = java.ask("stop").split(' ').map(turn).collect();
        // Both sides are there until our last turn.
        let end = ours.iter().map(|turn| turn.1).max().unwrap();
        let count = theirs.iter().filter(|turn| turn.1 <= end).count();
        println!("{} turns of ours, {count} of Curator", ours.len());
        let holds: Vec<_> = ours.iter().chain(&theirs).copied().map(hold).collect();
        assert_eq!(overlaps(&holds), []);
        let least = (ours.len() + count) / 4;
        assert!(
            ours.len() >= least && count >= least,
            "{} of ours, {count} of Curator",
            ours.len()
        );
        eventually("no lock is left", SOON, async || {
            (server.locks_count().await == (0, 0)).then_some(())
        })
        .await;
    }

    fn turn(text: &str) -> (u64, u64) {
        let (begin, end) = text.split_once('-').unwrap();
        (begin.parse().unwrap(), end.parse().unwrap())
    }

    fn hold((start, end): (u64, u64)) -> Hold {
        let (key, sharing) = (KEY.to_owned(), Sharing::Exclusive);
        Hold { key, process: 0, number: 0, asked: None, start, end, fencing: None, sharing }
    }
}
