use std::sync::Arc;
use std::time::Duration;

use redlock_logs::Logs;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::yield_now;

use super::jute::JuteWriter;
use super::locks::ZookeeperLocks;
use super::path;
use super::played_server::{CLOSE_SESSION, ConnectRequest, PlayedServer, SYNC};
use super::requests::{RequestError, ZookeeperRequest};
use super::session::ZookeeperSession;
use super::url::ZookeeperUrl;
use super::znodes::Znodes;
use crate::access::Credentials;
use crate::clock::fake::FakeClock;
use crate::error::{NodeError, Vote};
use crate::key::LockKey;
use crate::lock::{Dialect, LockSpec, Mode, Token};
use crate::node::{Action, Ask, NodeSettings, NodeStatus, Op, Reply, StatusReceiver, StatusSender};
use crate::store::kit::description::StoreUrl;
use crate::store::kit::provider::Provider;

/// The session timeout in milliseconds.
const T: i32 = 40_000;
const PASSWORD: &[u8] = b"s3cret of session";
pub(super) const OPEN: &str = "?acl=open&tick=1s";

/// A server without an answer to anything.
pub(super) struct Ensemble {
    listener: TcpListener,
    pub(super) address: String,
}

impl Ensemble {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Self { listener, address }
    }

    /// Waits for the next connection.
    async fn connection(&self) -> PlayedServer<TcpStream> {
        PlayedServer { socket: self.listener.accept().await.unwrap().0 }
    }

    /// Waits for the handshake of the next connection. A client that continues a session first asks for the limit of the server
    /// in a session of its own, which gets at most `limit`.
    async fn handshake(&self, limit: i32) -> (PlayedServer<TcpStream>, ConnectRequest) {
        let mut server = self.connection().await;
        loop {
            tokio::select! {
                request = server.handshake() => return (server, request),
                mut other = self.connection() => {
                    assert_eq!(other.handshake().await, new_session(T));
                    other.accept(T.min(limit), 99, PASSWORD).await;
                    let close = other.request().await;
                    assert_eq!(close.op, CLOSE_SESSION);
                    other.reply(&close, 0, 0, b"").await;
                }
            }
        }
    }

    /// Waits for the next connection, and accepts its session.
    pub(super) async fn accept(&self, session: i64) -> (PlayedServer<TcpStream>, ConnectRequest) {
        let (mut server, request) = self.handshake(T).await;
        server.accept(T, session, PASSWORD).await;
        if request.session == 0 {
            allow_locks(&mut server).await;
        }
        (server, request)
    }

    /// Starts a session of a URL with this rest.
    pub(super) fn session(&self, rest: &str) -> (Arc<ZookeeperSession>, StatusReceiver) {
        start(parse(&format!("zookeeper://{}{rest}", self.address)), settings())
    }
}

/// Answers the question of a client whether its new session can have locks.
async fn allow_locks<S: AsyncRead + AsyncWrite + Unpin>(server: &mut PlayedServer<S>) {
    let create = server.request().await;
    assert!(create.op == 1 && create.path().ends_with("/redlock-nowhere/redlock-nowhere"));
    server.reply(&create, 0, -101, b"").await;
}

pub(super) fn parse(url: &str) -> ZookeeperUrl {
    ZookeeperUrl::parse(url).unwrap()
}

pub(super) fn settings() -> NodeSettings {
    NodeSettings::for_tests(Duration::from_secs(1))
}

fn start(url: ZookeeperUrl, settings: NodeSettings) -> (Arc<ZookeeperSession>, StatusReceiver) {
    let status = StatusSender::new(NodeStatus::Connecting);
    let (name, receiver) = (url.name().into(), status.subscribe());
    (ZookeeperSession::start(name, url, settings, status, &Handle::current()), receiver)
}

/// Waits until the session is down, and returns the reason.
async fn down(status: &StatusReceiver) -> NodeError {
    match status.wait_for(|status| matches!(status, NodeStatus::Down(_))).await {
        NodeStatus::Down(reason) => reason,
        status => unreachable!("{status:?}"),
    }
}

