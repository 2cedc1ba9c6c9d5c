//! A Python process with the `Lock` of kazoo beside this library and beside Curator, at one path.

use std::process::Command;

use redlock_core::LockError;
use redlock_tests::{Peer, ZookeeperServer, skip};

use crate::curator::curator;
use crate::{KEY, LONG, SOON, are_queued, connect, no_lock_is_left, start};

/// The middle of the names of the children of Curator and of this library.
const OURS: &str = "-lock-";

/// Starts a Python process with kazoo in the folder of this test. If kazoo is missing, skips the test and returns `None`.
fn kazoo(server: &ZookeeperServer) -> Option<Peer> {
    let python = std::env::var("REDLOCK_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let import = Command::new(&python).args(["-c", "import kazoo"]).output();
    if !import.is_ok_and(|import| import.status.success()) {
        skip(&format!("{python} has no kazoo; tests/run.sh installs it"));
        return None;
    }
    let address = format!("127.0.0.1:{}{}", server.port(), server.chroot());
    let program = include_str!("../interop/kazoo_locks.py");
    let mut peer = Peer::start(Command::new(python).args(["-c", program, &address]));
    assert_eq!(peer.answer(), "ready");
    Some(peer)
}

/// kazoo looks only at the children of its own recipe, unless `extra_lock_patterns` names others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_kazoo_refuses_us_and_ours_refuses_kazoo_only_with_our_pattern() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let Some(mut python) = kazoo(&server) else { return };
    let locks = connect(&server.url()).await;

    assert_eq!(python.ask(&format!("acquire /{KEY} 0")), "acquired");
    let error = locks.lock(KEY).try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::ForeignKey { .. }), "{error:?}");
    let reason = error.diagnostics().to_string();
    assert!(reason.contains("a znode of another recipe, such as the Lock of kazoo"), "{reason}");
    assert_eq!(python.ask(&format!("release /{KEY}")), "released");

    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    assert_eq!(python.ask(&format!("acquire /{KEY} 0 {OURS}")), "refused");
    // With the pattern, kazoo waits for us.
    python.order(&format!("acquire /{KEY} 60 {OURS}"));
    are_queued(&server, KEY, 2).await;
    guard.release().await.unwrap();
    assert_eq!(python.answer(), "acquired");
    assert_eq!(python.ask(&format!("release /{KEY}")), "released");

    // Without it, kazoo does not see our lock.
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    assert_eq!(python.ask(&format!("acquire /{KEY} 0")), "acquired");
    assert!(guard.is_valid());
    assert_eq!(python.ask(&format!("release /{KEY}")), "released");
    guard.release().await.unwrap();
    no_lock_is_left(&server).await;
}

/// No setting of Curator makes it look at the children of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curator_enters_beside_kazoo_and_kazoo_beside_curator_without_its_pattern() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let Some(mut python) = kazoo(&server) else { return };
    let Some(mut java) = curator(&server, SOON) else { return };
    let enters = |java: &mut Peer| {
        let answer = java.ask(&format!("acquire 0 /{KEY}"));
        assert!(answer.starts_with("acquired"), "{answer}");
    };
    let leaves = |java: &mut Peer| {
        let answer = java.ask(&format!("release /{KEY}"));
        assert!(answer.starts_with("released"), "{answer}");
    };

    for patterns in ["", OURS] {
        assert_eq!(python.ask(&format!("acquire /{KEY} 0 {patterns}")), "acquired");
        enters(&mut java);
        leaves(&mut java);
        assert_eq!(python.ask(&format!("release /{KEY}")), "released");
    }
    enters(&mut java);
    assert_eq!(python.ask(&format!("acquire /{KEY} 0 {OURS}")), "refused");
    assert_eq!(python.ask(&format!("acquire /{KEY} 0")), "acquired");
    assert_eq!(python.ask(&format!("release /{KEY}")), "released");
    leaves(&mut java);
    no_lock_is_left(&server).await;
}
