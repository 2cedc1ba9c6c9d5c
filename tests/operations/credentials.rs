//! Passwords and tokens that change while locks are held.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_core::{
    ConnectError, Credentials, LockManager, LockManagerBuilder, NodeError, Vote, Votes,
};
use redlock_tests::{Logs, RedisServer, Servers, eventually};
use tokio::sync::Notify;

use crate::{LONG, SOON};

pub(super) const SHORT_LIFE: Duration = Duration::from_secs(1);
const KEY: &str = "order:42";
pub(super) const OLD: &str = "old-pa55w0rd-of-the-app";
pub(super) const NEW: &str = "new-pa55w0rd-of-the-app";

fn builder(server: &RedisServer) -> LockManagerBuilder {
    crate::builder([server.url()])
}

/// Returns why the first node has no vote.
fn first(votes: &Votes) -> &NodeError {
    let vote = votes.iter().next().unwrap().1;
    let Some(Vote::Failed(reason)) = vote else { panic!("{votes}") };
    reason
}

async fn refused(builder: LockManagerBuilder) -> NodeError {
    let error = builder.connect().await.unwrap_err();
    let ConnectError::Unavailable { votes, .. } = &error else { panic!("{error:?}") };
    assert!(![OLD, NEW].iter().any(|password| format!("{error} {error:?}").contains(password)));
    first(votes).clone()
}

/// Returns the users and the ids of the connections that carry locks.
pub(super) async fn sessions(server: &RedisServer) -> Vec<(String, String)> {
    let clients: String = server.probe().await.command(["CLIENT", "LIST"]).await;
    let value = |line: &str, name: &str| {
        let mut words = line.split(' ');
        words.find_map(|word| word.strip_prefix(name)).unwrap_or_default().to_owned()
    };
    let sessions = clients.lines().map(|line| (value(line, "user="), value(line, "id=")));
    sessions.filter(|(user, _)| user != "default").collect()
}