fn delete() -> ZookeeperRequest<()> {
    super::requests::delete("/a")
}

fn new_session(timeout: i32) -> ConnectRequest {
    ConnectRequest { last_zxid: 0, timeout, session: 0, password: vec![0; 16] }
}

#[tokio::test]
async fn a_short_session_measures_the_tick_before_each_new_session() {
    let ensemble = Ensemble::start().await;
    let (session, _status) = ensemble.session("?acl=open&session_timeout=40s");
    let mut server = ensemble.connection().await;
    assert_eq!(server.handshake().await, new_session(1));
    server.accept(10_000, 6, PASSWORD).await;
    let close = server.request().await;
    assert_eq!(close.op, CLOSE_SESSION);
    server.reply(&close, 0, 0, b"").await;
    assert_eq!(server.frame().await, None);
    for _ in 0..2 {
        let (mut server, request) = ensemble.accept(7).await;
        assert_eq!(request.timeout, T);
        assert_eq!(session.connected().await, 1);
        assert_eq!(server.request().await.op, SYNC);
    }
    // The session has expired.
    let (mut server, request) = ensemble.handshake(T).await;
    assert_eq!(request.session, 7);
    server.accept(0, 0, &[0; 16]).await;
    assert_eq!(ensemble.connection().await.handshake().await, new_session(1));
}

#[tokio::test]
async fn a_session_timeout_of_too_few_ticks_is_an_error_with_both_figures() {
    let ensemble = Ensemble::start().await;
    let (_session, status) = ensemble.session("?acl=open&session_timeout=40s");
    // The operator may restart the server with another tick.
    for _ in 0..2 {
        let mut server = ensemble.connection().await;
        assert_eq!(server.handshake().await.timeout, 1);
        server.accept(10_002, 6, PASSWORD).await;
        let close = server.request().await;
        server.reply(&close, 0, 0, b"").await;
        let reason = down(&status).await.to_string();
        let words =
            "the session_timeout of 40s must be at least 8 ticks of the server, which are 40.008s";
        assert!(reason.contains(words), "{reason}");
    }
}

#[tokio::test]
async fn a_server_that_allows_less_than_the_session_timeout_is_an_error_with_both_figures() {
    let ensemble = Ensemble::start().await;
    let (_session, status) = ensemble.session(OPEN);
    let mut server = ensemble.connection().await;
    server.handshake().await;
    server.accept(T - 1, 7, PASSWORD).await;
    let reason = down(&status).await.to_string();
    for word in ["at most 39.999s", "of 40s", "session_timeout=39999ms", "maxSessionTimeout"] {
        assert!(reason.contains(word), "{reason}");
    }
    // The servers store the timeout with which a session was made, so no other server may continue this one.
    let (_server, request) = ensemble.accept(8).await;
    assert_eq!(request.session, 0);
}

/// The session would be as short as the limit, and its locks with it.
#[tokio::test]
async fn a_session_is_not_continued_at_a_server_that_allows_less() {
    let logs = Logs::collect();
    let ensemble = Ensemble::start().await;
    let (session, status) = ensemble.session(OPEN);
    let (first, _) = ensemble.accept(7).await;
    session.connected().await;
    drop(first);
    // The next connection is silent until another one has asked for the limit.
    let mut server = ensemble.connection().await;
    let mut other = ensemble.connection().await;
    assert_eq!(other.handshake().await, new_session(T));
    other.accept(6_000, 99, PASSWORD).await;
    let close = other.request().await;
    assert_eq!(close.op, CLOSE_SESSION);
    other.reply(&close, 0, 0, b"").await;
    assert_eq!(server.frame().await, None, "the session was not sent");
    let is_refused = |status: &NodeStatus| matches!(status, NodeStatus::Down(NodeError::Server(_)));
    let reason = format!("{:?}", status.wait_for(is_refused).await);
    assert!(reason.contains("at most 6s, and not the session_timeout of 40s"), "{reason}");
    let lines = logs.lines();
    let names =
        |line: &&String| line.contains("maxSessionTimeout=6s") && line.contains(&ensemble.address);
    assert_eq!(lines.iter().filter(names).count(), 1, "{lines:?}");
    let (_server, request) = ensemble.accept(7).await;
    assert_eq!(request.session, 7);
    assert_eq!(session.connected().await, 1);
}

