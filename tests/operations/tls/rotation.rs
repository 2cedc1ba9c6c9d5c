//! Certificates that are replaced while locks are held.

use redlock_core::{NodeError, Vote};
use redlock_tests::eventually;

use super::certificates::{Authority, Files};
use crate::{LONG, SOON, builder};

#[tokio::test]
async fn a_new_connection_uses_the_new_files_and_the_lock_is_still_held() {
    let files = Files::new();
    let Some(server) = files.strict_server().await else { return };
    let locks = builder([server.tls_url()]).tls(files.identify()).connect().await.unwrap();
    let guard = locks.lock("order:42").expire(LONG).try_acquire().await.unwrap();

    // The server trusts only the new authority, and so does the client from its next connection on.
    let old = std::fs::read(files.path("client.pem")).unwrap();
    files.replace(&Authority::new());
    let new = std::fs::read(files.path("client.pem")).unwrap();
    assert_ne!(old, new);
    let mut probe = server.probe().await;
    let reload = ["CONFIG", "SET", "tls-cert-file", &files.text("server.pem")];
    let _: () = probe.command(reload).await;
    probe.disconnect_others().await;
    eventually("the lease is extended over a new connection", SOON, async || {
        guard.extend(LONG).await.ok()
    })
    .await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

/// A wrong file does not end the connection. The node is down after the next connect, and back with the right file.
#[tokio::test]
async fn a_file_that_is_damaged_later_is_a_failed_vote_until_it_is_repaired() {
    let files = Files::new();
    let Some(server) = files.server().await else { return };
    let locks = builder([server.tls_url()]).tls(files.trust()).connect().await.unwrap();
    let guard = locks.lock("order:42").expire(LONG).try_acquire().await.unwrap();
    let right = std::fs::read(files.path("ca.pem")).unwrap();
    std::fs::remove_file(files.path("ca.pem")).unwrap();
    guard.extend(LONG).await.unwrap();
    server.probe().await.disconnect_others().await;
    let ca = files.text("ca.pem");
    eventually("the vote names the file", SOON, async || {
        let error = locks.lock("order:43").try_acquire().await.err()?;
        let vote = error.votes()?.iter().next()?.1.cloned();
        let Some(Vote::Failed(NodeError::Tls(reason))) = vote else { return None };
        assert!(reason.starts_with(&format!("cannot read the CA certificate {ca}: ")), "{reason}");
        Some(())
    })
    .await;
    std::fs::write(files.path("ca.pem"), right).unwrap();
    eventually("the node is back", SOON, async || guard.extend(LONG).await.ok()).await;
    guard.release().await.unwrap();
}
