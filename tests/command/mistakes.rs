//! Wrong input: the exit status is 2, and the message names the remedy.

use redlock_tests::{RedisServer, redlock};

use super::{done, finish};

#[tokio::test]
async fn wrong_arguments_are_errors_with_a_remedy() {
    let server = RedisServer::start().await;
    let urls = [server.url()];
    let long = "x".repeat(201);
    let (id, none) = ("0123456789abcdef", &[][..]);
    for (arguments, words) in [
        (none, "Usage: redlock"),
        (&["stats", "a"], "'status'"),
        (&["status"], "<KEY>"),
        (&["status", ""], "invalid lock key"),
        (&["status", "a\nb"], "control character"),
        (&["status", "redlock:a"], "redlock:"),
        (&["watch", "a\u{7}"], "control character"),
        (&["break", "a"], "--holder"),
        (&["break", "a", "--holder", "ABC", "--yes"], "16 lower-case hexadecimal digits"),
        (&["break", "a\tb", "--holder", id, "--yes"], "control character"),
        (&["run", "a"], "<COMMAND>"),
        (&["run", "", "--", "true"], "invalid lock key"),
        (&["run", "a", "--expire", "soon", "--", "true"], "30s"),
        (&["run", "a", "--expire", "5ms", "--", "true"], "from 10 ms to 7 days"),
        (&["run", "a", "--keep", "8d", "--", "true"], "from 10 ms to 7 days"),
        (&["run", "a", "--grace", "16s", "--", "true"], "at most 15s"),
        (&["run", "a", "--keep", "1h", "--grace", "16s", "--", "true"], "at most 15s"),
        (&["--config", "/no/such", "status", "a"], "--config /no/such"),
        (&["--url", "http://a", "status", "a"], "its scheme is unknown"),
    ] {
        let wrong = done(&urls, arguments).await;
        assert_eq!((wrong.status, &*wrong.out), (2, ""), "{arguments:?}: {wrong:?}");
        assert!(wrong.err.contains(words), "{arguments:?}: {}", wrong.err);
    }
    // The run with a wrong grace had the lock for a moment, and its counter stays.
    let mut keys = server.probe().await.keys().await;
    keys.retain(|key| !key.contains("redlock:fencing"));
    assert_eq!(keys, [""; 0], "a lock was left behind");

    // A holder that exists, so that the reason is read.
    let locks = redlock_tests::connect(&urls).await;
    let guard = super::held(&locks, "a").await;
    let id = locks.status("a").await.unwrap().holders()[0].id().to_string();
    for reason in ["", "a\nb", &long] {
        let wrong =
            done(&urls, &["break", "a", "--holder", &id, "--yes", "--reason", reason]).await;
        assert_eq!(wrong.status, 2, "{wrong:?}");
        assert!(wrong.err.contains("from 1 to 200 bytes without control characters"), "{wrong:?}");
    }
    assert!(guard.is_valid());
}

#[tokio::test]
async fn the_settings_come_from_a_file_or_the_environment_and_no_error_shows_a_password() {
    let server = RedisServer::options().password("open-sesame").start().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("service.toml");
    let with = async |text: &str| {
        std::fs::write(&file, text).unwrap();
        let mut command = redlock(&[]);
        command.env_remove("LOCKS_URLS").arg("--config").arg(&file).args(["status", "a", "--json"]);
        let done = finish(command).await;
        assert!(!format!("{done:?}").contains("sesame"), "{done:?}");
        done
    };
    let url = format!("redis://:open-sesame@127.0.0.1:{}", server.port());
    for text in [
        format!("urls = [\"{url}\"]\nprefix = \"shop:\""),
        format!("port = 3000\n[locks]\nurls = \"{url}\"\nprefix = \"shop:\""),
    ] {
        let free = with(&text).await;
        assert_eq!(free.status, 0, "{free:?}");
    }
    for (text, words) in [
        (format!("urls = [\"{url}\""), "line 1: "),
        (format!("a = 1\nurls = [\"{url}\n"), "line 2: "),
        (format!("url = \"{url}\""), "unknown field `url`"),
        (format!("urls = \"{url}\"\nexpire = \"5ms\""), "from 10 ms to 7 days"),
        ("prefix = \"a\"".to_owned(), "LOCKS_URLS"),
    ] {
        let wrong = with(&text).await;
        assert_eq!(wrong.status, 2);
        assert!(wrong.err.contains(words), "{words}: {wrong:?}");
    }
    let mut command = redlock(&[url.replace("sesame", "sesame2")]);
    command.args(["status", "a"]);
    let refused = finish(command).await;
    assert_eq!(refused.status, 2);
    assert!(!refused.err.contains("sesame"), "{refused:?}");
    let mut command = redlock(&[url]);
    command.args(["status", "a"]).env("LOCKS_EXPIRE", "5ms");
    let wrong = finish(command).await;
    assert!(wrong.status == 2 && wrong.err.contains("LOCKS_EXPIRE"), "{wrong:?}");
}

/// Nothing answers at the port of a server that has ended.
#[tokio::test]
async fn without_a_server_each_command_says_so() {
    let mut server = RedisServer::start().await;
    let urls = [server.url()];
    server.kill();
    let id = "0123456789abcdef";
    for (arguments, status) in [
        (&["status", "a"][..], 2),
        (&["watch", "a"], 2),
        (&["break", "a", "--holder", id, "--yes"], 2),
        (&["run", "a", "--", "true"], 75),
    ] {
        let failed = done(&urls, arguments).await;
        assert_eq!(failed.status, status, "{failed:?}");
        assert!(failed.err.contains("is Redis running at 127.0.0.1"), "{failed:?}");
    }
}

/// The user may connect, and not read the key.
#[tokio::test]
async fn a_status_without_the_right_names_it() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let words = ["ACL", "SETUSER", "app", "on", ">open-sesame", "~lock:*", "&*", "+@all"];
    probe.command::<()>(words).await;
    let urls = [format!("redis://app:open-sesame@127.0.0.1:{}", server.port())];
    let refused = done(&urls, &["status", "a"]).await;
    assert_eq!(refused.status, 2);
    assert!(refused.err.contains("not permitted"), "{refused:?}");
}