/// A balancer may pass two connections on to servers with different limits.
#[tokio::test]
async fn evidence_ends_with_the_handshake_that_has_shortened_the_session() {
    let ensemble = Ensemble::start().await;
    let (session, status) = ensemble.session(OPEN);
    let (first, _) = ensemble.accept(7).await;
    session.connected().await;
    let (sent, lease) = (session.now(), Duration::from_secs(15));
    assert_eq!(session.vouch(sent, lease), Ok(()));
    drop(first);
    let (mut server, request) = ensemble.handshake(T).await;
    assert_eq!(request.session, 7);
    server.accept(6_000, 7, PASSWORD).await;
    let is_refused = |status: &NodeStatus| matches!(status, NodeStatus::Down(NodeError::Server(_)));
    status.wait_for(is_refused).await;
    let reason = session.vouch(sent, lease).unwrap_err().to_string();
    assert!(reason.contains("was shortened"), "{reason}");
    let _server = ensemble.accept(7).await;
    session.connected().await;
    assert!(session.vouch(sent, lease).is_err());
    assert_eq!(session.vouch(session.now(), lease), Ok(()));
}

#[tokio::test]
async fn a_session_that_cannot_have_locks_is_refused_with_the_remedy() {
    let ensemble = Ensemble::start().await;
    let (_session, status) = ensemble.session(OPEN);
    for _ in 0..2 {
        let (mut server, request) = ensemble.handshake(T).await;
        assert_eq!(request.session, 0, "the former session is given up");
        server.accept(T, 7, PASSWORD).await;
        let create = server.request().await;
        server.reply(&create, 0, -120, b"").await;
        let reason = down(&status).await.to_string();
        assert!(reason.contains("localSessionsUpgradingEnabled=true"), "{reason}");
    }
}

#[tokio::test]
async fn a_session_goes_on_over_the_next_connection() {
    let ensemble = Ensemble::start().await;
    let (session, _status) = ensemble.session(OPEN);
    assert!(matches!(session.send(delete()).err(), Some(NodeError::NotConnected(_))));
    assert!(matches!(session.number(), Err(NodeError::NotConnected(_))));
    let (mut server, request) = ensemble.accept(7).await;
    assert_eq!(request, new_session(T));
    assert_eq!(session.connected().await, 1);
    let (answered, pending) = (session.send(delete()).unwrap(), session.send(delete()).unwrap());
    let first = server.operation().await;
    server.operation().await;
    server.reply(&first, 5, 0, b"").await;
    assert_eq!(answered.await, Ok(()));
    drop(server);
    // Closed, or reset because of a beat that the server has not read.
    let broken = pending.await;
    assert!(matches!(broken, Err(RequestError::ConnectionBroke(_))), "{broken:?}");
    let (mut server, request) = ensemble.accept(7).await;
    let expected =
        ConnectRequest { last_zxid: 5, timeout: T, session: 7, password: PASSWORD.to_vec() };
    assert_eq!(request, expected);
    assert_eq!(session.connected().await, 1);
    let reply = session.send(delete()).unwrap();
    let request = server.operation().await;
    server.reply(&request, 6, 0, b"").await;
    assert_eq!(reply.await, Ok(()));
}

