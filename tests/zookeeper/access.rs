//! Logins, rights, and servers that a node refuses.

use std::time::Duration;

use redlock_core::{ConnectError, Credentials, LockManager, NodeError};
use redlock_tests::{ZookeeperClient, ZookeeperKind, ZookeeperServer, builder, eventually};

use crate::{KEY, LONG, SESSION, SOON, connect, no_lock_is_left, patient, refused, serves, start};

/// Returns the URL without the rights of everybody, and with the login in this file.
fn with_login(url: &str, file: &tempfile::NamedTempFile) -> String {
    url.replace("acl=open", &format!("auth_file={}", file.path().display()))
}

fn file(content: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    file
}

/// Creates the folder of the test as a path of the user `app` alone.
async fn make_private(server: &ZookeeperServer) {
    let mut client = ZookeeperClient::connect(server.port(), LONG).await.unwrap();
    client.login("app", "open sesame").await.unwrap();
    client.make_private(server.chroot()).await.unwrap();
}

/// A path that only the creator may use needs the login, for locks and for waiters.
#[tokio::test]
async fn a_login_is_needed_and_sufficient_in_a_private_folder() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    make_private(&server).await;
    let login = file("app:open sesame");
    let locks = connect(&with_login(&server.url(), &login)).await;
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();

    // The rights of the lock are those of its creator, too.
    let mut stranger = ZookeeperClient::connect(server.port(), LONG).await.unwrap();
    for path in [server.path(KEY), format!("{}/{}", server.path(KEY), server.queue(KEY).await[0])] {
        let error = stranger.get(&path).await.unwrap_err();
        assert!(error.is(redlock_tests::ZookeeperError::NO_AUTH), "{path}: {error:?}");
    }
    guard.release().await.unwrap();

    let wrong = file("app:wrong password");
    for url in [with_login(&server.url(), &wrong), server.url()] {
        let error = match patient(&url).connect().await {
            Err(error) => {
                let ConnectError::Unavailable { .. } = &error else { panic!("{error:?}") };
                error.to_string()
            }
            Ok(locks) => {
                let error = locks.lock(KEY).try_acquire().await.unwrap_err();
                error.diagnostics().to_string()
            }
        };
        let names_the_remedy = error.contains("auth_file") || error.contains("ACL");
        assert!(names_the_remedy && !error.contains("wrong password"), "{error}");
    }
    no_lock_is_left(&server).await;
}

/// The function gives the user, too.
#[tokio::test]
async fn a_function_returns_the_login() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    make_private(&server).await;
    let url = server.url().replace("acl=open&", "");
    let login = async |_| Ok::<_, std::io::Error>(Credentials::new("open sesame").username("app"));
    let locks = patient(&url).credentials(login).connect().await.unwrap();
    serves(&locks, KEY).await;
}

/// The rights to a lock and its folder are those of the login with which they were made.
#[tokio::test]
async fn a_new_login_counts_for_the_next_connection_and_locks_of_the_former_one_are_released() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let proxy = redlock_tests::Proxy::to_port(server.port()).await;
    let login = file("app:open sesame");
    let locks = connect(&with_login(&server.url_at(proxy.port()), &login)).await;
    let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    std::fs::write(login.path(), "app:close sesame").unwrap();
    proxy.reset();
    let other = eventually("the lock manager is connected again", SOON, async || {
        locks.lock("other").expire(LONG).try_acquire().await.ok()
    })
    .await;
    let mut client = ZookeeperClient::connect(server.port(), LONG).await.unwrap();
    client.login("app", "close sesame").await.unwrap();
    let path = format!("{}/{}", server.path("other"), server.queue("other").await[0]);
    client.get(&path).await.unwrap();
    other.release().await.unwrap();

    guard.extend(LONG).await.unwrap();
    guard.release().await.unwrap();
    no_lock_is_left(&server).await;
}

#[tokio::test]
async fn a_login_that_cannot_be_read_names_the_form() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let colon = file("a password alone");
    let reason = refused(patient(&with_login(&server.url(), &colon))).await;
    assert!(matches!(reason, NodeError::Credentials(_)), "{reason}");
    let text = reason.to_string();
    assert!(text.contains("user:password") && !text.contains("alone"), "{text}");
    let missing = server.url().replace("acl=open", "auth_file=/no/such/file");
    let reason = refused(patient(&missing)).await;
    assert!(reason.to_string().contains("/no/such/file"), "{reason}");
}

#[tokio::test]
async fn a_chroot_that_does_not_exist_is_named_with_the_remedy() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let url = server.url().replace(server.chroot(), "/no/such/folder");
    let reason = refused(patient(&url)).await.to_string();
    assert!(reason.contains("/no/such/folder") && reason.contains("create"), "{reason}");
    // The root exists always.
    let url = server.url().replace(server.chroot(), "");
    serves(&connect(&url).await, &format!("the-root-{}", &server.chroot()[1..])).await;
}

