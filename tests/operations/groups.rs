//! Clusters and Sentinel groups with TLS and with credentials that expire.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redlock_core::{Credentials, LockManagerBuilder, TlsOptions};
use redlock_tests::{FailoverGroup, RedisCluster, RedisOptions, RedisServer, Sentinel, eventually};

use super::credentials::{NEW, OLD, SHORT_LIFE, sessions};
use super::tls::certificates::{Authority, Files};
use crate::{LONG, SOON, builder};

/// Adds the credentials of the user `first`, which expire, and those of the user `second` from the returned moment on.
fn with_two_users(builder: LockManagerBuilder) -> (LockManagerBuilder, Arc<AtomicBool>) {
    let is_second = Arc::new(AtomicBool::new(false));
    let read = Arc::clone(&is_second);
    let builder = builder.credentials(move |_| {
        let is_second = read.load(Ordering::SeqCst);
        async move {
            Ok::<_, std::io::Error>(if is_second {
                Credentials::new(NEW).username("second")
            } else {
                Credentials::new(OLD).username("first").expires_in(SHORT_LIFE)
            })
        }
    });
    (builder, is_second)
}

/// Checks that a server's connections get the user `second`, and outlast the user `first`.
async fn outlasts_the_first_user(server: &RedisServer, before: &[(String, String)]) {
    eventually("every connection has another user", SOON, async || {
        sessions(server).await.iter().all(|(user, _)| user == "second").then_some(())
    })
    .await;
    let _: i64 = server.probe().await.command(["ACL", "DELUSER", "first"]).await;
    let ids = |sessions: &[(String, String)]| {
        sessions.iter().map(|(_, id)| id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&sessions(server).await), ids(before));
}

/// Returns files with a certificate for the addresses that a group reports.
fn files_of_group() -> Files {
    let (files, authority) = (Files::new(), Authority::new());
    files.replace(&authority);
    let names = ["localhost", "127.0.0.1"].map(str::to_owned).to_vec();
    files.sign(&authority, "server", &rcgen::CertificateParams::new(names).unwrap());
    files
}

/// Returns why the only node, a group, has no vote.
async fn refused(url: &str, tls: TlsOptions) -> String {
    match builder([url]).tls(tls).connect().await {
        Err(error) => error.to_string(),
        Ok(locks) => {
            locks.lock("order:42").try_acquire().await.unwrap_err().diagnostics().to_string()
        }
    }
}

/// Starts a server with TLS, and a sentinel that names it by its address. Returns the URL of the group too.
async fn sentinel_group(files: &Files) -> Option<(RedisServer, Sentinel, String)> {
    let options = files.options()?.directive("tls-auth-clients", "yes");
    let server = options.directive("tls-replication", "yes").start().await;
    let port = server.tls_url().rsplit(':').next().unwrap().to_owned();
    let configuration = format!(
        "tls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\ntls-auth-clients yes\ntls-replication yes\n\
         sentinel monitor shop 127.0.0.1 {port} 1\n",
        files.text("server.pem"),
        files.text("server.key"),
        files.text("ca.pem"),
    );
    let sentinel = Sentinel::start(&configuration, None).await;
    let url = format!("rediss+sentinel://localhost:{}/shop", sentinel.tls_port());
    Some((server, sentinel, url))
}

/// Starts a cluster with TLS. Returns its URL too.
async fn cluster_with(options: &RedisOptions) -> (RedisCluster, String) {
    let cluster = RedisCluster::start_with(options, 0).await;
    let hosts: Vec<_> =
        cluster.servers().iter().map(|server| server.tls_url().replace("rediss://", "")).collect();
    (cluster, format!("rediss-cluster://{}", hosts.join(",")))
}

/// The cluster reports addresses, for which the certificates are valid.
#[tokio::test]
async fn every_connection_to_a_cluster_has_tls_and_renews_its_credentials() {
    let files = files_of_group();
    let Some(options) = files.options() else { return };
    let options = options.directive("tls-auth-clients", "yes");
    let options = options.user("first", OLD).user("second", NEW);
    let (cluster, url) = cluster_with(&options).await;
    let servers = cluster.servers();
    let builder = builder([url]);
    let (builder, is_second) = with_two_users(builder.tls(files.identify()));
    let locks = builder.connect().await.unwrap();
    let mut guards = Vec::new();
    let mut before = Vec::new();
    for (number, server) in servers.iter().enumerate() {
        let key = cluster.key_on(number, "order").await;
        guards.push(locks.lock(key).expire(LONG).try_acquire().await.unwrap());
        before.push(sessions(server).await);
    }
    is_second.store(true, Ordering::SeqCst);
    for (server, before) in servers.iter().zip(&before) {
        outlasts_the_first_user(server, before).await;
    }
    for guard in guards {
        guard.extend(LONG).await.unwrap();
        guard.release().await.unwrap();
    }
}

/// The sentinels have credentials of their own.
#[tokio::test]
async fn a_connection_to_the_master_of_a_sentinel_group_renews_its_credentials() {
    let group = FailoverGroup::start().await;
    for server in &group.servers {
        for (user, password) in [("first", OLD), ("second", NEW)] {
            let rules =
                ["ACL", "SETUSER", user, "on", &format!(">{password}"), "~*", "&*", "+@all"];
            let _: () = server.probe().await.command(rules).await;
        }
    }
    let (builder, is_second) = with_two_users(builder([group.url()]));
    let locks = builder.connect().await.unwrap();
    let guard = locks.lock("order:42").expire(LONG).try_acquire().await.unwrap();
    let before = sessions(&group.servers[0]).await;
    assert_eq!(before.len(), 1);
    is_second.store(true, Ordering::SeqCst);
    outlasts_the_first_user(&group.servers[0], &before).await;
    guard.extend(LONG).await.unwrap();
    guard.release().await.unwrap();
}

/// Sentinels and servers have the same options of TLS.
#[tokio::test]
async fn the_connections_to_sentinels_and_to_their_master_have_tls() {
    let files = files_of_group();
    let Some((_server, _sentinel, url)) = sentinel_group(&files).await else { return };
    let locks = builder([&url]).tls(files.identify()).connect().await.unwrap();
    let guard = locks.lock("order:42").expire(LONG).try_acquire().await.unwrap();
    guard.release().await.unwrap();
    let reason = refused(&url, files.trust()).await;
    assert!(reason.contains("CertificateRequired"), "{reason}");
}

/// The authority is wrong for the servers of the URL already. The name is that of a master, which they report.
#[tokio::test]
async fn a_group_with_a_wrong_authority_or_host_name_has_a_vote_that_says_so() {
    let (files, other) = (Files::new(), Files::new());
    let Some((_server, _sentinel, sentinel_url)) = sentinel_group(&files).await else { return };
    let (_cluster, cluster_url) = cluster_with(&files.options().unwrap()).await;
    let stranger = files.identify().ca_file(other.path("ca.pem"));
    for url in [sentinel_url, cluster_url] {
        for (tls, words) in [
            (files.identify(), "certificate not valid for name \"127.0.0.1\""),
            (stranger.clone(), "invalid peer certificate: UnknownIssuer"),
        ] {
            let reason = refused(&url, tls).await;
            assert!(reason.contains(words), "{url}: {reason}");
        }
    }
}
