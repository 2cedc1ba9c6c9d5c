//! Opens links: connects, logs in, and logs in again before the credentials expire.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{Cmd, RedisError, cmd};
use futures_util::TryFutureExt;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::socket::{MAX_FRAME, Socket, connect_tcp, look_up};
use super::{Event, Link};
use crate::access::Credentials;
use crate::error::{NodeError, legible};
use crate::jitter::jitter;
use crate::store::kit::connect_time::ConnectTime;
use crate::store::kit::description::StoreUrl;
#[cfg(feature = "unstable-simulation")]
use crate::store::kit::dial::Dial;
use crate::store::kit::url::HostPort;
use crate::store::redis::error;
use crate::store::redis::url::{Login, RedisUrl, Servers};
use crate::telemetry;

/// The part of the life of credentials after which a connection logs in again.
const RENEWED_AFTER: std::ops::Range<f64> = 0.7..0.8;
/// The shortest pause before a connection logs in again.
const SHORTEST_LIFE: Duration = Duration::from_millis(500);
/// The first pause after a failure. The pause doubles after each failure, and is jittered by a quarter.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The probable causes if a server closes a connection without TLS at the first command.
const CLOSED_AT_HELLO: &str = "the server may expect TLS: use rediss://; or a proxy that does not know HELLO, such as twemproxy, \
                               is in between: connect to the server itself";

/// The address of a server, with the credentials. `Debug` shows only the name.
#[derive(Clone)]
pub(crate) struct Endpoint {
    name: Arc<str>,
    /// A URL with only this server.
    url: RedisUrl,
    /// The server that has named this address. `None` if the address is configured.
    announcer: Option<Arc<str>>,
    /// The only address to connect to. `None` if any address of the host will do.
    address: Option<SocketAddr>,
    /// The longest reply.
    max_frame: u64,
    /// Replaces the operating system's network.
    #[cfg(feature = "unstable-simulation")]
    dial: Option<Arc<dyn Dial>>,
}

impl Endpoint {
    /// Returns the endpoint of a URL of one server.
    pub(crate) fn of_one(url: &RedisUrl) -> Option<Self> {
        let is_one = matches!(url.servers, Servers::Tcp(_) | Servers::Unix(_));
        is_one.then(|| Self::new(url.clone()))
    }

    /// Returns the endpoint of one of the servers behind a URL.
    pub(crate) fn of(url: &RedisUrl, server: &HostPort) -> Self {
        Self::new(RedisUrl { servers: Servers::Tcp(server.clone()), ..url.clone() })
    }

    fn new(url: RedisUrl) -> Self {
        Self {
            // A server may have named any text as the host.
            name: legible(&url.name()).into(),
            url,
            announcer: None,
            address: None,
            max_frame: MAX_FRAME,
            #[cfg(feature = "unstable-simulation")]
            dial: None,
        }
    }

    /// Names the server that has announced this address, for errors.
    pub(crate) fn announced_by(self, announcer: impl Into<Arc<str>>) -> Self {
        Self { announcer: Some(announcer.into()), ..self }
    }

    /// Returns whether another server has announced this address.
    pub(crate) fn is_announced(&self) -> bool {
        self.announcer.is_some()
    }

    /// Sets the length of the longest reply.
    pub(crate) fn with_replies_up_to(self, max_frame: u64) -> Self {
        Self { max_frame, ..self }
    }

    /// Leads to one of the addresses of the host.
    pub(crate) fn at(&self, address: SocketAddr) -> Self {
        Self { address: Some(address), ..self.clone() }
    }