#[tokio::test]
async fn after_an_expired_session_there_is_a_new_one_with_another_number() {
    let logs = Logs::collect();
    let ensemble = Ensemble::start().await;
    let clock = FakeClock::default();
    let settings = NodeSettings { clock: Arc::new(clock.clone()), ..settings() };
    let (session, _status) =
        start(parse(&format!("zookeeper://{}{OPEN}", ensemble.address)), settings);
    let (first, _) = ensemble.accept(7).await;
    session.connected().await;
    drop(first);
    let sent = session.now();
    let (mut server, request) = ensemble.handshake(T).await;
    assert_eq!(request.session, 7);
    clock.advance(Duration::from_secs(41));
    server.accept(0, 0, &[0; 16]).await;
    let (_server, request) = ensemble.accept(8).await;
    assert_eq!(request.session, 0);
    while session.number() != Ok(2) {
        session.connected().await;
        yield_now().await;
    }
    let lease = Duration::from_secs(5);
    let reason = session.vouch(sent, lease).unwrap_err().to_string();
    assert!(reason.contains("the session has expired"), "{reason}");
    assert_eq!(session.vouch(session.now(), lease), Ok(()));
    let lines = logs.lines();
    let is_logged = |line: &&String| line.contains("WARN") && line.contains("has expired");
    assert_eq!(lines.iter().filter(is_logged).count(), 1, "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("s3cret")), "{lines:?}");
}

/// Another ensemble does not know the session. A session that lives has its locks, which that ensemble grants to others.
#[tokio::test]
async fn a_session_that_is_gone_before_its_timeout_is_a_warning_about_the_url() {
    let logs = Logs::collect();
    let ensemble = Ensemble::start().await;
    let (session, _status) = ensemble.session(OPEN);
    let (first, _) = ensemble.accept(7).await;
    session.connected().await;
    drop(first);
    let (mut server, request) = ensemble.handshake(T).await;
    assert_eq!(request.session, 7);
    server.accept(0, 0, &[0; 16]).await;
    let _server = ensemble.accept(8).await;
    while session.number() != Ok(2) {
        session.connected().await;
        yield_now().await;
    }
    assert_eq!(logs.count("WARN", "the URL leads to another ensemble"), 1, "{:?}", logs.lines());
    assert_eq!(logs.count("WARN", "has expired"), 0, "{:?}", logs.lines());
}

/// The server may have paused before its answer.
#[tokio::test]
async fn after_a_slow_handshake_there_is_another_one_as_evidence() {
    let ensemble = Ensemble::start().await;
    let clock = FakeClock::default();
    let settings = NodeSettings { clock: Arc::new(clock.clone()), ..settings() };
    let url = parse(&format!("zookeeper://{}{OPEN}", ensemble.address));
    let (session, _status) = start(url, settings);
    let (mut server, first) = ensemble.handshake(T).await;
    clock.advance(Duration::from_secs(3));
    server.accept(T, 7, PASSWORD).await;
    assert_eq!(server.frame().await, None, "nothing is sent over this connection");
    let (mut server, second) = ensemble.handshake(T).await;
    clock.advance(Duration::from_secs(3));
    server.accept(T, 7, PASSWORD).await;
    assert_eq!([first.session, second.session], [0, 7]);
    assert_eq!(session.connected().await, 1, "the server may always be slow");
    let lease = Duration::from_millis(39_600 - 3_000);
    assert_eq!(session.vouch(session.now(), lease), Ok(()));
    assert!(session.vouch(session.now(), lease + Duration::from_millis(1)).is_err());
}

/// A server that was set up anew begins to count its transactions at zero, and refuses clients that have seen more.
#[tokio::test]
async fn a_server_whose_data_were_lost_is_used_when_all_leases_have_ended() {
    let ensemble = Ensemble::start().await;
    let clock = FakeClock::default();
    let settings = NodeSettings { clock: Arc::new(clock.clone()), ..settings() };
    let url = parse(&format!("zookeeper://{}{OPEN}", ensemble.address));
    let (session, _status) = start(url, settings);
    let (mut server, _) = ensemble.accept(7).await;
    session.connected().await;
    let reply = session.send(delete()).unwrap();
    let request = server.operation().await;
    server.reply(&request, 5, 0, b"").await;
    reply.await.unwrap();
    drop(server);
    let (server, request) = ensemble.handshake(T).await;
    assert_eq!(request.last_zxid, 5);
    clock.advance(Duration::from_secs(81));
    drop(server);
    assert_eq!(ensemble.handshake(T).await.1.last_zxid, 0);
}

#[tokio::test]
async fn the_logins_of_a_session_come_first_and_are_read_anew_for_each_connection() {
    let logs = Logs::collect();
    let ensemble = Ensemble::start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "app:s3cret:1\n").unwrap();
    let rest = format!("/locks?tick=1s&auth_file={}", file.path().display());
    let (session, status) = ensemble.session(&rest);
    // The znodes of the session belong to its former login.
    for (id, logins) in [(7, "1"), (7, "12"), (7, "12"), (0, ""), (8, "2")] {
        let (mut server, request) = ensemble.handshake(T).await;
        server.accept(if id == 0 { 0 } else { T }, id, PASSWORD).await;
        for login in logins.chars() {
            let request = server.request().await;
            assert_eq!((request.xid, request.op), (-4, 100));
            let expected = format!("\0\0\0\0\0\0\0\x06digest\0\0\0\x0capp:s3cret:{login}");
            assert_eq!(request.body, expected.as_bytes());
            server.reply(&request, 0, 0, b"").await;
        }
        if id == 0 {
            // The session has expired.
            continue;
        }
        if request.session == 0 {
            allow_locks(&mut server).await;
        }
        let exists = server.request().await;
        assert_eq!((exists.op, exists.path()), (3, "/locks"));
        server.reply(&exists, 0, 0, b"").await;
        session.connected().await;
        assert_eq!(server.request().await.path(), "/locks");
        std::fs::write(file.path(), "app:s3cret:2").unwrap();
    }
    let (mut server, _) = ensemble.accept(7).await;
    let request = server.request().await;
    server.reply(&request, 0, -115, b"").await;
    let refused =
        NodeError::Credentials("the server refuses the login: error -115 of the server".into());
    status.wait_for(|status| *status == NodeStatus::Down(refused.clone())).await;
    let lines = logs.lines();
    assert!(!lines.iter().any(|line| line.contains("s3cret")), "{lines:?}");
}

