//! The names under which other libraries lock. Each of them adds its own prefix, and a prefix that one side adds and the other
//! does not is a lock that excludes nobody. The page about interoperability has the table.

/// These tests download the libraries, so they run at night.
mod nightly {
    use std::path::Path;
    use std::process::Command;

    use redlock_core::LockManager;
    use redlock_tests::{Peer, Servers, eventually, java, skip, target};

    use super::super::{MINUTE, assert_held_for, assert_refused_for, gets_the_lock};
    use crate::{LONG, builder};

    /// The name that the caller of the other library chooses, and the key of the lock of this library.
    const NAME: &str = "settlement";

    /// A library, the prefix that makes a manager lock the same name, and whether its callers can wait.
    struct Library {
        name: &'static str,
        prefix: &'static str,
        waits: bool,
    }

    const fn library(name: &'static str, prefix: &'static str) -> Library {
        Library { name, prefix, waits: true }
    }

    /// Returns the command that starts the program in the folder `interop/others/<language>`, without its argument.
    fn other(language: &str) -> Result<Command, String> {
        let directory = target().join("others").join(language);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/others/prepare.sh");
        let why = |error: String| format!("no locks of {language}: {}", error.trim());
        let output = Command::new(&script).arg(language).arg(&directory).output();
        let output = output.map_err(|error| why(error.to_string()))?;
        if !output.status.success() {
            return Err(why(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        let mut command;
        match language {
            "python" => {
                command = Command::new(directory.join("python/bin/python"));
                command.arg(script.with_file_name("python/peer.py"));
            }
            "node" => {
                command = Command::new("node");
                command.arg(directory.join("peer.js"));
            }
            _ => command = Command::new(directory.join("peer")),
        }
        Ok(command)
    }

    /// Both sides refuse each other, and each side gets the lock after the other.
    async fn excludes(servers: &Servers, peer: &mut Peer, library: &Library) {
        let Library { name, prefix, waits } = library;
        let server = &servers[0];
        let key = format!("{prefix}{NAME}");
        let locks: LockManager = builder(servers.urls()).prefix(*prefix).connect().await.unwrap();
        let request = || locks.lock(NAME).expire(LONG);
        let mut probe = server.probe().await;

        assert_eq!(peer.ask(&format!("acquire {name} {NAME} 60000 0")), "acquired", "{name}");
        let keys = probe.keys().await;
        assert!(keys.contains(&key), "{name}: {keys:?}");
        assert_held_for(server, &key, MINUTE).await;
        assert_refused_for(request().try_acquire().await, MINUTE);
        let waiting = tokio::spawn(request().wait_time(LONG).acquire());
        assert_eq!(peer.ask(&format!("release {name}")), "released", "{name}");
        let guard = gets_the_lock(waiting).await;

        assert_eq!(peer.ask(&format!("acquire {name} {NAME} 60000 0")), "refused", "{name}");
        assert_held_for(server, &key, LONG).await;
        if *waits {
            probe.reset_calls().await;
            peer.order(&format!("acquire {name} {NAME} 60000 40000"));
            eventually("the other library asks for the lock", MINUTE, async || {
                let calls = probe.calls().await;
                ["set", "eval", "evalsha"]
                    .iter()
                    .any(|call| calls.contains_key(*call))
                    .then_some(())
            })
            .await;
            guard.release().await.unwrap();
            assert_eq!(peer.answer(), "acquired", "{name}");
        } else {
            guard.release().await.unwrap();
            assert_eq!(peer.ask(&format!("acquire {name} {NAME} 60000 0")), "acquired");
        }
        assert_refused_for(request().try_acquire().await, MINUTE);
        assert_eq!(peer.ask(&format!("release {name}")), "released", "{name}");
        request().try_acquire().await.unwrap().release().await.unwrap();
    }

    async fn all_exclude(program: Result<Command, String>, libraries: &[Library]) {
        let mut program = match program {
            Ok(program) => program,
            Err(why) => return skip(&why),
        };
        let servers = Servers::start(1).await;
        let mut peer = Peer::start(program.arg(servers[0].port().to_string()));
        assert_eq!(peer.answer(), "ready");
        for library in libraries {
            excludes(&servers, &mut peer, library).await;
        }
    }

    #[tokio::test]
    async fn locks_of_python_and_ours_exclude_each_other() {
        let libraries = [
            library("redis-py", ""),
            library("django-redis", ":1:"),
            // Its callers wait for an item of a list that only its own releases add.
            Library { name: "python-redis-lock", prefix: "lock:", waits: false },
            library("pottery", "redlock:"),
        ];
        all_exclude(other("python"), &libraries).await;
    }

    #[tokio::test]
    async fn locks_of_node_js_and_ours_exclude_each_other() {
        let libraries = [
            library("node-redlock", ""),
            library("redis-semaphore", "mutex:"),
            library("simple-redis-mutex", "@simple-redis-mutex:lock-"),
        ];
        all_exclude(other("node"), &libraries).await;
    }

    #[tokio::test]
    async fn locks_of_go_and_ours_exclude_each_other() {
        let libraries = [library("redsync", ""), library("redislock", "")];
        all_exclude(other("go"), &libraries).await;
    }

    #[tokio::test]
    async fn locks_of_spring_and_ours_exclude_each_other() {
        let libraries = [
            library("spring-integration", "registry:"),
            // Its callers wait for a message of their own kind, or until the lease or their time ends.
            Library { name: "spring-integration-pub-sub", prefix: "registry:", waits: false },
            Library { name: "shedlock", prefix: "job-lock:app:", waits: false },
        ];
        let spring = java("spring").map(|mut java| {
            java.arg("SpringPeer");
            java
        });
        all_exclude(spring, &libraries).await;
    }
}