    /// Looks the addresses of the host up. Returns none if the server has no name, but an address or a unix socket.
    pub(crate) async fn look_up(&self) -> io::Result<Vec<SocketAddr>> {
        #[cfg(feature = "unstable-simulation")]
        if let Some(dial) = &self.dial {
            return Ok(dial.addresses());
        }
        match &self.url.servers {
            Servers::Tcp(server) if server.host.parse::<IpAddr>().is_err() => look_up(server).await,
            _ => Ok(Vec::new()),
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

    /// Returns the host. It is empty for a unix socket.
    pub(crate) fn host(&self) -> &str {
        match &self.url.servers {
            Servers::Tcp(server) => &server.host,
            _ => "",
        }
    }

    /// Opens a link, including the Redis handshake.
    ///
    /// The attempt ends before `limit` is over, at which a caller may give it up, so that the caller learns the reason. For
    /// the other arguments see [`Link::start`].
    pub(crate) async fn open(
        &self,
        limit: Duration,
        in_slices: bool,
        on_event: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Link, NodeError> {
        let deadline = Deadline::after(limit * 7 / 8, limit);
        let credentials = self.url.login.credentials(limit * 3 / 4).await?;
        let socket = self.connect(&deadline).await?;
        let socket = Socket { max_frame: self.max_frame, ..socket };
        let address = socket.address;
        let mut link = Link::start(socket, in_slices, on_event);
        link.address = address;
        deadline.wait(self.greet(&link, credentials.as_ref())).await?;
        let life = credentials.and_then(|credentials| credentials.expires_in);
        link.renewal = life.map(|life| (self.url.login.clone(), life));
        Ok(link)
    }

    /// Adds the address to the error of a server that was announced. The name of its node says nothing about it.
    pub(crate) fn explain(&self, mut error: NodeError) -> NodeError {
        use NodeError::{
            ConnectionBroke, Credentials, NotConnected, NotPermitted, NotSetUp, Server, Tls,
        };
        let Some(announcer) = &self.announcer else { return error };
        let label = format!("{} (announced by {announcer}): ", self.name);
        if let NotConnected(reason)
        | ConnectionBroke(reason)
        | Server(reason)
        | Credentials(reason)
        | NotPermitted(reason)
        | NotSetUp(reason)
        | Tls(reason) = &mut error
        {
            *reason = (label + reason).into();
        }
        error
    }

    async fn connect(&self, deadline: &Deadline) -> Result<Socket, NodeError> {
        #[cfg(feature = "unstable-simulation")]
        if let Some(dial) = &self.dial {
            let address = self.address.or_else(|| dial.addresses().first().copied());
            let opened = address.map_or_else(|| dial.open(), |address| dial.open_at(address));
            let socket = deadline.wait(opened.map_err(failed)).await.map(Socket::played)?;
            return Ok(Socket { address, ..socket });
        }
        match &self.url.servers {
            Servers::Tcp(server) => {
                let connect = async {
                    let addresses = match self.address {
                        Some(address) => vec![address],
                        None => look_up(server).await?,
                    };
                    connect_tcp(addresses).await
                };
                let stream = deadline.wait(connect.map_err(failed)).await?;
                let socket = Socket::over_tcp(stream, &server.host, self.url.tls.as_ref());
                // Redis waits for the end of a line, which the client's first message may not contain.
                let socket = deadline.wait(socket).await;
                socket.map_err(|error| hint(error, "the server may not speak TLS: use redis://"))
            }
            #[cfg(unix)]
            Servers::Unix(path) => deadline.wait(Socket::connect_unix(path).map_err(failed)).await,
            // No endpoint has several servers.
            _ => Err(failed(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Switches to RESP3, logs in, names the library, and selects the database, in one round trip.
    async fn greet(&self, link: &Link, credentials: Option<&Credentials>) -> Result<(), NodeError> {
        // The push messages of RESP3 come beside the replies.
        let mut hello = cmd("HELLO");
        hello.arg(3);
        if let Some(credentials) = credentials {
            link.add_auth(&mut hello, credentials);
        }
        let hello = link.send(&hello);
        let db = self.url.db;
        let select = (db != 0).then(|| link.send(cmd("SELECT").arg(db)));
        let name = [("LIB-NAME", env!("CARGO_PKG_NAME")), ("LIB-VER", env!("CARGO_PKG_VERSION"))];
        let named = name
            .map(|(field, value)| link.send(cmd("CLIENT").arg("SETINFO").arg(field).arg(value)));
        if let Err(error) = hello.await {
            let is_plain = matches!(self.url.servers, Servers::Tcp(_)) && self.url.tls.is_none();
            let error = error::not_connected(&error);
            return Err(if is_plain { hint(error, CLOSED_AT_HELLO) } else { error });
        }
        if let Some(select) = select {
            select.await.map_err(|error| error::not_connected(&error))?;
        }
        // Redis before 7.2 does not know the command, and a user may be denied it.
        let _ = join_all(named).await;
        Ok(())
    }
}

/// The time at which an attempt to connect ends.
struct Deadline {
    end: Instant,
    time: ConnectTime,
}

impl Deadline {
    /// Begins an attempt of at most this duration. `limit` is the time that the caller has set.
    fn after(duration: Duration, limit: Duration) -> Self {
        Self { end: Instant::now() + duration, time: ConnectTime::begin(limit) }
    }

    /// Returns the result of a step, or an error if it takes too long.
    async fn wait<T>(
        &self,
        step: impl Future<Output = Result<T, NodeError>>,
    ) -> Result<T, NodeError> {
        timeout_at(self.end, step).await.map_err(|_| self.time.late())?
    }
}

fn failed(error: io::Error) -> NodeError {
    error::not_connected(&error.into())
}

/// Adds a probable cause to the error of a connection that the server does not use, or has closed.
fn hint(mut error: NodeError, words: &str) -> NodeError {
    if let NodeError::NotConnected(reason) = &mut error {
        *reason = format!("{reason}; {words}").into();
    }
    error
}

/// Returns the reply of a server, or the error of an attempt to connect if it is refused or late.
pub(crate) async fn within<T>(
    limit: Duration,
    reply: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, NodeError> {
    let reply = timeout(limit, reply).await.map_err(|_| NodeError::NoReply(limit))?;
    reply.map_err(|error| error::not_connected(&error))
}

impl Login {
    /// Returns the credentials for a new connection, or `None` if it needs none. The URL may name the user of a provider's
    /// password.
    async fn credentials(&self, limit: Duration) -> Result<Option<Credentials>, NodeError> {
        // An application may have written the reason.
        let failed = |reason: String| NodeError::Credentials(legible(&reason).into());
        let credentials = match (&self.provider, &self.password) {
            (Some(provider), _) => provider.credentials(limit).await.map_err(failed)?,
            (None, Some(password)) => Credentials::new(password),
            // A server accepts any password of a user who has none (nopass). It refuses it for every other user: without a login
            // the connection would be another user's.
            (None, None) if self.username.is_some() => Credentials::new(""),
            (None, None) => return Ok(None),
        };
        let username = credentials.username.or_else(|| self.username.clone());
        Ok(Some(Credentials { username, ..credentials }))
    }
}

impl Link {
    /// Logs in again whenever the credentials are about to expire. Never completes.
    ///
    /// After a failure it tries again for as long as the connection lasts. The server decides what happens to a
    /// connection whose credentials have expired. A new connection gets new credentials.
    pub(crate) async fn keep_authenticated(&self, node: &Arc<str>, limit: Duration) {
        let Some((login, life)) = &self.renewal else {
            return std::future::pending().await;
        };
        let before_end = |life: Duration| life.mul_f64(jitter(RENEWED_AFTER)).max(SHORTEST_LIFE);
        let (mut pause, mut pause_after_failure) = (before_end(*life), FIRST_PAUSE);
        loop {
            sleep(pause).await;
            match self.authenticate(login, limit).await {
                Ok(expires_in) => {
                    telemetry::authenticated_again(node, "renewed", 1);
                    tracing::debug!(%node, ?expires_in, "the credentials of a connection were renewed");
                    let Some(life) = expires_in else {
                        return std::future::pending().await;
                    };
                    (pause, pause_after_failure) = (before_end(life), FIRST_PAUSE);
                }
                Err(error) => {
                    telemetry::authenticated_again(node, "failed", 1);
                    tracing::warn!(%node, %error, "cannot renew the credentials of a connection");
                    pause = pause_after_failure.mul_f64(jitter(0.75..1.25));
                    pause_after_failure = (pause_after_failure * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Adds the arguments that log a user in. The link masks the password from now on.
    fn add_auth(&self, command: &mut Cmd, credentials: &Credentials) {
        self.life.secrets.add(&credentials.password);
        let username = credentials.username.as_deref().unwrap_or("default");
        command.arg("AUTH").arg(username).arg(&credentials.password);
    }

    /// Logs in with new credentials, in order with the other commands. Returns how long they last.
    ///
    /// A server that refuses them leaves the connection as it was.
    async fn authenticate(
        &self,
        login: &Login,
        limit: Duration,
    ) -> Result<Option<Duration>, NodeError> {
        let Some(credentials) = login.credentials(limit).await? else {
            return Ok(None);
        };
        let mut command = Cmd::new();
        self.add_auth(&mut command, &credentials);
        within(limit, self.send(&command)).await?;
        Ok(credentials.expires_in)
    }
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
    pub(crate) async fn socket(&self) -> Result<Socket, NodeError> {
        let limit = Duration::from_secs(60);
        self.connect(&Deadline::after(limit, limit)).await
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::net::TcpListener;

    use super::*;
    use crate::access::ProviderFn;
    use crate::store::kit::provider::Provider;
    use crate::store::redis::server::played_server::serve;

    /// Returns a link whose login is to be repeated, and the end of its server.
    fn played_link(provider: Provider, username: Option<&str>) -> (Link, DuplexStream) {
        let (client, server) = tokio::io::duplex(4096);
        let mut link = Link::start(Socket::played(client), true, |_| {});
        let username = username.map(str::to_owned);
        let login = Login { username, password: None, provider: Some(provider) };
        link.renewal = Some((login, HOUR));
        (link, server)
    }

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

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn credentials_are_renewed_after_about_three_quarters_of_their_life() {
        let provider = Provider::Function(
            Arc::new(|_| Box::pin(async { Ok(Credentials::new("next").expires_in(2 * HOUR)) })),
            "cache:6379".into(),
        );
        #[cfg(feature = "metrics")]
        let counted = crate::telemetry::Counted::begin();
        let (link, mut server) = played_link(provider, Some("app"));
        let node = "cache:6379".into();
        let mut authentication = Box::pin(link.keep_authenticated(&node, HOUR));
        for life in [HOUR, 2 * HOUR] {
            let begun = Instant::now();
            let command = "AUTH\r\n$3\r\napp\r\n$4\r\nnext\r\n";
            tokio::select! {
                biased;
                () = &mut authentication => unreachable!(),
                () = serve(&mut server, command, "+OK\r\n", || {}) => {}
            }
            let elapsed = begun.elapsed();
            assert!(
                life * 7 / 10 <= elapsed && elapsed <= life * 8 / 10 + FIRST_PAUSE,
                "{elapsed:?}"
            );
        }
        // Until the link has read the last reply.
        assert!(tokio::time::timeout(HOUR, authentication).await.is_err());
        #[cfg(feature = "metrics")]
        assert_eq!(counted.events("redlock_authentications_total"), ["cache:6379 renewed: 2"]);
    }

    /// Each attempt asks for new credentials, and the pauses grow.
    #[tokio::test(start_paused = true)]
    async fn credentials_that_the_server_refuses_are_asked_for_again_after_growing_pauses() {
        let calls = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let times = Arc::clone(&calls);
        let provider = Provider::Function(
            Arc::new(move |_| {
                times.lock().push(Instant::now());
                Box::pin(async { Ok(Credentials::new("wrong")) })
            }),
            "cache:6379".into(),
        );
        #[cfg(feature = "metrics")]
        let counted = crate::telemetry::Counted::begin();
        let (link, mut server) = played_link(provider, None);
        let node = "cache:6379".into();
        let mut authentication = Box::pin(link.keep_authenticated(&node, HOUR));
        for _ in 0..9 {
            tokio::select! {
                biased;
                () = &mut authentication => unreachable!(),
                () = serve(&mut server, "wrong", "-WRONGPASS no\r\n", || {}) => {}
            }
        }
        let calls = calls.lock();
        let pauses: Vec<_> = calls.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for (pause, expected) in pauses.iter().zip([1, 2, 4, 8, 16, 30, 30, 30]) {
            let expected = Duration::from_secs(expected);
            assert!(expected * 3 / 4 <= *pause && *pause <= expected * 5 / 4 + FIRST_PAUSE / 10);
        }
        assert_eq!(pauses.len(), 8);
        assert!(link.is_alive());
        // The last reply may not be read yet.
        #[cfg(feature = "metrics")]
        {
            let counted = counted.events("redlock_authentications_total");
            let expected = [8, 9].map(|count| vec![format!("cache:6379 failed: {count}")]);
            assert!(expected.contains(&counted), "{counted:?}");
        }
    }

    /// Opens a link to a server that sends these bytes after the first bytes of each client, and returns the error.
    /// Without bytes the server closes the connection.
    async fn refused_by(
        reply: &[u8],
        endpoint: impl FnOnce(HostPort) -> Endpoint,
        limit: Duration,
    ) -> NodeError {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let endpoint = endpoint(HostPort { host: "127.0.0.1".to_owned(), port: address.port() });
        let serve = async {
            let (mut client, _) = listener.accept().await.unwrap();
            assert!(client.read(&mut [0; 4096]).await.unwrap() > 0);
            client.write_all(reply).await.unwrap();
            if !reply.is_empty() {
                // Until the client closes the connection.
                while client.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {}
            }
        };
        tokio::join!(endpoint.open(limit, false, |_| {}), serve).0.unwrap_err()
    }

    #[tokio::test]
    async fn a_server_that_repeats_the_password_of_a_login_does_not_show_it() {
        let provider: ProviderFn = Arc::new(|_| Box::pin(async { Ok(Credentials::new("s3cret")) }));
        let provider = Some(Provider::Function(provider, "cache:6379".into()));
        let password = Some("s3cret".to_owned());
        for login in
            [Login { provider, ..Login::default() }, Login { password, ..Login::default() }]
        {
            let endpoint = |server| {
                let url = RedisUrl::parse("redis://localhost").unwrap();
                Endpoint::of(&RedisUrl { login, ..url }, &server)
            };
            let error = refused_by(b"-WRONGPASS bad password 's3cret'\r\n", endpoint, HOUR).await;
            assert_eq!(error, NodeError::Credentials("WRONGPASS bad password '***'".into()));
        }
    }

    /// The server repeats the new password.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_repeats_a_renewed_password_does_not_show_it() {
        let provider: ProviderFn = Arc::new(|_| Box::pin(async { Ok(Credentials::new("s3cret")) }));
        let provider = Provider::Function(provider, "cache:6379".into());
        let (link, mut server) = played_link(provider, None);
        let (login, _) = link.renewal.as_ref().unwrap();
        let reply = serve(&mut server, "s3cret", "-WRONGPASS bad password 's3cret'\r\n", || {});
        let (error, ()) = tokio::join!(link.authenticate(login, HOUR), reply);
        assert_eq!(error, Err(NodeError::Credentials("WRONGPASS bad password '***'".into())));
    }

    /// The server repeats the password in an error that no command has asked for.
    #[tokio::test]
    async fn the_end_of_a_link_does_not_show_its_password() {
        let (client, mut server) = tokio::io::duplex(4096);
        let link = Link::start(Socket::played(client), true, |_| {});
        link.life.secrets.add("s3cret");
        server.write_all(b"-ERR no s3cret\r\n").await.unwrap();
        assert_eq!(*link.ended().await, *"ERR no ***");
    }

    #[tokio::test]
    async fn the_error_of_a_provider_cannot_forge_lines_of_a_log() {
        let provider: ProviderFn = Arc::new(|_| Box::pin(async { Err("a\nb".into()) }));
        let provider = Some(Provider::Function(provider, "cache:6379".into()));
        let login = Login { provider, ..Login::default() };
        let url = RedisUrl { login, ..RedisUrl::parse("redis://localhost").unwrap() };
        let opened = Endpoint::of_one(&url).unwrap().open(HOUR, false, |_| {}).await;
        let reason = NodeError::Credentials(r"the provider failed: a\nb".into());
        assert_eq!(opened.unwrap_err(), reason);
    }

    fn endpoint(scheme: &str) -> impl FnOnce(HostPort) -> Endpoint {
        move |server| Endpoint::parse(&format!("{scheme}://{server}"))
    }

    /// Redis closes a connection whose client speaks no TLS. Other servers send an alert first.
    #[tokio::test]
    async fn the_error_of_a_server_that_may_expect_tls_says_so() {
        for reply in [&b""[..], b"\x15\x03\x01\x00\x02\x02\x46"] {
            let error = refused_by(reply, endpoint("redis"), HOUR).await;
            let NodeError::NotConnected(reason) = &error else { panic!("{error:?}") };
            assert!(reason.ends_with("; the server may expect TLS: use rediss://; or a proxy that does not know HELLO, such as twemproxy, is in between: connect to the server itself"), "{reason}");
        }
        let error = refused_by(b"-ERR max number of clients reached\r\n", endpoint("redis"), HOUR);
        assert_eq!(error.await, NodeError::Server("ERR max number of clients reached".into()));
    }

    #[cfg(feature = "tls")]
    #[tokio::test]
    async fn the_error_of_a_server_that_may_not_speak_tls_says_so() {
        let url = || endpoint("rediss");
        let error = refused_by(b"-ERR unknown command\r\n", url(), HOUR).await;
        assert_eq!(error.to_string(), "TLS: the server does not speak TLS: use redis://");
        // Redis waits for the end of a line.
        let error = refused_by(b"\x16", url(), Duration::from_secs(1)).await;
        let NodeError::NotConnected(reason) = &error else { panic!("{error:?}") };
        let words = "no connection within 1s; the server may not speak TLS: use redis://";
        assert_eq!(**reason, *words);
    }

    #[tokio::test]
    async fn the_error_of_a_server_that_was_announced_has_its_address_and_who_announced_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let endpoint = Endpoint::parse(&format!("redis://{address}"));
        let error = endpoint.open(HOUR, false, |_| {}).await.unwrap_err();
        let explained = endpoint.explain(error.clone()).to_string();
        assert!(!explained.contains("127.0.0.1"), "the name of the node has it: {explained}");
        let endpoint = endpoint.announced_by("sentinel 10.0.0.1:26379");
        let error = endpoint.explain(error).to_string();
        let begin =
            format!("not connected: {address} (announced by sentinel 10.0.0.1:26379): Connection");
        assert!(error.starts_with(&begin), "{error}");
    }

    #[test]
    fn an_announced_name_cannot_forge_lines_of_a_log() {
        let server = HostPort { host: "a\n2026 WARN a lock was lost".to_owned(), port: 1 };
        let endpoint = Endpoint::of(&RedisUrl::parse("redis://h").unwrap(), &server);
        assert_eq!(**endpoint.name(), *r"a\n2026 WARN a lock was lost:1");
    }
}
