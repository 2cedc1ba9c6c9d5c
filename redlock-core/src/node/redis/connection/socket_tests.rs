//! The settings of the real sockets below the connections, and the verification of certificates.

use super::endpoint::Endpoint;
use super::socket::Socket;

/// Connects as the pool does: to the address of a URL, with the settings of the endpoint.
async fn connect(url: &str) -> std::io::Result<Socket> {
    Endpoint::parse(url).socket().await
}

/// Without these options, a command waits for the acknowledgement of the previous one, and the
/// disappearance of a machine is noticed after hours (Redis documentation, "Redis client
/// handling").
fn assert_options(stream: &tokio::net::TcpStream) {
    use bb8_redis::redis::io::tcp::socket2::SockRef;

    let socket = SockRef::from(stream);
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
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let (connected, accepted) = tokio::join!(connect(&url), listener.accept());
    accepted.unwrap();
    let Socket::Tcp(stream) = connected.unwrap() else { panic!("not a TCP socket") };
    assert_options(&stream);
}

/// The bytes pass in both directions, and a connection that is shut down ends although the socket is still
/// in use.
#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_is_metered_like_any_other() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::metered_socket::MeteredSocket;

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("redis.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let url = format!("unix://{}", path.display());
    let (connected, accepted) = tokio::join!(connect(&url), listener.accept());
    let (mut server, _) = accepted.unwrap();
    let socket = connected.unwrap();
    assert!(matches!(socket, Socket::Unix(_)));
    let (mut socket, traffic) = MeteredSocket::new(socket);
    socket.write_all(b"PING").await.unwrap();
    assert!(traffic.is_owed());
    let mut command = [0; 4];
    server.read_exact(&mut command).await.unwrap();
    assert_eq!(command, *b"PING");
    server.write_all(b"+PONG\r\n").await.unwrap();
    socket.read_exact(&mut [0; 7]).await.unwrap();
    assert!(!traffic.is_owed());
    traffic.shut_down();
    assert_eq!(server.read(&mut command).await.unwrap(), 0);
}

#[cfg(feature = "tls")]
mod tls {
    use std::path::Path;
    use std::process::Command;
    use std::sync::Arc;

    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::ServerConfig;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::server::TlsStream;

    use super::super::tls::ensure_crypto_provider;
    use super::*;

    /// The directory with the certificate and the key of the server. Set in the process that trusts it.
    const IDENTITY: &str = "REDLOCK_TEST_TLS_IDENTITY";

    /// Runs a test in a process whose only trusted certificate is that of the server: the variable that
    /// replaces the system's root certificates must be set before the process starts. In that process,
    /// returns a server, which has a certificate for `localhost`. In the test's own process, waits for the
    /// other one and returns `None`.
    async fn server(test: &str) -> Option<Server> {
        if let Some(dir) = std::env::var_os(IDENTITY) {
            return Some(Server::start(dir.as_ref()).await);
        }
        let dir = tempfile::tempdir().unwrap();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = dir.path().join("certificate.pem");
        std::fs::write(&certificate, cert.pem()).unwrap();
        std::fs::write(dir.path().join("key.pem"), signing_key.serialize_pem()).unwrap();
        let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", &name, "--nocapture"]);
        process.env(IDENTITY, dir.path()).env("SSL_CERT_FILE", certificate);
        let output = process.env_remove("SSL_CERT_DIR").output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && printed.contains("1 passed"), "{printed}{errors}");
        None
    }

    struct Server {
        listener: TcpListener,
        acceptor: TlsAcceptor,
    }

    impl Server {
        async fn start(dir: &Path) -> Self {
            ensure_crypto_provider();
            let certificate = CertificateDer::from_pem_file(dir.join("certificate.pem")).unwrap();
            let key = PrivateKeyDer::from_pem_file(dir.join("key.pem")).unwrap();
            let config = ServerConfig::builder().with_no_client_auth();
            let config = config.with_single_cert(vec![certificate], key).unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            Self { listener, acceptor: TlsAcceptor::from(Arc::new(config)) }
        }

        fn url(&self, host: &str) -> String {
            format!("rediss://{host}:{}", self.listener.local_addr().unwrap().port())
        }

        async fn accept(&self) -> std::io::Result<TlsStream<TcpStream>> {
            let (stream, _) = self.listener.accept().await?;
            self.acceptor.accept(stream).await
        }
    }

    /// The server receives the host name (SNI), by which it selects its certificate.
    #[tokio::test]
    async fn a_socket_with_tls_has_the_options_of_tcp_and_sends_the_host_name() {
        let test = "a_socket_with_tls_has_the_options_of_tcp_and_sends_the_host_name";
        let Some(server) = server(test).await else { return };
        let url = server.url("localhost");
        let (connected, accepted) = tokio::join!(connect(&url), server.accept());
        let Socket::Tls(stream) = connected.unwrap() else { panic!("not a TLS socket") };
        assert_options(stream.tcp());
        assert_eq!(accepted.unwrap().get_ref().1.server_name(), Some("localhost"));
    }

    #[tokio::test]
    async fn a_trusted_certificate_for_another_host_is_refused() {
        let test = "a_trusted_certificate_for_another_host_is_refused";
        let Some(server) = server(test).await else { return };
        let url = server.url("127.0.0.1");
        let (connected, accepted) = tokio::join!(connect(&url), server.accept());
        let refused = connected.unwrap_err().to_string();
        assert!(refused.contains("not valid for name"), "{refused}");
        assert!(accepted.is_err());
    }
}
