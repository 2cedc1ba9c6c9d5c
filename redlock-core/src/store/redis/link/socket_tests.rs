//! The settings of the real sockets below the connections, and the verification of certificates.

use std::io::ErrorKind;

use tokio::net::{TcpListener, TcpSocket};

use super::open::Endpoint;
use super::socket::{Socket, connect_to_first};
use crate::error::NodeError;

/// Connects as the pool does: to the address of a URL, with the settings of the endpoint.
async fn connect(url: &str) -> Result<Socket, NodeError> {
    Endpoint::parse(url).socket().await
}

/// Without these options, a command waits for the acknowledgement of the previous one, and the
/// disappearance of a machine is noticed after hours (Redis documentation, "Redis client
/// handling").
fn assert_options(socket: &Socket) {
    let socket = socket.descriptor.as_ref().unwrap();
    assert!(socket.tcp_nodelay().unwrap());
    assert!(socket.keepalive().unwrap());
    #[cfg(any(target_os = "android", target_os = "linux"))]
    {
        use std::time::Duration;
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(5));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(2));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(5)));
    }
}

#[tokio::test]
async fn a_tcp_socket_has_nodelay_keepalive_and_a_user_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let (connected, accepted) = tokio::join!(connect(&url), listener.accept());
    accepted.unwrap();
    assert_options(&connected.unwrap());
}

#[tokio::test]
async fn a_host_without_a_reachable_address_is_an_error() {
    // It does not listen.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let refused = socket.local_addr().unwrap();
    for (addresses, kind) in
        [(vec![], ErrorKind::NotFound), (vec![refused; 2], ErrorKind::ConnectionRefused)]
    {
        let error = connect_to_first(addresses.into_iter()).await.unwrap_err();
        assert_eq!(error.kind(), kind);
    }
}

/// The bytes pass in both directions, and a link that is ended ends for the server at once.
#[cfg(unix)]
#[tokio::test]
async fn a_link_runs_over_a_unix_socket_like_over_any_other() {
    use bb8_redis::redis::{Value, cmd};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use crate::store::redis::link::Link;

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("redis.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let url = format!("unix://{}", path.display());
    let (connected, accepted) = tokio::join!(connect(&url), listener.accept());
    let (mut server, _) = accepted.unwrap();
    let socket = connected.unwrap();
    let descriptor = socket.descriptor.as_ref().unwrap();
    assert!(descriptor.peer_addr().unwrap().is_unix());
    let link = Link::start(socket, false, |_| {});
    let ping = cmd("PING");
    let replies = async {
        server.read_exact(&mut vec![0; ping.get_packed_command().len()]).await.unwrap();
        server.write_all(b"+PONG\r\n").await.unwrap();
    };
    let (reply, ()) = tokio::join!(link.send(&ping), replies);
    assert_eq!(reply.unwrap(), Value::SimpleString("PONG".to_owned()));
    link.end("the test ends it");
    assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
}

#[cfg(target_os = "linux")]
mod silent {
    use std::net::SocketAddr;
    use std::time::Duration;

    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::*;

    /// An address that answers no attempt to connect, like that of a machine that is gone: the kernel drops the attempts,
    /// because the queue of the listener is full.
    struct SilentAddress {
        listener: TcpListener,
        _queued: TcpStream,
    }

    impl SilentAddress {
        async fn new() -> Self {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let listener = socket.listen(0).unwrap();
            let queued = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            Self { listener, _queued: queued }
        }

        fn address(&self) -> SocketAddr {
            self.listener.local_addr().unwrap()
        }
    }

    #[tokio::test]
    async fn a_host_with_a_silent_address_is_reached_at_its_other_one() {
        // The kernel gives an attempt up after two minutes.
        const LIMIT: Duration = Duration::from_secs(60);
        let gone = SilentAddress::new().await;
        let silent = gone.address();
        let alone = timeout(Duration::from_millis(50), connect_to_first([silent].into_iter()));
        assert!(alone.await.is_err(), "the address is not silent");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let good = listener.local_addr().unwrap();
        for addresses in [[silent, good], [good, silent]] {
            let connect = timeout(LIMIT, connect_to_first(addresses.into_iter()));
            let stream = connect.await.expect("it waits for no other address").unwrap();
            assert_eq!(stream.peer_addr().unwrap(), good);
        }
    }
}

#[cfg(feature = "tls")]
mod tls {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::sync::Arc;

    use futures_util::future::select_ok;
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use tempfile::NamedTempFile;
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::server::TlsStream;

    use super::*;

    /// A server with a certificate for `localhost`.
    struct Server {
        listeners: Vec<TcpListener>,
        acceptor: TlsAcceptor,
        certificate: NamedTempFile,
    }

    impl Server {
        /// Listens at a free port of the given addresses: of all that a client may connect to, or another program could
        /// listen at the same port.
        async fn start(is_also_at_ipv6: bool) -> Self {
            let CertifiedKey { cert, signing_key } =
                generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            let certificate = NamedTempFile::new().unwrap();
            std::fs::write(&certificate, cert.pem()).unwrap();
            let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
            let config = ServerConfig::builder().with_no_client_auth();
            let config = config.with_single_cert(vec![cert.der().clone()], key).unwrap();
            let listeners = loop {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                if !is_also_at_ipv6 {
                    break vec![listener];
                }
                let port = listener.local_addr().unwrap().port();
                match TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await {
                    Ok(other) => break vec![listener, other],
                    Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
                    Err(_) => break vec![listener],
                }
            };
            Self { listeners, acceptor: TlsAcceptor::from(Arc::new(config)), certificate }
        }

        /// Returns a URL with the trusted certificate.
        fn url(&self, host: &str) -> String {
            let port = self.listeners[0].local_addr().unwrap().port();
            format!("rediss://{host}:{port}?tls_ca={}", self.certificate.path().display())
        }

        async fn accept(&self) -> std::io::Result<TlsStream<TcpStream>> {
            let accept = async |listener: &TcpListener| {
                let (stream, _) = listener.accept().await?;
                self.acceptor.accept(stream).await
            };
            let accepted = self.listeners.iter().map(|listener| Box::pin(accept(listener)));
            Ok(select_ok(accepted).await?.0)
        }
    }

    /// The server receives the host name (SNI), by which it selects its certificate.
    #[tokio::test]
    async fn a_socket_with_tls_has_the_options_of_tcp_and_sends_the_host_name() {
        let server = Server::start(true).await;
        let url = server.url("localhost");
        let (connected, accepted) = tokio::join!(connect(&url), server.accept());
        let (connected, accepted) = (connected.unwrap(), accepted.unwrap());
        assert_options(&connected);
        assert_eq!(accepted.get_ref().1.server_name(), Some("localhost"));
    }

    #[tokio::test]
    async fn a_trusted_certificate_for_another_host_is_refused() {
        let server = Server::start(false).await;
        let url = server.url("127.0.0.1");
        let (connected, accepted) = tokio::join!(connect(&url), server.accept());
        let refused = connected.err().unwrap().to_string();
        assert!(refused.contains("not valid for name"), "{refused}");
        assert!(accepted.is_err());
    }
}