#[tokio::test]
async fn without_a_valid_login_nothing_is_sent() {
    let ensemble = Ensemble::start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "s3cret").unwrap();
    let name = file.path().display();
    let (_session, status) = ensemble.session(&format!("?tick=1s&auth_file={name}"));
    let expected = NodeError::Credentials(format!("{name} must contain user:password").into());
    assert_eq!(down(&status).await, expected);
    let (_session, status) = ensemble.session("?tick=1s");
    let reason = down(&status).await.to_string();
    assert!(reason.contains("auth_file=") && reason.contains("acl=open"), "{reason}");
    for username in [None, Some("a:b"), Some("")] {
        let mut url = parse(&format!("zookeeper://{}?tick=1s", ensemble.address));
        let function = move |_| -> futures_util::future::BoxFuture<'static, _> {
            let credentials = Credentials::new("to:s3cret");
            let credentials = match username {
                Some(name) => credentials.username(name),
                None => credentials,
            };
            Box::pin(async { Ok(credentials) })
        };
        url.provider = Some(Provider::Function(Arc::new(function), "name".into()));
        let (_session, status) = start(url, settings());
        let expected = "the provider must return a username, without a colon";
        assert_eq!(down(&status).await, NodeError::Credentials(expected.into()));
    }
}

#[tokio::test]
async fn a_chroot_that_is_made_late_is_used_then() {
    let ensemble = Ensemble::start().await;
    let (session, status) = ensemble.session("/my/locks?acl=open&tick=1s");
    let (mut server, _) = ensemble.accept(7).await;
    let exists = server.request().await;
    server.reply(&exists, 0, -101, b"").await;
    let reason = down(&status).await.to_string();
    assert!(reason.contains("`create /my/locks`"), "{reason}");
    let (mut server, request) = ensemble.accept(7).await;
    assert_eq!(request.session, 7, "the session is used again");
    let exists = server.request().await;
    server.reply(&exists, 0, 0, b"").await;
    assert_eq!(session.connected().await, 1);
}

