//! PostgreSQL servers.

mod files;
mod locks;
mod pgbouncer;
mod replica;
#[cfg(test)]
mod self_tests;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use redlock_core::postgres_schema;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

use crate::port::Port;
use crate::process::Process;
use crate::scratch::{scratch, scratch_in_memory};
use files::Installation;
pub use pgbouncer::PgBouncer;

/// The longest time for a start or an end, on a machine that is busy with other tests.
const START: Duration = Duration::from_secs(60);

/// The options of a [`PostgresServer`].
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    settings: Vec<(String, String)>,
    password: Option<String>,
    tls: Option<[PathBuf; 2]>,
    schema: Option<String>,
    independent: bool,
    on_disk: bool,
}

/// The default schema of the table of locks.
const SCHEMA: &str = "locks";

impl PostgresOptions {
    /// Sets a parameter of `postgresql.conf`, such as `"max_connections", "10"`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Puts the data on a disk, although the memory would have space for it. A commit takes the time of a disk then.
    #[must_use]
    pub fn on_disk(mut self) -> Self {
        self.on_disk = true;
        self
    }

    /// Sets the password of the role `app`, which then needs it (scram-sha-256). It must be a word that the tests use for
    /// nothing else, because from now on no log line may contain it.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        redlock_logs::remember_password(password);
        self.password = Some(password.to_owned());
        self
    }

    /// Makes the server require TLS over TCP, with the certificate and the key in these files (PEM).
    #[must_use]
    pub fn tls(mut self, certificate: &Path, key: &Path) -> Self {
        self.tls = Some([certificate.to_owned(), key.to_owned()]);
        self
    }

    /// Sets the schema of the table of locks. Defaults to `locks`.
    #[must_use]
    pub fn schema(mut self, schema: &str) -> Self {
        self.schema = Some(schema.to_owned());
        self
    }

    /// Gives the server a system identifier of its own, as one node of several needs it. By default, it has that of the
    /// data that all servers copy.
    #[must_use]
    pub fn independent(mut self) -> Self {
        self.independent = true;
        self
    }

    /// Starts the server; see [`PostgresServer::start`].
    ///
    /// # Errors
    ///
    /// PostgreSQL, or the user to run it as, does not exist on this machine. The error is the reason.
    pub async fn start(self) -> Result<PostgresServer, String> {
        let installation = Installation::find()?;
        let independent = self.independent;
        let make_data = |data: &Path| {
            installation.copy_template(data);
            if independent {
                installation.identify(data);
            }
        };
        let server = PostgresServer::launch_new(self, installation, make_data).await;
        server.make_roles();
        Ok(server)
    }
}

/// A PostgreSQL server with its own port and its own data folder. It listens on 127.0.0.1 and on a Unix socket. Dropping
/// the value ends the server and removes its data.
///
/// The superuser `postgres` connects by the socket and needs no password. The role `app` connects by TCP, and has the
/// rights that locks need.
#[derive(Debug)]
pub struct PostgresServer {
    // Dropped first: the server ends before its files disappear.
    process: Option<Process>,
    options: PostgresOptions,
    installation: &'static Installation,
    port: Port,
    dir: TempDir,
    frozen: bool,
}

impl PostgresServer {
    /// Starts a server with the default options and waits until it accepts connections.
    ///
    /// # Errors
    ///
    /// PostgreSQL, or the user to run it as, does not exist on this machine. The error is the reason.
    ///
    /// # Panics
    ///
    /// If the server cannot be started.
    pub async fn start() -> Result<Self, String> {
        Self::options().start().await
    }

    /// Returns the default options.
    pub fn options() -> PostgresOptions {
        PostgresOptions::default()
    }

    /// Returns the port, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the URL of the role `app`, with its password and the schema of the locks.
    pub fn url(&self) -> String {
        self.url_at("127.0.0.1", self.port())
    }

    /// Returns the URL with another address, such as the one of a [`Proxy`](crate::Proxy).
    pub fn url_at(&self, host: &str, port: u16) -> String {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let password =
            self.options.password.as_deref().map(|password| format!(":{}", encoded(password)));
        let schema = encoded(self.schema());
        let password = password.unwrap_or_default();
        format!("postgres://app{password}@{host}:{port}/postgres?schema={schema}")
    }

    /// Returns the connection string of the superuser.
    pub fn admin_url(&self) -> String {
        format!("host={} port={} user=postgres", self.data().display(), self.port())
    }

