//! Connections that TLS refuses. Each is one failed vote that names its cause.

#![allow(clippy::unwrap_used, reason = "tests")]

use redlock_core::{ConnectError, LockManager, NodeError, TlsOptions, Vote};
use redlock_tests::RedisServer;

use super::certificates::{Authority, Files, expired};

/// Returns why TLS has failed.
async fn refused(url: &str, tls: TlsOptions) -> String {
    let error = LockManager::builder().url(url).tls(tls).connect().await.unwrap_err();
    let ConnectError::Unavailable { votes, .. } = &error else { panic!("{error:?}") };
    let vote = votes.iter().next().unwrap().1;
    let Some(Vote::Failed(NodeError::Tls(reason))) = vote else { panic!("{error:?}") };
    assert!(!error.to_string().contains("is Redis running"), "{error}");
    reason.to_string()
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_named() {
    let (files, other) = (Files::new(), Files::new());
    let Some(server) = files.server().await else { return };
    let reason = refused(&server.tls_url(), other.trust()).await;
    assert!(reason.starts_with("no trusted authority has signed the certificate of the server"));
    assert!(reason.contains("tls_ca"), "{reason}");
}

#[tokio::test]
async fn an_expired_certificate_is_named() {
    let (files, authority) = (Files::new(), Authority::new());
    files.replace(&authority);
    files.sign(&authority, "server", &expired());
    let Some(server) = files.server().await else { return };
    let reason = refused(&server.tls_url(), files.trust()).await;
    assert!(reason.starts_with("the certificate of the server has expired"), "{reason}");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_named_with_both_hosts() {
    let files = Files::new();
    let Some(server) = files.server().await else { return };
    let url = server.tls_url().replace("localhost", "127.0.0.1");
    let reason = refused(&url, files.trust()).await;
    assert!(reason.contains("127.0.0.1") && reason.contains("localhost"), "{reason}");
}

/// With TLS 1.3 the server refuses the client only after the handshake.
#[tokio::test]
async fn a_missing_client_certificate_is_named_with_each_version_of_tls() {
    for protocol in ["TLSv1.3", "TLSv1.2"] {
        let files = Files::new();
        let Some(options) = files.options() else { return };
        let options = options.directive("tls-auth-clients", "yes");
        let server = options.directive("tls-protocols", protocol).start().await;
        for _ in 0..20 {
            let reason = refused(&server.tls_url(), files.trust()).await;
            assert!(reason.starts_with("the server requires a client certificate"), "{reason}");
        }
    }
}

#[tokio::test]
async fn a_client_certificate_that_the_server_refuses_is_named() {
    for protocol in ["TLSv1.3", "TLSv1.2"] {
        let (files, other) = (Files::new(), Files::new());
        let Some(options) = files.options() else { return };
        let options = options.directive("tls-auth-clients", "yes");
        let server = options.directive("tls-protocols", protocol).start().await;
        let tls = other.identify().ca_file(files.path("ca.pem"));
        let reason = refused(&server.tls_url(), tls).await;
        assert!(reason.starts_with("the server has refused the client certificate"), "{reason}");
    }
}

/// The other nodes decide, and the lock is held while the node is down.
#[tokio::test]
async fn a_node_that_tls_refuses_costs_one_vote() {
    let (files, other) = (Files::new(), Files::new());
    let Some(first) = files.server().await else { return };
    let others = [RedisServer::start().await, RedisServer::start().await];
    let urls = [first.tls_url(), others[0].url(), others[1].url()];
    let locks = LockManager::builder().urls(urls).tls(other.trust()).connect().await.unwrap();
    let guard = locks.lock("order:42").try_acquire().await.unwrap();
    guard.release().await.unwrap();
}
