//! The address of a server, with the credentials.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::io::tcp::{TcpSettings, socket2};
use bb8_redis::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    ProtocolVersion, RedisError,
};

use super::metered_socket::MeteredSocket;
use super::rejection_reason;
use super::socket::Socket;
use super::traffic::Traffic;
#[cfg(feature = "unstable-simulation")]
use crate::simulation::dial::Dial;

/// The idle time after which the kernel sends keepalive probes. With the kernel's default, the disappearance
/// of a server's machine would be noticed only after two hours.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// The time between two keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// The longest time for which sent data may stay unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);

const ALLOWED: &str = "allowed are redis://[user][:password@]host[:port][/database], rediss://... and unix:///path, or memory: alone";

/// The address of a server, with the credentials. `Debug` shows only the name.
#[derive(Clone)]
pub(crate) struct Endpoint {
    name: Arc<str>,
    client: Client,
    /// Replaces the operating system's network.
    #[cfg(feature = "unstable-simulation")]
    dial: Option<Arc<dyn Dial>>,
}

impl Endpoint {
    /// Parses a URL. The error explains the mistake without repeating the URL, which may contain a password.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let info = read(url)?;
        #[cfg(feature = "tls")]
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            super::tls::ensure_crypto_provider();
        }
        let name = name(&info).into();
        let client = Client::open(with_settings(info)).map_err(|error| error.to_string())?;
        Ok(Self {
            name,
            client,
            #[cfg(feature = "unstable-simulation")]
            dial: None,
        })
    }

    /// Returns the [name](Self::name) of the server with this URL, or the mistake in the URL. Unlike
    /// [`parse`](Self::parse), changes nothing in the process.
    pub(crate) fn name_of(url: &str) -> Result<String, String> {
        read(url).map(|info| name(&info))
    }

    /// Replaces the operating system's network on the way to this server.
    #[cfg(feature = "unstable-simulation")]
    pub(crate) fn dialed_by(self, dial: Arc<dyn Dial>) -> Self {
        Self { dial: Some(dial), ..self }
    }

    /// Returns host and port or the path of the socket, and the database unless it is 0.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Opens a connection, including the Redis handshake.
    pub(crate) async fn open(
        &self,
        config: &AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, Arc<Traffic>), RedisError> {
        let (socket, traffic) = MeteredSocket::new(self.connect().await?);
        let info = self.connection_info().redis_settings();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(info, socket, config.clone()).await?;
        tokio::spawn(driver);
        Ok((connection, traffic))
    }

    async fn connect(&self) -> std::io::Result<Socket> {
        #[cfg(feature = "unstable-simulation")]
        if let Some(dial) = &self.dial {
            return dial.open().await.map(Socket::Simulated);
        }
        Socket::connect(self.connection_info()).await
    }

    pub(crate) fn connection_info(&self) -> &ConnectionInfo {
        self.client.get_connection_info()
    }

    /// Returns the reason of a server that has closed a new connection at once.
    pub(crate) async fn rejection_reason(&self) -> Option<String> {
        #[cfg(feature = "unstable-simulation")]
        if self.dial.is_some() {
            return None;
        }
        rejection_reason::reason(self.connection_info().addr()).await
    }
}

