//! ZooKeeper servers.

mod client;
mod ensemble;
mod locks;
#[cfg(test)]
mod self_tests;
mod server;
mod socks;

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::port::Port;
pub use client::{ZookeeperClient, ZookeeperError, ZookeeperKind, ZookeeperStat};
pub use ensemble::{EnsembleOptions, ZookeeperEnsemble};
use locks::Locks;
use server::Server;

/// The main class of a single server.
const MAIN: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";
/// The administrator `super` with the hash of its password, `harness`. It has every right.
const SUPER: (&str, &str) =
    ("DigestAuthenticationProvider.superDigest", "super:Necy47VlcKN8HuL9d9zG+aRMfic=");
/// Java's options of a server whose speed counts. The last option of a name counts.
const MEASURED: [&str; 2] = ["-XX:TieredStopAtLevel=4", "-Xmx256m"];
/// The session timeout of the test's own connections.
const ADMIN: Duration = Duration::from_secs(30);
/// The session timeout in a URL. Half of it is longer than the leases of the tests.
const SESSION: Duration = Duration::from_secs(900);
/// The port of the server that all test processes of a run share; `tests/run.sh` starts it.
const SHARED_PORT: &str = "REDLOCK_TEST_ZOOKEEPER";

/// The options of a [`ZookeeperServer`].
#[derive(Debug, Clone)]
pub struct ZookeeperOptions {
    tick: Duration,
    session_timeout: Duration,
    settings: Vec<(String, String)>,
    options: Vec<String>,
    tls: Option<PathBuf>,
    independent: bool,
}

impl Default for ZookeeperOptions {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(250),
            session_timeout: SESSION,
            settings: Vec::new(),
            options: Vec::new(),
            tls: None,
            independent: false,
        }
    }
}

impl ZookeeperOptions {
    /// Sets the session timeout in the URL. Defaults to 15 minutes.
    #[must_use]
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// Starts a server for this test alone, which the test can freeze and kill.
    #[must_use]
    pub fn independent(mut self) -> Self {
        self.independent = true;
        self
    }

    /// Sets the tick of an [independent](Self::independent) server. Defaults to 250 ms.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self.independent()
    }

    /// Adds a line to `zoo.cfg` of an [independent](Self::independent) server, such as `"minSessionTimeout", "100"`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self.independent()
    }

    /// Sets a system property of an [independent](Self::independent) server, such as `znode.container.checkIntervalMs`.
    #[must_use]
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.options.push(format!("-D{name}={value}"));
        self.independent()
    }

    /// Makes an [independent](Self::independent) server as fast and as durable as one in production, which takes longer to start.
    #[must_use]
    pub fn measured(mut self) -> Self {
        self.options.extend(MEASURED.map(str::to_owned));
        self.independent()
    }

    /// Makes an [independent](Self::independent) server listen on a second port, for TLS, with the key and the certificate in
    /// this file (PEM).
    #[must_use]
    pub fn tls(mut self, key_and_certificate: &Path) -> Self {
        self.tls = Some(key_and_certificate.to_owned());
        self.independent()
    }

    /// Starts the server; see [`ZookeeperServer::start`].
    ///
    /// # Errors
    ///
    /// Java is missing, or the libraries of ZooKeeper cannot be downloaded. The error is the reason.
    pub async fn start(self) -> Result<ZookeeperServer, String> {
        let tls_port = self.tls.as_ref().map(|_| Port::reserve());
        let own = if self.independent { Some(self.launch(tls_port.as_ref()).await?) } else { None };
        let port = match &own {
            Some(server) => server.port.number(),
            None => shared_port().await?,
        };
        let chroot = make_chroot(port).await;
        let session_timeout = self.session_timeout;
        Ok(ZookeeperServer { own, port, tls_port, chroot, session_timeout })
    }

    async fn launch(&self, tls_port: Option<&Port>) -> Result<Server, String> {
        crate::java::class_path("curator")?;
        loop {
            let mut settings = settings(self.tick, &self.settings);
            if let (Some(file), Some(port)) = (&self.tls, tls_port) {
                settings.extend(tls_settings(file, port));
            }
            let mut server = Server::new(MAIN, &self.options, settings);
            server.launch().expect("a process");
            match server.ready().await {
                Ok(()) => return Ok(server),
                // Another process has taken the port.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => panic!("ZooKeeper did not start: {error}"),
            }
        }
    }
}