#[tokio::test]
async fn a_host_that_is_down_is_skipped_and_the_errors_name_their_hosts() {
    let gone = Ensemble::start().await.address;
    let ensemble = Ensemble::start().await;
    // In random order.
    for _ in 0..4 {
        let url = parse(&format!("zookeeper://{gone},{}{OPEN}", ensemble.address));
        let (session, _status) = start(url, settings());
        let _server = ensemble.accept(7).await;
        session.connected().await;
    }
    for _ in 0..4 {
        let ensemble = Ensemble::start().await;
        let url = parse(&format!("zookeeper://{gone},{}{OPEN}", ensemble.address));
        let (_session, status) = start(url, settings());
        let mut server = ensemble.connection().await;
        server.handshake().await;
        server.accept(1_000, 7, PASSWORD).await;
        let reason = down(&status).await.to_string();
        assert!(
            reason.starts_with(&format!("{}: the server allows", ensemble.address)),
            "{reason}"
        );
    }
}

#[tokio::test]
async fn a_hostile_answer_to_the_handshake_is_an_error() {
    for (answer, expected) in [
        (&b"\0\0\0\x01x"[..], "unexpected reply"),
        (b"\0\0\0\x14\0\0\0\0\xff\xff\xff\xff\0\0\0\0\0\0\0\x01\0\0\0\0", "unexpected reply"),
        (b"HTTP/1.1 400 Bad Request", "no answer to the handshake: frame size too big"),
        // An alert of TLS.
        (b"\x15\x03\x03\0\x02\x02\x28", "a port with TLS needs zookeepers://"),
        (b"", "has closed the connection"),
        // As a server that has too many connections of one address.
        (b"", "a server closes connections beyond its maxClientCnxns"),
        (b"\0\0\0\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "refuses a new session"),
    ] {
        // The session of the case before may already connect again.
        let ensemble = Ensemble::start().await;
        let (_session, status) = ensemble.session(OPEN);
        let mut server = ensemble.connection().await;
        server.handshake().await;
        tokio::io::AsyncWriteExt::write_all(&mut server.socket, answer).await.unwrap();
        drop(server);
        let reason = down(&status).await.to_string();
        assert!(reason.contains(expected), "{reason}");
    }
}

#[tokio::test]
async fn a_closed_session_ends_on_the_server_and_its_task_ends() {
    let logs = Logs::collect();
    let ensemble = Ensemble::start().await;
    let (session, _status) = ensemble.session(OPEN);
    let (mut server, _) = ensemble.accept(7).await;
    session.connected().await;
    session.kept.stopped.cancel();
    let close = server.operation().await;
    assert_eq!(close.op, CLOSE_SESSION);
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 1);
    server.reply(&close, 0, 0, b"").await;
    drop(server);
    while Handle::current().metrics().num_alive_tasks() > 0 {
        yield_now().await;
    }
    assert_eq!(logs.count("WARN", &ensemble.address), 0, "the end of a session is no outage");
}

#[tokio::test]
async fn without_a_connection_only_the_task_of_a_closed_session_ends() {
    let gone = Ensemble::start().await.address;
    let (session, status) = start(parse(&format!("zookeeper://{gone}{OPEN}")), settings());
    assert!(matches!(down(&status).await, NodeError::NotConnected(_)));
    assert!(!session.reconnect().await);
    session.kept.stopped.cancel();
    while Handle::current().metrics().num_alive_tasks() > 0 {
        yield_now().await;
    }
}