#[tokio::test]
async fn a_chroot_that_is_deleted_later_is_named() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let folder = format!("{}/deleted", server.chroot());
    let mut client = server.admin().await;
    client.create(&folder, b"", ZookeeperKind::Persistent).await.unwrap();
    let locks = connect(&server.url().replace(server.chroot(), &folder)).await;
    client.delete(&folder).await.unwrap();
    let error = locks.lock(KEY).try_acquire().await.unwrap_err().diagnostics().to_string();
    assert!(error.contains("the chroot of the URL does not exist"), "{error}");
    client.create(&folder, b"", ZookeeperKind::Persistent).await.unwrap();
    serves(&locks, KEY).await;
}

#[tokio::test]
async fn a_folder_that_is_created_later_is_found() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let folder = format!("{}/later", server.chroot());
    let url = server.url().replace(server.chroot(), &folder);
    let connecting = tokio::spawn(async move {
        loop {
            if let Ok(locks) = patient(&url).connect().await {
                return locks;
            }
        }
    });
    let mut client = server.admin().await;
    client.create(&folder, b"", ZookeeperKind::Persistent).await.unwrap();
    serves(&connecting.await.unwrap(), KEY).await;
}

/// The lease would outlast the session.
#[tokio::test]
async fn a_server_that_grants_a_shorter_session_is_refused_with_both_figures() {
    let options = ZookeeperServer::options().setting("maxSessionTimeout", "5000");
    let Some(server) = start(options.session_timeout(Duration::from_secs(30))).await else {
        return;
    };
    let reason = refused(patient(&server.url())).await.to_string();
    for word in ["30s", "5s", "session_timeout", "maxSessionTimeout"] {
        assert!(reason.contains(word), "{word}: {reason}");
    }
    serves(&connect(&server.url().replace("30000ms", "5s")).await, KEY).await;
}

/// A leader hears of a session each half tick.
#[tokio::test]
async fn a_session_of_few_ticks_is_refused_with_the_figures() {
    let options = ZookeeperServer::options().tick(Duration::from_millis(600));
    let Some(server) = start(options.session_timeout(SESSION)).await else { return };
    let reason = refused(patient(&server.url())).await.to_string();
    for word in ["4s", "8 ticks", "4.8s"] {
        assert!(reason.contains(word), "{word}: {reason}");
    }
    let url = server.url().replace("4000ms", "4800ms");
    serves(&connect(&url).await, KEY).await;
}

/// The shortest session shows the tick, unless an operator has set it.
#[tokio::test]
async fn a_server_with_a_shortest_session_needs_its_tick_in_the_url() {
    let options = ZookeeperServer::options().setting("minSessionTimeout", "8000");
    let Some(server) = start(options.session_timeout(Duration::from_secs(10))).await else {
        return;
    };
    let reason = refused(patient(&server.url())).await.to_string();
    assert!(reason.contains("tick=") && reason.contains("minSessionTimeout"), "{reason}");
    let locks: LockManager = connect(&format!("{}&tick=250ms", server.url())).await;
    serves(&locks, KEY).await;
}

/// Nobody is protected from other clients by accident.
#[tokio::test]
async fn a_url_without_a_login_says_that_everybody_has_all_rights() {
    let without = builder(["zookeeper://127.0.0.1:1/locks"]).connect().await.unwrap_err();
    assert!(matches!(without, ConnectError::InvalidUrl { .. }), "{without:?}");
    assert!(without.to_string().contains("acl=open"), "{without}");
}

/// The key and the certificate are in one file, as ZooKeeper reads them.
fn certificate() -> (tempfile::NamedTempFile, tempfile::NamedTempFile) {
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = signed.cert.pem();
    (file(&(signed.signing_key.serialize_pem() + &certificate)), file(&certificate))
}

#[tokio::test]
async fn a_node_uses_tls_and_verifies_the_certificate() {
    let (server_file, ca) = certificate();
    let Some(server) = start(ZookeeperServer::options().tls(server_file.path())).await else {
        return;
    };
    let trusting = |ca: &tempfile::NamedTempFile| {
        patient(&format!("{}&tls_ca={}", server.tls_url(), ca.path().display()))
    };
    let locks = trusting(&ca).connect().await.unwrap();
    serves(&locks, KEY).await;
    let (_, other) = certificate();
    let reason = refused(trusting(&other)).await;
    assert!(matches!(reason, NodeError::Tls(_)), "{reason:?}");
    // Neither side falls back to a connection that is not encrypted.
    let plain = server.tls_url().replace("zookeepers://", "zookeeper://");
    println!("{}", refused(patient(&plain)).await);
    let encrypted = server.url().replace("zookeeper://127.0.0.1", "zookeepers://localhost");
    println!("{}", refused(patient(&format!("{encrypted}&tls_insecure=true"))).await);
}