/// Reads a URL. The error explains the mistake without repeating the URL.
fn read(url: &str) -> Result<ConnectionInfo, String> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(format!("it has no scheme; {ALLOWED}"));
    };
    let scheme = scheme.to_ascii_lowercase();
    match scheme.as_str() {
        "redis" | "valkey" | "unix" | "redis+unix" | "valkey+unix" => {}
        #[cfg(feature = "tls")]
        "rediss" | "valkeys" => {}
        #[cfg(not(feature = "tls"))]
        "rediss" | "valkeys" => {
            return Err("TLS needs the feature `tls` of redlock-core (or redlock-axum)".into());
        }
        _ => return Err(format!("its scheme is unknown; {ALLOWED}")),
    }
    if rest.ends_with("#insecure") {
        return Err(
            "#insecure is refused: the certificate of a lock server must be verified".into()
        );
    }
    if rest.contains('#') {
        return Err(format!(
            "it contains a #; write %23 where it belongs to a password; {ALLOWED}"
        ));
    }
    let info = url
        .into_connection_info()
        .map_err(|error| format!("{}; {ALLOWED}", error.detail().unwrap_or("it cannot be read")))?;
    if info.redis_settings().db() < 0 {
        return Err("its database is negative".into());
    }
    if let ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } = info.addr()
        && host.contains(',')
    {
        return Err("its host contains a comma; each server has a URL of its own".into());
    }
    Ok(info)
}

fn name(info: &ConnectionInfo) -> String {
    let db = info.redis_settings().db();
    let address = match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
        }
        other => other.to_string(),
    };
    if db == 0 { address } else { format!("{address}/{db}") }
}

fn with_settings(info: ConnectionInfo) -> ConnectionInfo {
    let keepalive =
        socket2::TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    // Nagle's algorithm delays the second of two commands by a round trip.
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(any(target_os = "android", target_os = "linux"))]
    let tcp = tcp.set_user_timeout(UNACKNOWLEDGED);
    // The push messages of RESP3 report the end of a connection at once.
    let redis = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3)
        .set_lib_name(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    info.set_tcp_settings(tcp).set_redis_settings(redis)
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_host_and_port_without_credentials() {
        let name = |url| Endpoint::parse(url).unwrap().name().to_string();
        assert_eq!(name("redis://10.0.0.1"), "10.0.0.1:6379");
        assert_eq!(name("redis://app:s3cret@cache.local:7000/2"), "cache.local:7000/2");
        assert_eq!(name("redis://[::1]:7000"), "[::1]:7000");
        assert_eq!(name("unix:///run/redis.sock?pass=s3cret&db=1"), "/run/redis.sock/1");
    }

    #[test]
    fn a_wrong_url_is_explained_without_being_repeated() {
        for (url, words) in [
            ("10.0.0.1", "no scheme"),
            ("http://:s3cret@10.0.0.1", "scheme is unknown"),
            ("redis://:s3cret@", "cannot"),
            ("redis://:s3cret@host:99999", "allowed are"),
            ("redis://:s3cret@host/x", "atabase"),
            ("redis://:s3cret@0.0.0.0", "allowed are"),
            ("redis://:s3cret@host/-1", "negative"),
            ("redis://app:12#s3cret@host", "%23"),
            ("redis://:s3cret@a,b", "comma"),
            ("redis://:s3cret@a,10.0.0.2:6380/1", "comma"),
        ] {
            let reason = Endpoint::parse(url).unwrap_err();
            assert!(!reason.contains("s3cret"), "{reason}");
            assert!(reason.contains(words) || reason.contains("allowed are"), "{url}: {reason}");
        }
    }

    /// The redis crate would verify no certificate with this URL.
    #[test]
    fn a_url_that_turns_the_verification_of_certificates_off_is_refused() {
        for url in ["redis://:s3cret@host/#insecure", "rediss://:s3cret@host/#insecure"] {
            let reason = Endpoint::parse(url).unwrap_err();
            let is_explained = reason.contains("must be verified")
                || !cfg!(feature = "tls") && reason.contains("`tls`");
            assert!(is_explained && !reason.contains("s3cret"), "{url}: {reason}");
        }
    }

    #[test]
    fn nothing_shows_the_password() {
        let endpoint = Endpoint::parse("redis://app:s3cret@10.0.0.1").unwrap();
        assert!(!format!("{endpoint:?}").contains("s3cret"));
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_names_its_feature() {
        let reason = Endpoint::parse("rediss://10.0.0.1").unwrap_err();
        assert!(reason.contains("`tls`"), "{reason}");
    }
}