#[tokio::test]
async fn a_request_to_reconnect_waits_for_the_next_attempt() {
    let ensemble = Ensemble::start().await;
    let (session, status) = ensemble.session(OPEN);
    drop(ensemble.connection().await);
    down(&status).await;
    let serve = async {
        let server = ensemble.accept(7).await;
        std::future::pending::<()>().await;
        drop(server);
    };
    tokio::select! {
        is_connected = session.reconnect() => assert!(is_connected),
        () = serve => unreachable!(),
    }
    assert!(session.reconnect().await, "at once");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_session_is_encrypted() {
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::ServerConfig;
    use rustls::crypto::ring;
    use rustls::pki_types::PrivateKeyDer;
    use tokio_rustls::TlsAcceptor;

    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![cert.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), cert.pem()).unwrap();
    let ensemble = Ensemble::start().await;
    let (_, port) = ensemble.address.split_once(':').unwrap();
    let url = |ca: &str| parse(&format!("zookeepers://localhost:{port}{OPEN}{ca}"));
    let (session, _status) = start(url(&format!("&tls_ca={}", ca.path().display())), settings());
    let socket = acceptor.accept(ensemble.connection().await.socket).await.unwrap();
    let mut server = PlayedServer { socket };
    assert_eq!(server.handshake().await.timeout, T);
    server.accept(T, 7, PASSWORD).await;
    allow_locks(&mut server).await;
    session.connected().await;
    let reply = session.send(delete()).unwrap();
    let request = server.operation().await;
    server.reply(&request, 5, 0, b"").await;
    assert_eq!(reply.await, Ok(()));
    // The certificate has no trusted authority.
    let other = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(ca.path(), other.cert.pem()).unwrap();
    let (_session, status) = start(url(&format!("&tls_ca={}", ca.path().display())), settings());
    assert!(acceptor.accept(ensemble.connection().await.socket).await.is_err());
    assert!(matches!(down(&status).await, NodeError::Tls(_)));
}

/// With this number, the manager knows whether other processes have a turn.
#[tokio::test]
async fn a_release_reports_the_processes_that_waited_when_the_lock_was_granted() {
    let ensemble = Ensemble::start().await;
    let (session, _status) = ensemble.session(OPEN);
    let locks = ZookeeperLocks::new(Znodes::new(session, "", &Handle::current()));
    let (mut server, _) = ensemble.accept(7).await;
    locks.znodes.session.connected().await;
    let spec = LockSpec::new(LockKey::new("order").unwrap(), Mode::Exclusive, Dialect::Plain);
    let token = Token::random(Dialect::Plain);
    let acquire = Action::Acquire {
        lease: Duration::from_secs(5),
        fenced: false,
        ask: Ask { skip_lookup: true, ..Ask::FIRST },
    };
    let execute = |action| tokio::spawn(Arc::clone(&locks).execute(Op::new(&spec, token, action)));
    let acquired = execute(acquire);
    let list = server.operation().await;
    server.children(&list, &[]).await;
    let (create, list) = (server.operation().await, server.operation().await);
    let own = format!("{}0000000003", path::prefix(token));
    let mut created = JuteWriter::default();
    created.text(&format!("/order/{own}"));
    server.reply(&create, 0, 0, &created.0).await;
    let others = ["_c_a-lock-0000000004", "_c_b-lock-0000000005"].map(str::to_owned);
    server.children(&list, &[&[own][..], &others].concat()).await;
    assert_eq!(acquired.await.unwrap().vote, Vote::Agreed);
    let released = execute(Action::Release { min_hold: None });
    let delete = server.operation().await;
    server.reply(&delete, 0, 0, b"").await;
    assert_eq!(released.await.unwrap(), Reply::new(Vote::Agreed).with_subscribers(2));
}