/// Changes the password of the user `app` twice, and checks that a held lock stays, over a new connection too.
async fn survives_a_new_password(server: &RedisServer, locks: &LockManager, set: impl Fn(&str)) {
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    for password in [NEW, OLD] {
        let mut probe = server.probe().await;
        let rule = format!(">{password}");
        set(password);
        let _: () = probe.command(["ACL", "SETUSER", "app", "resetpass", &rule]).await;
        guard.extend(LONG).await.unwrap();
        let before = sessions(server).await;
        probe.disconnect_others().await;
        eventually("the lease is extended over a new connection", SOON, async || {
            guard.extend(LONG).await.ok()
        })
        .await;
        let after = sessions(server).await;
        assert!(after.len() == 1 && before != after, "{before:?} {after:?}");
    }
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_new_connection_gets_its_password_from_the_provider() {
    let server = RedisServer::options().user("app", OLD).user("other", NEW).start().await;
    let password = Arc::new(Mutex::new(OLD.to_owned()));
    let current = Arc::clone(&password);
    let provider = move |_| {
        let password = current.lock().unwrap().clone();
        async move { Ok::<_, std::io::Error>(Credentials::new(password).username("app")) }
    };
    let locks = builder(&server).credentials(provider).connect().await.unwrap();
    survives_a_new_password(&server, &locks, |new| new.clone_into(&mut password.lock().unwrap()))
        .await;
}

#[tokio::test]
async fn a_new_connection_reads_its_password_from_the_file() {
    let server = RedisServer::options().user("app", OLD).user("other", NEW).start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let set = |password: &str| std::fs::write(file.path(), format!("{password}\n")).unwrap();
    set(OLD);
    let url = format!("{}?password_file={}", server.url_at("app@127.0.0.1"), file.path().display());
    let locks = crate::connect([url]).await;
    survives_a_new_password(&server, &locks, set).await;
}

/// The server closes the connections of a user that is deleted.
#[tokio::test]
async fn a_connection_authenticates_again_before_its_credentials_expire() {
    let server = RedisServer::options().user("first", OLD).user("second", NEW).start().await;
    let calls = Arc::new(AtomicU64::new(0));
    let begin = Arc::new(Notify::new());
    let (counted, begins) = (Arc::clone(&calls), Arc::clone(&begin));
    let provider = move |node: Arc<str>| {
        let call = counted.fetch_add(1, Ordering::SeqCst);
        let begins = Arc::clone(&begins);
        async move {
            assert!(node.starts_with("127.0.0.1:"), "{node}");
            if call == 1 {
                begins.notified().await;
            }
            Ok::<_, std::io::Error>(match call {
                0 => Credentials::new(OLD).username("first").expires_in(SHORT_LIFE),
                1 => Credentials::new(NEW).username("second").expires_in(SHORT_LIFE),
                _ => Credentials::new(NEW).username("second"),
            })
        }
    };
    let locks = builder(&server).credentials(provider).connect().await.unwrap();
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let other = crate::connect([server.url()]).await;
    let held = other.lock("order:43").expire(LONG).try_acquire().await.unwrap();
    let waiter = tokio::spawn(locks.lock("order:43").wait_time(LONG).acquire());
    let before = sessions(&server).await;
    assert!(before.len() == 1 && before[0].0 == "first", "{before:?}");
    begin.notify_one();
    let after = eventually("the connection has another user", SOON, async || {
        Some(sessions(&server).await).filter(|sessions| sessions[0].0 == "second")
    })
    .await;
    assert!(after.len() == 1 && after[0].1 == before[0].1, "{before:?} {after:?}");
    let _: i64 = server.probe().await.command(["ACL", "DELUSER", "first"]).await;
    guard.extend(LONG).await.unwrap();
    eventually("the last credentials are in use", SOON, async || {
        (calls.load(Ordering::SeqCst) == 3).then_some(())
    })
    .await;
    guard.release().await.unwrap();
    // The subscriptions are on the same connection.
    held.release().await.unwrap();
    let woken = tokio::time::timeout(SOON, waiter).await.unwrap();
    woken.unwrap().unwrap().release().await.unwrap();
    assert_eq!(sessions(&server).await, after);
}

#[tokio::test]
async fn credentials_that_cannot_be_renewed_are_tried_again() {
    let logs = Logs::collect();
    let server = RedisServer::options().user("first", OLD).user("second", NEW).start().await;
    let calls = AtomicU64::new(0);
    let provider = move |_| {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        async move {
            match call {
                0 => Ok(Credentials::new(OLD).username("first").expires_in(SHORT_LIFE)),
                1 => Err("the token service is down"),
                // The server refuses them, and the connection stays.
                2 => Ok(Credentials::new(OLD).username("second")),
                _ => Ok(Credentials::new(NEW).username("second")),
            }
        }
    };
    let locks = builder(&server).credentials(provider).connect().await.unwrap();
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let before = sessions(&server).await;
    let after = eventually("the connection has another user", SOON, async || {
        Some(sessions(&server).await).filter(|sessions| sessions[0].0 == "second")
    })
    .await;
    assert_eq!(after[0].1, before[0].1);
    guard.extend(LONG).await.unwrap();
    guard.release().await.unwrap();
    let count = |words| logs.count("WARN", words);
    assert_eq!(count("cannot renew the credentials of a connection"), 2);
    assert_eq!((count("the token service is down"), count("WRONGPASS")), (1, 1));
}

#[tokio::test]
async fn a_provider_that_fails_or_hangs_costs_one_vote() {
    let servers = Servers::start(3).await;
    let name = format!("127.0.0.1:{}", servers[0].port());
    let hangs = Arc::new(AtomicU64::new(0));
    for (hang, words) in [
        (false, "no credentials: the provider failed: the token service is down"),
        (true, "no credentials: the provider failed: it did not return within 1.5s"),
    ] {
        let (name, hangs) = (name.clone(), Arc::clone(&hangs));
        let provider = move |node: Arc<str>| {
            let fails = *node == *name;
            let hangs = Arc::clone(&hangs);
            async move {
                match (fails, hang) {
                    (false, _) => Ok(Credentials::new("any")),
                    (true, false) => Err("the token service is down"),
                    (true, true) => {
                        hangs.fetch_add(1, Ordering::SeqCst);
                        std::future::pending().await
                    }
                }
            }
        };
        let builder = || builder(&servers[0]).connect_timeout(Duration::from_secs(2));
        let refused = refused(builder().credentials(provider.clone()));
        let reason = tokio::time::timeout(SOON, refused).await.unwrap();
        assert!(matches!(reason, NodeError::Credentials(_)), "{reason:?}");
        assert_eq!(reason.to_string(), words);

        // The default user of a server without a password accepts any.
        let all = servers.iter().skip(1).fold(builder(), |all, server| all.url(server.url()));
        let locks = all.credentials(provider).connect().await.unwrap();
        locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
    }
    assert!(hangs.load(Ordering::SeqCst) > 0);
}

#[tokio::test]
async fn credentials_that_the_server_refuses_are_named() {
    let server = RedisServer::options().user("app", OLD).start().await;
    let provider = |_| async { Ok::<_, &str>(Credentials::new(NEW).username("app")) };
    let reason = refused(builder(&server).credentials(provider)).await;
    assert!(matches!(&reason, NodeError::Credentials(words) if words.contains("WRONGPASS")));
    let url = server.url_at("app@127.0.0.1");
    let reason = refused(crate::builder([format!("{url}?password_file=/no/such")])).await;
    assert!(matches!(reason, NodeError::Credentials(_)), "{reason:?}");
}

/// A connection without a login belongs to the user `default`, who may have other rights.
#[tokio::test]
async fn a_url_with_a_user_and_no_password_logs_this_user_in() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    for rule in [["SETUSER", "free", "nopass"], ["SETUSER", "app", ">s3cret"]] {
        let [set, user, password] = rule;
        let rule = ["ACL", set, user, "on", password, "~*", "&*", "+@all"];
        probe.command::<()>(rule).await;
    }
    let url = |user: &str| server.url().replace("://", &format!("://{user}@"));
    let locks = redlock_tests::connect([url("free")]).await;
    let users = sessions(&server).await;
    assert!(users.iter().any(|(user, _)| user == "free"), "{users:?}");
    locks.shutdown().await;
    let error = refused(LockManager::builder().url(url("app"))).await;
    assert!(matches!(error, NodeError::Credentials(_)), "{error}");
}

/// The URL of a node wins over the provider of all nodes.
#[tokio::test]
async fn a_url_with_a_password_does_not_ask_the_provider() {
    let server = RedisServer::options().password(OLD).start().await;
    let provider = |_| async { Err::<Credentials, _>("asked") };
    let locks = builder(&server).credentials(provider).connect().await.unwrap();
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
    assert!(!format!("{:?}", builder(&server).credentials(provider)).contains(OLD));
}