    /// Connects as the superuser.
    ///
    /// # Panics
    ///
    /// If the server does not accept the connection.
    pub async fn admin(&self) -> Client {
        self.try_admin().await.expect("a connection to the server")
    }

    async fn try_admin(&self) -> Result<Client, tokio_postgres::Error> {
        let config: Config = self.admin_url().parse()?;
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Ends all connections of a role by `pg_terminate_backend`. Returns how many there were.
    pub async fn terminate_backends(&self, role: &str) -> usize {
        let sql = "select pg_terminate_backend(pid) from pg_stat_activity where usename = $1";
        self.admin().await.query(sql, &[&role]).await.expect("the connections").len()
    }

    /// Returns the processes behind the connections of nodes, the lowest first.
    pub async fn sessions(&self) -> Vec<i32> {
        let sql =
            "select pid from pg_stat_activity where application_name = 'redlock' order by pid";
        let sessions = self.admin().await.query(sql, &[]).await.expect("the connections");
        sessions.iter().map(|session| session.get(0)).collect()
    }

    /// Returns the log of the server since its last start.
    ///
    /// # Panics
    ///
    /// If the log cannot be read.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).expect("the log of the server")
    }

    /// Returns whether the server can answer: it is neither killed nor frozen.
    pub fn is_up(&self) -> bool {
        self.process.is_some() && !self.frozen
    }

    /// Stops all processes of the server (SIGSTOP). The kernel still accepts connections, but the server does not answer.
    pub fn freeze(&mut self) {
        let process = self.process();
        process.stop_with_children(START).expect("SIGSTOP");
        self.frozen = true;
    }

    /// Continues the server (SIGCONT) after [`freeze`](Self::freeze).
    pub fn thaw(&mut self) {
        let process = self.process();
        process.continue_with_children().expect("SIGCONT");
        self.frozen = false;
    }

    /// Kills the server's first process (SIGKILL), and waits until the others have ended too. They notice it and end by
    /// themselves, perhaps after the statement that they execute.
    pub fn kill(&mut self) {
        let process = self.process.take().expect("a server that runs");
        process.kill_with_children(START).expect("the end of the server");
        self.frozen = false;
    }