/// A server that is behind may not have executed the creation yet, so that its list would lack the znode.
#[tokio::test]
async fn a_znode_whose_creation_has_no_reply_is_removed_after_a_sync() {
    let ensemble = Ensemble::start().await;
    let (session, _status) = ensemble.session(OPEN);
    let znodes = Znodes::new(session, "", &Handle::current());
    let (mut server, _) = ensemble.accept(7).await;
    znodes.session.connected().await;
    let folder = znodes.folder("order");
    let making = {
        let znodes = Arc::clone(&znodes);
        async move { znodes.enter(&folder, "_c_own-lock-", b"").await.is_err() }
    };
    let making = tokio::spawn(making);
    assert_eq!(server.operation().await.op, 1, "a creation");
    drop(server);
    assert!(making.await.unwrap());

    let (mut server, _) = ensemble.accept(7).await;
    loop {
        let request = server.request().await;
        assert_eq!(request.op, SYNC);
        server.reply(&request, 0, 0, b"").await;
        // The beats have the path of the chroot.
        if request.path() == "/order" {
            break;
        }
    }
    let list = server.operation().await;
    assert_eq!((list.op, list.path()), (12, "/order"));
    let names = ["_c_other-lock-0000000002", "_c_own-lock-0000000003"];
    server.children(&list, names.map(str::to_owned).as_slice()).await;
    let delete = server.operation().await;
    assert_eq!((delete.op, delete.path()), (2, "/order/_c_own-lock-0000000003"));
}

/// Makes a child that the server gives this number, and returns its vote if the queue has no order.
async fn enter(
    znodes: &Arc<Znodes>,
    server: &mut PlayedServer<TcpStream>,
    others: &[&str],
    number: &str,
) -> Option<Vote> {
    let entering = {
        let (znodes, folder) = (Arc::clone(znodes), znodes.folder("order"));
        tokio::spawn(async move { znodes.enter(&folder, "_c_own-lock-", b"").await.err() })
    };
    let (create, list) = (server.operation().await, server.operation().await);
    let mut created = JuteWriter::default();
    created.text(&format!("/order/_c_own-lock-{number}"));
    server.reply(&create, 0, 0, &created.0).await;
    let mut names: Vec<_> = others.iter().map(|other| format!("_c_a-lock-{other}")).collect();
    names.push(format!("_c_own-lock-{number}"));
    server.children(&list, &names).await;
    let vote = entering.await.unwrap();
    if vote.is_some() {
        let delete = server.operation().await;
        assert_eq!(delete.path(), format!("/order/_c_own-lock-{number}"));
        server.reply(&delete, 0, 0, b"").await;
    }
    vote
}

#[tokio::test]
async fn a_folder_that_runs_out_of_numbers_is_an_error_and_a_warning_each_day_before() {
    let logs = Logs::collect();
    let ensemble = Ensemble::start().await;
    let clock = FakeClock::default();
    let settings = NodeSettings { clock: Arc::new(clock.clone()), ..settings() };
    let url = parse(&format!("zookeeper://{}{OPEN}", ensemble.address));
    let (session, _status) = start(url, settings);
    let znodes = Znodes::new(session, "", &Handle::current());
    let (mut server, _) = ensemble.accept(7).await;
    znodes.session.connected().await;
    let warnings = || {
        let lines = logs.lines();
        let is_warning = |line: &&String| {
            line.contains("WARN") && line.contains(&ensemble.address) && line.contains("/order")
        };
        lines.iter().filter(is_warning).count()
    };
    assert_eq!(enter(&znodes, &mut server, &[], "1932735275").await, None);
    assert_eq!(warnings(), 0);
    for _ in 0..3 {
        assert_eq!(enter(&znodes, &mut server, &[], "1932735276").await, None);
    }
    assert_eq!(warnings(), 1);
    clock.advance(Duration::from_secs(24 * 60 * 60));
    assert_eq!(enter(&znodes, &mut server, &[], "2147483646").await, None);
    assert_eq!(warnings(), 2);
    for (others, number, word) in [
        (&[][..], "2147483647", "the folder /order has numbered 2147483647 children"),
        (&["2147483647"], "2147483647", "has numbered"),
        (&["2147483647"], "-2147483648", "has numbered"),
        (&["0000000007"], "0000000007", "have the number 7"),
    ] {
        let vote = enter(&znodes, &mut server, others, number).await;
        let Some(Vote::Failed(NodeError::Server(reason))) = vote else { panic!("{vote:?}") };
        assert!(reason.contains(word), "{reason}");
    }
}
