//! The address of a server, with the credentials.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::io::tcp::{TcpSettings, socket2};
use bb8_redis::redis::{Cmd, ConnectionAddr, RedisError};
use futures_util::future::{join_all, try_join};

use super::authentication::ExpiringLogin;
use crate::access::TlsOptions;
use crate::node::redis::link::socket::Socket;
use crate::node::redis::link::{Event, Link};
use crate::node::redis::url::{HostPort, Login, RedisUrl, Servers};
#[cfg(feature = "unstable-simulation")]
use crate::simulation::dial::Dial;

/// The idle time after which the kernel sends keepalive probes. With the kernel's default, the disappearance
/// of a server's machine would be noticed only after two hours.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// The time between two keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// The longest time for which sent data may stay unacknowledged, on systems with this option.
#[cfg(any(target_os = "android", target_os = "linux"))]
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);

/// The address of a server, with the credentials. `Debug` shows only the name.
#[derive(Clone)]
pub(crate) struct Endpoint {
    name: Arc<str>,
    address: ConnectionAddr,
    tcp: TcpSettings,
    db: i64,
    login: Login,
    /// Used if the address is one with TLS.
    tls: TlsOptions,
    /// Replaces the operating system's network.
    #[cfg(feature = "unstable-simulation")]
    dial: Option<Arc<dyn Dial>>,
}

impl Endpoint {
    /// Returns the endpoint of a URL of one server.
    pub(crate) fn of_one(url: &RedisUrl) -> Option<Self> {
        match &url.servers {
            Servers::Tcp(server) => Some(Self::of(url, server)),
            Servers::Unix(path) => Some(Self::unix(url, path)),
            Servers::Sentinel { .. } | Servers::Cluster { .. } => None,
        }
    }

    /// Returns the endpoint of one of the servers behind a URL.
    pub(crate) fn of(url: &RedisUrl, server: &HostPort) -> Self {
        let (host, port) = (server.host.clone(), server.port);
        let address = if url.tls.is_some() {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        Self::new(url, &server.to_string(), address)
    }

    /// Returns the endpoint of the server with this unix socket.
    fn unix(url: &RedisUrl, path: &Path) -> Self {
        Self::new(url, &path.display().to_string(), ConnectionAddr::Unix(path.to_owned()))
    }

    fn new(url: &RedisUrl, address_name: &str, address: ConnectionAddr) -> Self {
        let name = match url.db {
            0 => address_name.into(),
            db => format!("{address_name}/{db}").into(),
        };
        Self {
            name,
            address,
            tcp: tcp_settings(),
            db: url.db,
            login: url.login.clone(),
            tls: url.tls.clone().unwrap_or_default(),
            #[cfg(feature = "unstable-simulation")]
            dial: None,
        }
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

    /// Opens a link, including the Redis handshake, and returns the login to repeat if the credentials expire. The caller
    /// ends the attempt after `limit`. The provider of the credentials has to return before, so that the caller learns the
    /// reason. For the other arguments see [`Link::start`].
    pub(crate) async fn open(
        &self,
        limit: Duration,
        in_slices: bool,
        on_event: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<(Link, Option<ExpiringLogin>), RedisError> {
        let login = self.login.resolve(limit * 3 / 4).await;
        let (login, expiring_login) = login.map_err(std::io::Error::other)?;
        let link = Link::start(self.connect().await?, in_slices, on_event);
        self.shake_hands(&link, &login).await?;
        Ok((link, expiring_login))
    }

    /// Switches to RESP3, logs in, names the library, and selects the database, in one round trip.
    async fn shake_hands(&self, link: &Link, login: &Login) -> Result<(), RedisError> {
        let mut hello = Cmd::new();
        // The push messages of RESP3 come beside the replies.
        hello.arg("HELLO").arg(3);
        if let Some(password) = &login.password {
            let username = login.username.as_deref().unwrap_or("default");
            hello.arg("AUTH").arg(username).arg(password);
        }
        let mut select = Cmd::new();
        select.arg("SELECT").arg(self.db);
        let name = [("LIB-NAME", env!("CARGO_PKG_NAME")), ("LIB-VER", env!("CARGO_PKG_VERSION"))];
        let name = name.map(|(field, value)| {
            let mut set_info = Cmd::new();
            set_info.arg("CLIENT").arg("SETINFO").arg(field).arg(value);
            set_info
        });
        let send = |command: &Cmd| link.send(command);
        let hello = send(&hello);
        let select = (self.db != 0).then(|| send(&select));
        let named = join_all(name.iter().map(send));
        let select = async {
            match select {
                Some(select) => select.await.map(drop),
                None => Ok(()),
            }
        };
        try_join(hello, select).await?;
        // Redis before 7.2 does not know the command, and a user may be denied it.
        named.await;
        Ok(())
    }

    async fn connect(&self) -> std::io::Result<Socket> {
        #[cfg(feature = "unstable-simulation")]
        if let Some(dial) = &self.dial {
            return dial.open().await.map(Socket::Simulated);
        }
        Socket::connect(&self.address, &self.tcp, &self.tls).await
    }
}

fn tcp_settings() -> TcpSettings {
    let keepalive =
        socket2::TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    // Nagle's algorithm delays the second of two commands by a round trip.
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(any(target_os = "android", target_os = "linux"))]
    let tcp = tcp.set_user_timeout(UNACKNOWLEDGED);
    tcp
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&self.name).finish()
    }
}

#[cfg(test)]
impl Endpoint {
    /// Returns the endpoint of a URL of one server.
    pub(crate) fn parse(url: &str) -> Self {
        Self::of_one(&RedisUrl::parse(url).unwrap()).unwrap()
    }

    /// Connects the socket alone, without the Redis handshake.
    pub(crate) async fn socket(&self) -> std::io::Result<Socket> {
        self.connect().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_endpoint_is_that_of_its_url() {
        for url in [
            "redis://app:s3cret@cache.local:7000/2",
            "rediss://[::1]",
            "unix:///run/redis.sock?pass=s3cret&db=1",
        ] {
            if url.starts_with("rediss") && cfg!(not(feature = "tls")) {
                continue;
            }
            let endpoint = Endpoint::parse(url);
            assert_eq!(**endpoint.name(), RedisUrl::parse(url).unwrap().name());
            assert!(!format!("{endpoint:?}").contains("s3cret"), "{endpoint:?}");
        }
    }
}
