//! The check of a user's rights when a connection is made.

use redlock_core::{ConnectError, Dialect, LockManager, LockManagerBuilder, NodeError, Vote};
use redlock_tests::{
    FailoverGroup, Logs, Monitor, Probe, RedisCluster, RedisServer, eventually, skip,
};

use crate::{LONG, SOON, builder};

const PASSWORD: &str = "rights-at-connect-vqmx";
const DIALECTS: [Dialect; 2] = [Dialect::Plain, Dialect::Redisson];

async fn set_user(probe: &mut Probe, rights: &str) {
    redlock_logs::remember_password(PASSWORD);
    let user = format!("ACL SETUSER app reset on >{PASSWORD} {rights}");
    probe.command::<()>(user.split(' ').collect::<Vec<_>>()).await;
}

fn of_user(server: &RedisServer) -> LockManagerBuilder {
    builder([server.url_at(&format!("app:{PASSWORD}@127.0.0.1"))])
}

/// Returns why no node has a vote.
async fn refused(builder: LockManagerBuilder) -> String {
    let error = builder.connect().await.unwrap_err();
    let ConnectError::Unavailable { votes, .. } = &error else { panic!("{error:?}") };
    let Some((_, Some(Vote::Failed(NodeError::NotPermitted(reason))))) = votes.iter().next() else {
        panic!("{error:?}")
    };
    assert!(error.to_string().contains(&**reason), "{error}");
    reason.to_string()
}

/// The key of each lock would be blocked for a whole lease after its work.
#[tokio::test]
async fn connect_names_each_right_without_which_a_lock_is_not_released_or_extended() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    set_user(&mut probe, "~* &* +@all -pexpire -del").await;
    for dialect in DIALECTS {
        let reason = refused(of_user(&server).prefix("lock:").dialect(dialect)).await;
        assert!(reason.contains("no right to PEXPIRE, DEL,"), "{reason}");
        assert!(reason.contains("(~lock:*)"), "{reason}");
    }
    set_user(&mut probe, "~* &* +@all -evalsha").await;
    let reason = refused(of_user(&server)).await;
    assert!(reason.contains("no right to EVALSHA,"), "{reason}");
}

/// A reader would keep out all writers for a whole lease after its work. A service that cannot share locks gets no warning.
#[tokio::test]
async fn connect_warns_of_shared_locks_that_are_not_released_or_extended() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let warning = |names: &str| {
        format!("no right to {names}, without which shared locks and permits are not released")
    };
    for (without, names) in [
        ("-zrem", Some("ZREM")),
        ("-zscore -zremrangebyscore", Some("ZSCORE, ZREMRANGEBYSCORE")),
        ("-zrem -zadd", None),
        ("-@sortedset", None),
        ("+zrem", None),
    ] {
        set_user(&mut probe, &format!("~* &* +@all {without}")).await;
        for dialect in DIALECTS {
            let logs = Logs::collect();
            of_user(&server).prefix("lock:").dialect(dialect).connect().await.unwrap();
            let expected = names.filter(|_| dialect == Dialect::Plain);
            assert_eq!(
                logs.count("WARN", "without which shared locks"),
                usize::from(expected.is_some())
            );
            if let Some(names) = expected {
                assert_eq!(logs.count("WARN", &warning(names)), 1, "{:?}", logs.lines());
            }
        }
    }
}

#[tokio::test]
async fn connect_names_a_command_that_the_server_was_configured_without() {
    for command in ["EVALSHA", "PEXPIRE", "DEL"] {
        let server = RedisServer::options().rename(command, "").start().await;
        let reason = refused(builder([server.url()])).await;
        assert!(reason.contains(&format!("no right to {command},")), "{reason}");
        assert!(reason.to_lowercase().contains("unknown"), "{reason}");
    }
}