/// Returns the settings of every server, and `more`.
fn settings(tick: Duration, more: &[(String, String)]) -> Vec<(String, String)> {
    let fixed = [
        ("tickTime".to_owned(), tick.as_millis().to_string()),
        ("maxSessionTimeout".to_owned(), "1200000".to_owned()),
        (SUPER.0.to_owned(), SUPER.1.to_owned()),
    ];
    fixed.into_iter().chain(more.iter().cloned()).collect()
}

fn tls_settings(key_and_certificate: &Path, port: &Port) -> [(String, String); 5] {
    let file = key_and_certificate.display().to_string();
    [
        ("secureClientPort", port.number().to_string()),
        ("serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned()),
        ("ssl.keyStore.location", file),
        ("ssl.keyStore.type", "PEM".to_owned()),
        ("ssl.clientAuth", "none".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

/// Returns the port of the server that several tests use, each in a folder of its own: of the run of `tests/run.sh`, and
/// otherwise of this process.
async fn shared_port() -> Result<u16, String> {
    static SHARED: OnceCell<Result<Server, String>> = OnceCell::const_new();
    if let Ok(port) = std::env::var(SHARED_PORT) {
        return Ok(port.parse().expect("a port"));
    }
    let options = ZookeeperOptions::default();
    let server = SHARED.get_or_init(|| async move { options.launch(None).await }).await;
    server.as_ref().map(|server| server.port.number()).map_err(Clone::clone)
}

/// Creates a folder with a name of its own.
async fn make_chroot(port: u16) -> String {
    let chroot = format!("/test-{:016x}", rand::random::<u64>());
    let mut admin = admin(port).await;
    admin.create(&chroot, b"", ZookeeperKind::Persistent).await.expect("a folder");
    let _ = admin.close().await;
    chroot
}

/// Connects with every right.
async fn admin(port: u16) -> ZookeeperClient {
    let mut client = ZookeeperClient::connect(port, ADMIN).await.expect("a connection");
    client.login("super", "harness").await.expect("a login");
    client
}

/// Returns the URL of the nodes over these servers.
fn url(ports: &[u16], chroot: &str, session_timeout: Duration) -> String {
    let mut hosts = String::new();
    for (index, port) in ports.iter().enumerate() {
        let _ = write!(hosts, "{}127.0.0.1:{port}", if index > 0 { "," } else { "" });
    }
    let timeout = session_timeout.as_millis();
    format!("zookeeper://{hosts}{chroot}?acl=open&session_timeout={timeout}ms")
}

/// A server of ZooKeeper that listens on 127.0.0.1, and a folder on it for this test alone. Several tests share the
/// server, unless it is [independent](ZookeeperOptions::independent). Dropping the value ends an independent server.
#[derive(Debug)]
pub struct ZookeeperServer {
    own: Option<Server>,
    port: u16,
    tls_port: Option<Port>,
    chroot: String,
    session_timeout: Duration,
}

impl ZookeeperServer {
    /// Starts a server with the default options, or uses the shared server, and creates a folder on it.
    ///
    /// # Errors
    ///
    /// Java is missing, or the libraries of ZooKeeper cannot be downloaded. The error is the reason.
    ///
    /// # Panics
    ///
    /// If the server cannot be started.
    pub async fn start() -> Result<Self, String> {
        Self::options().start().await
    }

    /// Returns the default options.
    pub fn options() -> ZookeeperOptions {
        ZookeeperOptions::default()
    }

    /// Returns the port, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the folder of this test.
    pub fn chroot(&self) -> &str {
        &self.chroot
    }

    /// Returns the URL of a node in the folder of this test, without a login.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// Returns the URL with another port, such as the one of a [`Proxy`](crate::Proxy).
    pub fn url_at(&self, port: u16) -> String {
        url(&[port], &self.chroot, self.session_timeout)
    }

    /// Returns the URL of a node that uses TLS with the host `localhost`.
    ///
    /// # Panics
    ///
    /// If the server was started without TLS.
    pub fn tls_url(&self) -> String {
        let port = self.tls_port.as_ref().expect("a server with TLS").number();
        self.url_at(port).replace("zookeeper://127.0.0.1", "zookeepers://localhost")
    }

    /// Connects with every right.
    ///
    /// # Panics
    ///
    /// If the server does not accept the connection.
    pub async fn admin(&self) -> ZookeeperClient {
        admin(self.port).await
    }

    /// Returns the path of a lock's folder.
    pub fn path(&self, name: &str) -> String {
        format!("{}/{}", self.chroot, locks::escape(name))
    }

    /// Returns the names of the children of a lock's folder: the holder first, then the waiters.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn queue(&self, name: &str) -> Vec<String> {
        self.locks().await.queue(name).await
    }

    /// Returns the time until the lease of a lock ends; `None` if nobody holds the lock. It is zero for a holder without a
    /// lease.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn locks_rest(&self, name: &str) -> Option<Duration> {
        self.locks().await.remaining(name).await
    }

    /// Returns the number of held locks in the folder of this test, and the number of waiters behind their holders.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn locks_count(&self) -> (usize, usize) {
        self.locks().await.count().await
    }

    /// Deletes the children of a lock's folder.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn delete_lock(&self, name: &str) {
        self.locks().await.delete(name).await;
    }

    async fn locks(&self) -> Locks {
        Locks { client: self.admin().await, chroot: self.chroot.clone() }
    }

    /// Returns the number of packets that the server has received from all clients.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn received(&self) -> u64 {
        let answer = self.server().srvr().await.expect("an answer");
        number(&answer, "Received: ").expect("the number of packets")
    }

    /// Returns the number of the last transaction.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn zxid(&self) -> u64 {
        let answer = self.server().srvr().await.expect("an answer");
        let zxid = answer.lines().find_map(|line| line.strip_prefix("Zxid: 0x"));
        zxid.and_then(|zxid| u64::from_str_radix(zxid, 16).ok()).expect("a transaction")
    }

    /// Returns whether several tests use the server, so that it cannot fail.
    pub fn is_shared(&self) -> bool {
        self.own.is_none()
    }

    /// Returns whether the server can answer: it is neither killed nor frozen.
    pub fn is_up(&self) -> bool {
        self.own.as_ref().is_none_or(Server::is_up)
    }

    /// Stops the process (SIGSTOP). The kernel still accepts connections, but the server does not answer.
    ///
    /// # Panics
    ///
    /// If the server is shared, as in all methods that make a fault.
    pub fn freeze(&mut self) {
        self.server_mut().freeze();
    }

    /// Continues the process (SIGCONT) after [`freeze`](Self::freeze).
    pub fn thaw(&mut self) {
        self.server_mut().thaw();
    }

    /// Kills the process (SIGKILL).
    pub fn kill(&mut self) {
        self.server_mut().kill();
    }

    /// Starts the server again on the same port with the same data. Kills it first if it still runs.
    pub async fn restart(&mut self) {
        self.server_mut().restart().await;
    }

    fn server(&self) -> &Server {
        self.own.as_ref().expect("an independent server")
    }

    fn server_mut(&mut self) -> &mut Server {
        self.own.as_mut().expect("an independent server")
    }
}

/// Returns the number after a label in the answer to `srvr`.
fn number(answer: &str, label: &str) -> Option<u64> {
    answer.lines().find_map(|line| line.strip_prefix(label)?.trim().parse().ok())
}
