//! Wrong input: the exit status is 2, and the message names the remedy.

use redlock_tests::{RedisServer, Servers, redlock};

use super::{done, finish};

#[tokio::test]
async fn wrong_arguments_are_errors_with_a_remedy() {
    let server = RedisServer::start().await;
    let urls = [server.url()];
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
        (&["run", "a", "--keep", "0", "--", "true"], "'0' for '--keep <TIME>'"),
        (&["run", "a", "--wait", "-5", "--", "true"], "'-5' for '--wait <TIME>': must be a time"),
        (&["run", "a", "--grace", "-1s", "--", "true"], "'-1s' for '--grace <TIME>'"),
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
}

/// An operator who has agreed to a break must not learn of a mistake only then.
#[tokio::test]
async fn a_wrong_reason_is_found_before_a_node_is_asked() {
    let mut server = RedisServer::start().await;
    let urls = [server.url()];
    server.kill();
    let long = "x".repeat(201);
    for reason in ["", "a\nb", &long] {
        let arguments = ["break", "a", "--holder", "0123456789abcdef", "--yes", "--reason", reason];
        let wrong = done(&urls, &arguments).await;
        assert_eq!(wrong.status, 2, "{wrong:?}");
        assert!(wrong.err.contains("from 1 to 200 bytes without control characters"), "{wrong:?}");
        assert!(!wrong.err.contains("connect"), "{wrong:?}");
    }
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

/// A cron job that ends with 75 is repeated. A refusal of the user would be repeated, too, and nobody would learn of it.
#[tokio::test]
async fn a_user_that_redis_refuses_ends_a_run_with_an_error() {
    let servers = Servers::start(3).await;
    for (rights, password, words) in [
        ("~* +@all", "wrong", "WRONGPASS"),
        ("~* +@all -script|load", "open-sesame", "ACL SETUSER .. +script|load"),
        ("~* +@all -del", "open-sesame", "no right to DEL"),
        // The user may connect, and not use the key.
        ("~lock:* +@all", "open-sesame", "not permitted"),
    ] {
        for server in servers.iter() {
            let words = ["ACL", "SETUSER", "app", "reset", "on", ">open-sesame", "&*"];
            let words = [&words[..], &rights.split(' ').collect::<Vec<_>>()].concat();
            server.probe().await.command::<()>(&words[..]).await;
        }
        let url =
            |server: &RedisServer| format!("redis://app:{password}@127.0.0.1:{}", server.port());
        let urls: Vec<_> = servers.iter().map(url).collect();
        for arguments in
            [&["run", "a", "--", "true"][..], &["run", "a", "--wait", "1h", "--", "true"]]
        {
            let refused = done(&urls, arguments).await;
            assert_eq!(refused.status, 2, "{arguments:?}: {refused:?}");
            assert!(refused.err.contains(words), "{words}: {refused:?}");
        }
        // The other two nodes are a quorum without this one, and one of them is down.
        let mut ended = RedisServer::start().await;
        let some = [urls[0].clone(), servers[1].url(), ended.url()];
        ended.kill();
        let passes = done(&some, &["run", "a", "--", "true"]).await;
        assert_eq!(passes.status, 75, "{passes:?}");
    }
}

/// The message has the statements that repair it, for an administrator who does not know this program.
#[tokio::test]
async fn a_postgresql_server_without_the_table_or_a_right_ends_a_run_with_an_error() {
    let server = match redlock_tests::PostgresServer::start().await {
        Ok(server) => server,
        Err(why) => return redlock_tests::skip(&why),
    };
    let (admin, urls) = (server.admin().await, [server.url()]);
    let run = async || done(&urls, &["run", "a", "--", "true"]).await;
    admin.batch_execute("revoke update on locks.redlock_lease from app").await.unwrap();
    let refused = run().await;
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(refused.err.contains("grant update on"), "{refused:?}");

    admin.batch_execute("drop schema locks cascade").await.unwrap();
    let refused = run().await;
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(!refused.err.contains("redlock_core"), "{refused:?}");
    let line = refused.err.lines().last().unwrap();
    let begin = line.find("create schema").expect("the first statement");
    let end = line.rfind(';').expect("the last statement");
    admin.batch_execute(&line[begin..end].replace("ROLE", "app")).await.unwrap();
    let repaired = run().await;
    assert_eq!(repaired.status, 0, "{repaired:?}");
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