/// A service without a prefix may have a pattern for each kind of its keys. A service without fenced locks needs no right to
/// the keys of the library.
#[tokio::test]
async fn a_user_whose_patterns_exclude_the_key_of_the_check_gets_a_warning() {
    let server = RedisServer::start().await;
    set_user(&mut server.probe().await, "~shop:order:* &* +@all").await;
    for (prefix, key) in [("", "shop:order:42"), ("shop:", "order:42")] {
        let logs = Logs::collect();
        let locks = of_user(&server).prefix(prefix).connect().await.unwrap();
        assert_eq!(logs.count("WARN", "may not use a key with the prefix of the locks"), 1);
        let guard = locks.lock(key).expire(LONG).try_acquire().await.unwrap();
        guard.extend(LONG * 2).await.unwrap();
        guard.release().await.unwrap();
        let error = locks.lock("cart").try_acquire().await.unwrap_err();
        assert!(error.diagnostics().to_string().contains("not permitted"), "{error:?}");
    }
}

#[tokio::test]
async fn a_user_who_may_write_keys_and_not_read_them_cannot_connect() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let user = ["ACL", "SETUSER", "other", "%W~*"];
    if probe.try_command::<()>(user).await.is_err() {
        return skip("this server has no patterns for reading and writing");
    }
    set_user(&mut probe, "%W~* &* +@all").await;
    let reason = refused(of_user(&server)).await;
    assert!(reason.contains("no right to GET, PTTL,"), "{reason}");
}

/// The first selector permits scripts, and the second one the commands on the keys: a lock is acquired by `SET`, and the script
/// of its release is refused.
#[tokio::test]
async fn a_user_who_may_not_call_scripts_with_the_keys_cannot_connect() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let whole = "resetchannels ~lock:* &lock:* +@all";
    let user = ["ACL", "SETUSER", "other", "(~lock:* +get)"];
    if probe.try_command::<()>(user).await.is_err() {
        return skip("this server has no selectors");
    }
    for selector in ["(~lock:* +set +get +del +pexpire +pttl)", "(~lock:* +@all -evalsha)"] {
        set_user(&mut probe, "resetchannels &lock:* +@all").await;
        probe.command::<()>(["ACL", "SETUSER", "app", selector]).await;
        let reason = refused(of_user(&server).prefix("lock:")).await;
        assert!(reason.contains("no right to EVALSHA,"), "{reason}");
        assert!(reason.contains(" key"), "{reason}");
    }
    set_user(&mut probe, whole).await;
    let logs = Logs::collect();
    let locks = of_user(&server).prefix("lock:").connect().await.unwrap();
    locks.lock("order:42").try_acquire().await.unwrap().release().await.unwrap();
    assert_eq!(logs.count("WARN", ""), 0);
}

/// Neither a full disk nor a missing replica is a missing right.
#[tokio::test]
async fn a_server_that_refuses_writes_for_now_is_connected() {
    let without_replicas = RedisServer::options().directive("min-replicas-to-write", "1");
    let full = RedisServer::options().directive("maxmemory", "1");
    let [replica, broken] = [RedisServer::start().await, RedisServer::start().await];
    replica.probe().await.command::<()>(["REPLICAOF", "127.0.0.1", "1"]).await;
    broken.break_snapshots().await;
    let servers = [without_replicas.start().await, full.start().await, replica, broken];
    for server in &servers {
        for dialect in DIALECTS {
            let locks = builder([server.url()]).dialect(dialect).connect().await.unwrap();
            assert!(locks.is_available());
        }
    }
    for (server, words) in servers.iter().zip(["NOREPLICAS", "OOM", "READONLY", "MISCONF"]) {
        let locks = LockManager::connect([server.url()]).await.unwrap();
        let error = locks.lock("order:42").try_acquire().await.unwrap_err();
        assert!(error.diagnostics().to_string().contains(words), "{}", error.diagnostics());
    }
}

