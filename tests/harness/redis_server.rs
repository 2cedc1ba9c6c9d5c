//! One real Redis server.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::port::Port;
use crate::probe::Probe;
use crate::process::Process;
use crate::scratch::scratch_in_memory;

/// The longest time for a start, on a machine that is busy with other tests.
const START: Duration = Duration::from_secs(20);
/// The longest time in which a server that closes connections is asked for another one.
const RECONNECT: Duration = Duration::from_secs(60);

/// The options of a [`RedisServer`].
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    arguments: Vec<String>,
    password: Option<String>,
    tls: bool,
}

impl RedisOptions {
    /// Adds a directive of `redis.conf`, such as `"maxmemory-policy", "allkeys-lru"`.
    #[must_use]
    pub fn directive(mut self, name: &str, value: &str) -> Self {
        self.arguments.extend([format!("--{name}"), value.to_owned()]);
        self
    }

    /// Renames a command of the server. An empty `name` disables the command.
    #[must_use]
    pub fn rename(mut self, command: &str, name: &str) -> Self {
        self.arguments.extend(["--rename-command", command, name].map(str::to_owned));
        self
    }

    /// Sets the password of the default user. It must be a word that the tests use for nothing else, because
    /// from now on no log line may contain it.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        redlock_logs::remember_password(password);
        self.password = Some(password.to_owned());
        self.directive("requirepass", password)
    }

    /// Adds a user with all permissions. Its password, too, must be a word that the tests use for nothing
    /// else.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        redlock_logs::remember_password(password);
        let password = format!(">{password}");
        let rules = ["--user", name, "on", &password, "~*", "&*", "+@all"];
        self.arguments.extend(rules.map(str::to_owned));
        self
    }

    /// Adds a TLS port, at [`RedisServer::tls_url`], with the certificate and the key in these files (PEM).
    /// The server does not start if it was built without TLS, see [`RedisServer::check_tls`].
    #[must_use]
    pub fn tls(mut self, certificate: &Path, key: &Path) -> Self {
        self.tls = true;
        self.directive("tls-cert-file", &certificate.display().to_string())
            .directive("tls-key-file", &key.display().to_string())
            .directive("tls-auth-clients", "no")
            .directive("tls-ca-cert-file", &certificate.display().to_string())
    }

    /// Returns whether the server has a TLS port.
    pub(crate) fn has_tls(&self) -> bool {
        self.tls
    }

    /// Starts the server; see [`RedisServer::start`].
    pub async fn start(self) -> RedisServer {
        self.start_on(Port::reserve).await
    }

    /// Starts a member of a cluster. The servers of a cluster talk to each other on a second port, which is higher by
    /// 10,000.
    pub(crate) async fn start_member(self) -> RedisServer {
        self.start_on(Port::reserve_for_cluster).await
    }

    async fn start_on(self, reserve: fn() -> Port) -> RedisServer {
        redlock_logs::watch();
        loop {
            let port = reserve();
            let tls_port = self.tls.then(reserve);
            let (dir, options) = (scratch_in_memory(), self.clone());
            let mut server =
                RedisServer { options, port, tls_port, dir, process: None, frozen: false };
            match server.launch(Stage::Serves).await {
                Ok(()) => return server,
                // Another process has taken the port.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => panic!("redis-server did not start: {error}"),
            }
        }
    }
}

/// A `redis-server` process with its own port and its own directory. By default it has no persistence.
/// Dropping the value ends the process.
///
/// The program is the value of the environment variable `REDIS_SERVER`, by default `redis-server` in `PATH`.
#[derive(Debug)]
pub struct RedisServer {
    options: RedisOptions,
    port: Port,
    tls_port: Option<Port>,
    dir: TempDir,
    process: Option<Process>,
    frozen: bool,
}

/// Returns the program of every server of the tests.
pub(crate) fn program() -> OsString {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// The stage of a start that [`RedisServer::launch`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The server answers `INFO`, perhaps while it loads its data.
    Answers,
    /// The server has loaded its data and accepts every command.
    Serves,
}

impl RedisServer {
    /// Starts a server with the default options and waits until it answers.
    ///
    /// # Panics
    ///
    /// If the server cannot be started.
    pub async fn start() -> Self {
        Self::options().start().await
    }

    /// Returns the default options.
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    /// Returns the port, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the URL, with the password if the server has one.
    pub fn url(&self) -> String {
        self.url_at("127.0.0.1")
    }

    /// Returns the URL with another name of the same machine.
    pub fn url_at(&self, host: &str) -> String {
        let user = self
            .options
            .password
            .as_ref()
            .map(|password| format!(":{}@", utf8_percent_encode(password, NON_ALPHANUMERIC)));
        format!("redis://{}{host}:{}", user.unwrap_or_default(), self.port())
    }

    /// Returns the URL for TLS.
    ///
    /// # Panics
    ///
    /// If the server was started without [TLS](RedisOptions::tls).
    pub fn tls_url(&self) -> String {
        let port = self.tls_port.as_ref().expect("a server that speaks TLS");
        format!("rediss://localhost:{}", port.number())
    }