    /// Shuts the server down in order (SIGINT).
    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("a server that runs");
        process.signal(Signal::INT).expect("SIGINT");
        let status = process.wait(START).expect("the server's exit status");
        assert!(status.is_some(), "the server did not end at SIGINT");
    }

    /// Starts the server again on the same port with the same data, after [`kill`](Self::kill) or [`stop`](Self::stop).
    /// Kills the server first if it still runs.
    pub async fn restart(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
        let deadline = Instant::now() + START;
        while let Err(error) = self.launch().await {
            let is_taken = error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline;
            assert!(is_taken, "PostgreSQL did not start again: {error}");
        }
    }

    /// Copies the data of a server that does not run, for [`restore`](Self::restore).
    pub fn back_up(&self) {
        assert!(self.process.is_none(), "the files of a server that runs change");
        files::copy(&self.data(), &self.dir.path().join("backup"));
    }

    /// Replaces the data of a server that does not run by its [backup](Self::back_up).
    ///
    /// # Panics
    ///
    /// If there is no backup.
    pub fn restore(&self) {
        assert!(self.process.is_none(), "the server uses its files");
        self.remove_shared_memory();
        std::fs::remove_dir_all(self.data()).expect("the data of the server");
        std::fs::rename(self.dir.path().join("backup"), self.data()).expect("a backup");
    }

    fn schema(&self) -> &str {
        self.options.schema.as_deref().unwrap_or(SCHEMA)
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("a server that runs")
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Returns the ID of the segment of shared memory that the server has, or has had when it was killed.
    fn shared_memory(&self) -> Option<String> {
        let lock = std::fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        // The seventh line is the key and the ID of the segment.
        lock.lines().nth(6)?.split_whitespace().nth(1).map(str::to_owned)
    }

    /// Removes the shared memory that a killed server has left. The kernel keeps it until the next start with the same data,
    /// and has a limit of 4096 segments.
    fn remove_shared_memory(&self) {
        if let Some(id) = self.shared_memory() {
            // Without the program, the segment stays.
            let _ = Command::new("ipcrm").args(["-m", &id]).status();
        }
    }

    /// Starts a server with the files that `make_data` makes.
    async fn launch_new(
        options: PostgresOptions,
        installation: &'static Installation,
        make_data: impl Fn(&Path),
    ) -> Self {
        redlock_logs::watch();
        let dir = if options.on_disk { scratch() } else { scratch_in_memory() };
        files::traversable(dir.path());
        let port = Port::reserve();
        let mut server = Self { process: None, options, installation, port, dir, frozen: false };
        make_data(&server.data());
        server.configure();
        loop {
            match server.launch().await {
                Ok(()) => return server,
                // Another process has taken the port.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    server.port = Port::reserve();
                }
                Err(error) => panic!("PostgreSQL did not start: {error}"),
            }
        }
    }

    /// Writes the rules of access and the files of TLS.
    fn configure(&self) {
        let data = self.data();
        let host = if self.options.tls.is_some() { "hostssl" } else { "host" };
        let method = if self.options.password.is_some() { "scram-sha-256" } else { "trust" };
        let rules = format!(
            "local all postgres trust\nlocal replication postgres trust\n\
             {host} all app 127.0.0.1/32 {method}\n"
        );
        std::fs::write(data.join("pg_hba.conf"), rules).expect("the rules of access");
        for (file, source) in
            ["server.crt", "server.key"].iter().zip(self.options.tls.iter().flatten())
        {
            let path = data.join(file);
            let _ = std::fs::remove_file(&path);
            std::fs::copy(source, &path).expect("a file of TLS");
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&path, private).expect("permissions");
            self.installation.own(&path);
        }
    }

    fn make_roles(&self) {
        let password = self.options.password.as_deref();
        let password =
            password.map(|password| format!(" password '{}'", password.replace('\'', "''")));
        let (schema, password) = (self.schema(), password.unwrap_or_default());
        let sql = format!(
            "create role app login{password}; {}; {}; grant usage on schema \"{schema}\" to app; \
             grant select, insert, update, delete on all tables in schema \"{schema}\" to app",
            postgres_schema(schema),
            redlock_axum::postgres_answers_schema(schema),
        );
        self.psql(&sql);
    }

    /// Changes the password of the role `app`. It must be a word as that of [`PostgresOptions::password`].
    pub fn set_password(&self, password: &str) {
        redlock_logs::remember_password(password);
        self.psql(&format!("alter role app password '{}'", password.replace('\'', "''")));
    }

    /// Executes statements with a password, which tokio-postgres would log.
    fn psql(&self, sql: &str) {
        let (data, port) = (self.data().display().to_string(), self.port().to_string());
        let arguments = ["-X", "-q", "-U", "postgres", "-h", &data, "-p", &port, "-c", sql];
        self.installation.run("psql", &arguments);
    }

    async fn launch(&mut self) -> io::Result<()> {
        let log = self.dir.path().join("log");
        // The search for an error below must not find messages of an earlier start.
        let _ = std::fs::remove_file(&log);
        let (program, mut arguments) = self.installation.program("postgres".as_ref());
        arguments.extend(self.arguments());
        self.process = Some(Process::start(&program, arguments, &[], &log)?);
        let deadline = Instant::now() + START;
        while self.try_admin().await.is_err() {
            let ended = self.process.as_mut().map(Process::ended).transpose()?.flatten();
            if ended.is_some() || Instant::now() >= deadline {
                self.process = None;
                let log = std::fs::read_to_string(log)?;
                return Err(if log.contains("Address already in use") {
                    io::ErrorKind::AddrInUse.into()
                } else {
                    io::Error::other(log)
                });
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    fn arguments(&self) -> Vec<OsString> {
        let data = self.data();
        let tls = if self.options.tls.is_some() { "on" } else { "off" };
        let port = self.port().to_string();
        let fixed = [
            ("port", port.as_str()),
            ("listen_addresses", "127.0.0.1"),
            ("wal_level", "replica"),
            ("max_wal_size", "1GB"),
            // In the data folder, because a killed server leaves its segments in /dev/shm.
            ("dynamic_shared_memory_type", "mmap"),
            ("ssl", tls),
        ];
        let given = self.options.settings.iter().map(|(name, value)| (&**name, &**value));
        let settings = fixed.into_iter().chain(given);
        let mut arguments: Vec<OsString> = settings
            .flat_map(|(name, value)| ["-c".into(), format!("{name}={value}").into()])
            .collect();
        arguments.extend(["-k".into(), data.clone().into(), "-D".into(), data.into()]);
        arguments
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // Its files disappear after the last process that may write them.
        if let Some(process) = self.process.take() {
            let _ = process.kill_with_children(START);
        }
        self.remove_shared_memory();
    }
}