#[tokio::test]
async fn the_check_changes_and_publishes_nothing() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    let dirty = async |probe: &mut Probe| {
        let info: String = probe.command(["INFO", "persistence"]).await;
        info.lines().find(|line| line.starts_with("rdb_changes")).unwrap().to_owned()
    };
    let before = dirty(&mut probe).await;
    let mut monitor = Monitor::connect(&server.url()).await.unwrap();
    for dialect in DIALECTS {
        builder([server.url()]).prefix("lock:").dialect(dialect).connect().await.unwrap();
    }
    assert_eq!(dirty(&mut probe).await, before);
    // No script contains these words.
    probe.command::<()>(["SET", "no command follows", ""]).await;
    let lines = monitor.until(|line| line.contains("no command follows")).await;
    let checked = |line: &&String| line.contains("\"lock:redlock:rights:{0}\"");
    assert!(lines.iter().filter(checked).count() > 5, "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("] \"PUBLISH\"")), "{lines:#?}");
}

/// The right is missing on one master of a cluster, whose slots the key of the check has or has not; and on the master of a
/// Sentinel group.
#[tokio::test]
async fn each_master_of_a_group_is_checked() {
    let cluster = RedisCluster::start().await;
    for without in 0..cluster.servers().len() {
        for (number, _) in cluster.servers().iter().enumerate() {
            let right = if number == without { "-pexpire" } else { "+pexpire" };
            set_user(&mut cluster.probe(number).await, &format!("~* &* +@all {right}")).await;
        }
        let url = cluster.url().replace("//", &format!("//app:{PASSWORD}@"));
        let logs = Logs::collect();
        let locks = builder([url]).connect().await;
        eventually("the log names the right", SOON, async || {
            (logs.count("WARN", "no right to PEXPIRE,") > 0).then_some(())
        })
        .await;
        drop((locks, logs));
    }

    let group = FailoverGroup::options().calm().start().await;
    for server in &group.servers {
        set_user(&mut server.probe().await, "~* &* +@all -del").await;
    }
    let url = group.url().replace("//", &format!("//app:{PASSWORD}@"));
    let reason = refused(builder([url])).await;
    assert!(reason.contains("no right to DEL,"), "{reason}");
}

/// The user loses a right, and gets it back. A connection that was made meanwhile does not vote.
#[tokio::test]
async fn a_new_connection_is_checked_again() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    set_user(&mut probe, "~* &* +@all").await;
    let logs = Logs::collect();
    let locks = of_user(&server).connect().await.unwrap();
    set_user(&mut probe, "~* &* +@all -pexpire").await;
    probe.disconnect_others().await;
    eventually("the node is down", SOON, async || {
        (logs.count("WARN", "no right to PEXPIRE,") > 0).then_some(())
    })
    .await;
    let error = locks.lock("order:42").try_acquire().await.unwrap_err();
    assert!(error.diagnostics().to_string().contains("no right to PEXPIRE,"), "{error:?}");
    set_user(&mut probe, "~* &* +@all").await;
    locks.wait_available().await;
    locks.lock("order:42").try_acquire().await.unwrap().release().await.unwrap();
}

/// Nobody waits for the release, so only the log can say why the key stays.
#[tokio::test]
async fn a_release_that_is_refused_after_a_drop_is_a_warning_and_is_repeated() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    set_user(&mut probe, "~* &* +@all").await;
    let manager = of_user(&server).connect().await.unwrap();
    let logs = Logs::collect();
    let guard = manager.lock("refused").expire(LONG).try_acquire().await.unwrap();
    let without = if probe.has_command("DELIFEQ").await { "-del -delifeq" } else { "-del" };
    set_user(&mut probe, &format!("~* &* +@all {without}")).await;
    drop(guard);
    let warning = eventually("the log names the refusal", SOON, async || {
        let lines = logs.lines();
        lines.into_iter().find(|line| line.contains("a node has refused to release a lock"))
    })
    .await;
    for words in ["WARN", "lock=refused", "del", &server.port().to_string()] {
        assert!(warning.contains(words), "{words}: {warning}");
    }
    set_user(&mut probe, "~* &* +@all").await;
    eventually("the key is gone", SOON, async || {
        (!probe.command::<bool>(vec!["EXISTS", "refused"]).await).then_some(())
    })
    .await;
}
