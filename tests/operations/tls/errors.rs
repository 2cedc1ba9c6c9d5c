//! Connections that TLS refuses. Each is one failed vote that names its cause.

use redlock_core::{ConnectError, LockManagerBuilder, NodeError, TlsOptions, Vote};
use redlock_tests::{RedisServer, eventually};

use super::certificates::{Authority, Files, expired};
use crate::{SOON, builder};

/// The words of rustls.
const UNKNOWN: &str = "invalid peer certificate: UnknownIssuer";

/// Returns why TLS has failed. On a busy machine, an attempt may take too long to fail by TLS.
async fn refused(builder: impl Fn() -> LockManagerBuilder) -> String {
    eventually("the vote names TLS as its cause", SOON, async || {
        let error = builder().connect().await.unwrap_err();
        let ConnectError::Unavailable { votes, .. } = &error else { panic!("{error:?}") };
        let Some(Vote::Failed(NodeError::Tls(reason))) = votes.iter().next()?.1 else {
            return None;
        };
        assert!(!error.to_string().contains("is Redis running"), "{error}");
        Some(reason.to_string())
    })
    .await
}

#[tokio::test]
async fn a_certificate_that_the_client_refuses_is_named_with_the_reason() {
    let (files, other, old) = (Files::new(), Files::new(), Files::new());
    let authority = Authority::new();
    old.replace(&authority);
    old.sign(&authority, "server", &expired());
    let (Some(server), Some(expired)) = (files.server().await, old.server().await) else { return };
    let (url, by_address) = (server.tls_url(), server.tls_url().replace("localhost", "127.0.0.1"));
    for (url, tls, reasons) in [
        (&url, other.trust(), [UNKNOWN, ""]),
        // The authorities of the system.
        (&url, TlsOptions::new(), [UNKNOWN, ""]),
        (&expired.tls_url(), old.trust(), ["certificate expired", ""]),
        (&by_address, files.trust(), ["127.0.0.1", "localhost"]),
    ] {
        let reason = refused(|| builder([url]).tls(tls.clone())).await;
        assert!(reasons.iter().all(|words| reason.contains(words)), "{reason}");
    }
    // The other nodes decide, and the lock is held while the node is down.
    let others = [RedisServer::start().await, RedisServer::start().await];
    let urls = [url, others[0].url(), others[1].url()];
    let locks = builder(urls).tls(other.trust()).connect().await.unwrap();
    locks.lock("order:42").try_acquire().await.unwrap().release().await.unwrap();
}

/// With TLS 1.3 the server refuses the client only after the handshake.
#[tokio::test]
async fn a_missing_or_wrong_client_certificate_is_named_with_each_version_of_tls() {
    let (files, other) = (Files::new(), Files::new());
    let stranger = other.identify().ca_file(files.path("ca.pem"));
    for protocol in ["TLSv1.3", "TLSv1.2"] {
        let Some(options) = files.options() else { return };
        let options = options.directive("tls-auth-clients", "yes");
        let server = options.directive("tls-protocols", protocol).start().await;
        for (tls, words) in [
            (
                files.trust(),
                if protocol == "TLSv1.3" { "CertificateRequired" } else { "HandshakeFailure" },
            ),
            (stranger.clone(), "UnknownCA"),
        ] {
            for _ in 0..20 {
                let reason = refused(|| builder([server.tls_url()]).tls(tls.clone())).await;
                assert!(reason.contains(words), "{protocol}: {reason}");
            }
        }
    }
}
