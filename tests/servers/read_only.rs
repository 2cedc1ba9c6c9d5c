//! A server that became a replica ends the use of its connection, so that its name is resolved again.

use redlock_core::LockManager;
use redlock_tests::{Logs, Play, PlayedServer, RedisServer, eventually};

use super::{LONG, SOON, connect};

/// The words of Redis for a command, of Redis 7 for a script, and of Redis 6.2 for a script.
const REFUSALS: [&str; 3] = [
    "-READONLY You can't write against a read only replica.\r\n",
    "-READONLY You can't write against a read only replica. script: f1c2, on @user_script:1.\r\n",
    "-ERR Error running script (call to f_1): @user_script:5: @user_script: 5: -READONLY You can't write against a read \
     only replica.\r\n",
];

/// The operation that the server refuses.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Acquire,
    AcquireByScript,
    Extend,
    Release,
}

impl Operation {
    /// Calls the operation, which the server refuses. Then calls another one at once.
    async fn call(self, server: &PlayedServer, locks: &LockManager, refusal: &'static str) {
        let request = |key| locks.lock(key).expire(LONG);
        let held = request("held").try_acquire().await.unwrap();
        server.play(move |command| {
            let names = ["SET", "EVALSHA", "DELIFEQ", "DELEX"];
            let is_refused =
                command.connection == 1 && names.iter().any(|name| command.is(&[name]));
            if is_refused { Play::Reply(refusal.to_owned()) } else { Play::Pass }
        });
        let error = match self {
            Self::Acquire => request("order:42").try_acquire().await.unwrap_err().to_string(),
            Self::AcquireByScript => {
                request("order:42").fenced(true).try_acquire().await.unwrap_err().to_string()
            }
            Self::Extend => held.extend(LONG).await.unwrap_err().to_string(),
            Self::Release => return drop(held.release().await.unwrap_err()),
        };
        assert!(!error.is_empty());
    }
}

/// Its master does not know the locks that it grants.
#[tokio::test]
async fn connect_warns_about_a_replica_also_if_it_accepts_writes() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let logs = Logs::collect();
    let master = LockManager::connect([server.url()]).await.unwrap();
    assert_eq!(logs.count("WARN", "is a replica"), 0);
    master.shutdown().await;
    probe.command::<()>(["REPLICAOF", "127.0.0.1", "1"]).await;
    probe.command::<()>(["CONFIG", "SET", "replica-read-only", "no"]).await;
    let locks = LockManager::connect([server.url()]).await.unwrap();
    assert_eq!(logs.count("WARN", "is a replica"), 1);
    locks.lock("order:42").try_acquire().await.unwrap().release().await.unwrap();
}

/// The server may be a replica for good, and another one the master.
#[tokio::test]
async fn the_next_command_after_a_refusal_of_a_replica_uses_a_new_connection() {
    use Operation::{Acquire, AcquireByScript, Extend, Release};
    let real = RedisServer::start().await;
    for (operation, refusal) in [
        (Acquire, REFUSALS[0]),
        (AcquireByScript, REFUSALS[1]),
        (AcquireByScript, REFUSALS[2]),
        (Extend, REFUSALS[1]),
        (Extend, REFUSALS[2]),
        (Release, REFUSALS[1]),
        (Release, REFUSALS[2]),
    ] {
        let server = PlayedServer::before(&real).await;
        let locks = connect([server.url()]).await;
        let sent = || [server.commands(&["SET"]), server.commands(&["EVALSHA"])].concat();
        operation.call(&server, &locks, refusal).await;
        let on_first = || sent().iter().filter(|command| command.connection == 1).count();
        let before = on_first();
        let next = async || locks.lock("next").expire(LONG).try_acquire().await.ok();
        let guard = eventually("the node is used again", SOON, next).await;
        guard.release().await.unwrap();
        assert_eq!(on_first(), before, "{operation:?}, {refusal:?}: the old connection is used");
        assert_eq!(server.accepted(), 2, "{operation:?}, {refusal:?}");
        locks.shutdown().await;
        real.probe().await.command::<()>(["FLUSHALL"]).await;
    }
}