    /// Returns the port by which the other members of a cluster know the server. In a cluster with TLS it is the
    /// port for TLS.
    pub(crate) fn member_port(&self) -> u16 {
        self.tls_port.as_ref().unwrap_or(&self.port).number()
    }

    /// Returns the path of the Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir().join("redis.sock")
    }

    /// Returns the directory of the server's files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the id of the server's process.
    ///
    /// # Panics
    ///
    /// If the server does not run.
    pub fn process_id(&self) -> i32 {
        self.process.as_ref().expect("a server that runs").id()
    }

    /// Returns whether the server can answer: it is neither killed nor frozen.
    pub fn is_up(&self) -> bool {
        self.process.is_some() && !self.frozen
    }

    /// Connects a [`Probe`] to the server.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn probe(&self) -> Probe {
        let url = self.url();
        // A sentinel closes all connections to a server whose role it changes, and perhaps this one.
        let deadline = Instant::now() + RECONNECT;
        loop {
            match Probe::connect(&url).await {
                Err(error) if error.is_connection_dropped() && Instant::now() < deadline => {}
                connected => return connected.expect("a connection to the server"),
            }
        }
    }

    /// Stops the process (SIGSTOP). The kernel still accepts connections, but the server does not answer.
    pub fn freeze(&mut self) {
        let process = self.process.as_ref().expect("a server that runs");
        process.stop(START).expect("SIGSTOP");
        self.frozen = true;
    }

    /// Continues the process (SIGCONT) after [`freeze`](Self::freeze).
    pub fn thaw(&mut self) {
        let process = self.process.as_ref().expect("a server that runs");
        process.signal(Signal::CONT).expect("SIGCONT");
        self.frozen = false;
    }

    /// Kills the process (SIGKILL) and waits until it has ended.
    pub fn kill(&mut self) {
        self.process.take().expect("a server that runs").kill();
        self.frozen = false;
    }

    /// Shuts the server down (SIGTERM), so that it writes its data to disk if it has persistence.
    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("a server that runs");
        process.signal(Signal::TERM).expect("SIGTERM");
        let status = process.wait(START).expect("the server's exit status");
        assert!(status.is_some(), "the server did not end at SIGTERM");
    }

    /// Starts the server again on the same port with the same files, after [`kill`](Self::kill) or
    /// [`stop`](Self::stop). Kills the process first if it still runs.
    pub async fn restart(&mut self) {
        self.restart_until(Stage::Serves).await;
    }

    /// As [`restart`](Self::restart), but does not wait until the server has loaded its data.
    pub async fn restart_loading(&mut self) {
        self.restart_until(Stage::Answers).await;
    }

    /// As [`restart`](Self::restart), with one more directive, which applies to this start only.
    pub async fn restart_with(&mut self, name: &str, value: &str) {
        let options = self.options.clone();
        self.options = options.clone().directive(name, value);
        self.restart().await;
        self.options = options;
    }

    async fn restart_until(&mut self, stage: Stage) {
        if self.process.is_some() {
            self.kill();
        }
        let deadline = Instant::now() + START;
        loop {
            match self.launch(stage).await {
                Ok(()) => return,
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {}
                Err(error) => panic!("redis-server did not start again: {error}"),
            }
        }
    }

    async fn launch(&mut self, stage: Stage) -> io::Result<()> {
        let log = self.dir.path().join("redis.log");
        // The search for an error below must not find messages of an earlier start.
        let _ = std::fs::remove_file(&log);
        let url = self.url();
        let process = Process::start(&program(), self.arguments(), &[], &log)?;
        let process = self.process.insert(process);
        let deadline = Instant::now() + START;
        loop {
            // Check the process id too: another process may have taken the port.
            if let Ok(mut probe) = Probe::connect(&url).await
                && let Ok(id) = probe.process_id().await
            {
                if id != process.id() {
                    self.process = None;
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                // A server that loads its data answers INFO, but not PING.
                if stage == Stage::Answers || probe.try_command::<String>(["PING"]).await.is_ok() {
                    return Ok(());
                }
            }
            if process.ended()?.is_some() {
                self.process = None;
                let log = std::fs::read_to_string(log)?;
                return Err(if log.contains("in use") {
                    io::ErrorKind::AddrInUse.into()
                } else {
                    io::Error::other(log)
                });
            }
            if Instant::now() >= deadline {
                self.process = None;
                let log = std::fs::read_to_string(log)?;
                return Err(io::Error::new(io::ErrorKind::TimedOut, log));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn arguments(&self) -> Vec<OsString> {
        let dir = self.dir.path();
        let port = self.port().to_string();
        let mut arguments: Vec<OsString> = vec!["--bind".into(), "127.0.0.1".into()];
        for (name, value) in [
            ("--port", port.as_ref()),
            ("--unixsocket", self.socket().as_os_str()),
            ("--dir", dir.as_os_str()),
            ("--save", "".as_ref()),
            ("--appendonly", "no".as_ref()),
        ] {
            arguments.extend([name.into(), value.to_owned()]);
        }
        if let Some(port) = &self.tls_port {
            arguments.extend(["--tls-port".into(), port.number().to_string().into()]);
        }
        arguments.extend(self.options.arguments.iter().map(OsString::from));
        arguments
    }
}
