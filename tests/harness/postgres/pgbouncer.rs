//! The connection pooler pgbouncer.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::files::{Installation, traversable};
use super::{PostgresServer, START};
use crate::eventually::eventually;
use crate::port::Port;
use crate::process::Process;
use crate::scratch::scratch;

/// The pause before a signal is sent again.
const RESTART: Duration = Duration::from_millis(200);

/// A pgbouncer in front of a [`PostgresServer`]. Dropping the value ends the process.
#[derive(Debug)]
pub struct PgBouncer {
    process: Process,
    /// The program and its arguments.
    command: (OsString, Vec<OsString>),
    port: Port,
    url: String,
    dir: TempDir,
}

impl PgBouncer {
    /// Starts a pgbouncer in transaction mode, and waits until it accepts connections.
    ///
    /// # Errors
    ///
    /// There is no pgbouncer on this machine. The error is the reason.
    ///
    /// # Panics
    ///
    /// If the process cannot be started.
    pub async fn start(server: &PostgresServer) -> Result<Self, String> {
        Self::start_with(server, "pool_mode = transaction").await
    }

    /// As [`start`](Self::start), with these lines of the configuration.
    ///
    /// # Errors
    ///
    /// There is no pgbouncer on this machine. The error is the reason.
    ///
    /// # Panics
    ///
    /// If the process cannot be started.
    pub async fn start_with(server: &PostgresServer, settings: &str) -> Result<Self, String> {
        let program = program().ok_or("pgbouncer is missing")?;
        let installation = Installation::find()?;
        let dir = scratch();
        traversable(dir.path());
        let folder = dir.path().join("pgbouncer");
        installation.folder(&folder);
        let port = Port::reserve();
        let (number, path) = (port.number(), folder.display());
        let password = server.options.password.as_deref();
        let method = if password.is_some() { "scram-sha-256" } else { "trust" };
        let configuration = format!(
            "[databases]\npostgres = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {number}\nunix_socket_dir =\nauth_type = {method}\nauth_file = {path}/users\n{settings}\n",
            server.port()
        );
        let users = format!("\"app\" \"{}\"\n", password.unwrap_or_default().replace('"', "\"\""));
        for (name, text) in [("users", users), ("ini", configuration)] {
            let file = folder.join(name);
            std::fs::write(&file, text).expect("a file");
            installation.own(&file);
        }
        let mut command = installation.program(&program);
        command.1.push(folder.join("ini").into());
        let process = Self::launch(&command, dir.path(), number).await;
        Ok(Self { process, command, url: server.url_at("127.0.0.1", number), port, dir })
    }

    async fn launch(
        (program, arguments): &(OsString, Vec<OsString>),
        dir: &Path,
        port: u16,
    ) -> Process {
        let log = dir.join("log");
        let mut process = Process::start(program, arguments, &[], &log).expect("a process");
        eventually("pgbouncer accepts connections", START, async || {
            let ended = process.ended().expect("the state of the process").is_some();
            assert!(!ended, "{}", std::fs::read_to_string(&log).unwrap_or_default());
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()
        })
        .await;
        process
    }

    /// Ends the process by SIGKILL, or in order by SIGTERM, and starts it again on the same port.
    ///
    /// # Panics
    ///
    /// If the process does not end or start.
    pub async fn restart(&mut self, is_killed: bool) {
        let signal = if is_killed { Signal::KILL } else { Signal::TERM };
        // Since pgbouncer 1.23, the first SIGTERM waits for the clients.
        eventually("pgbouncer ends", START, async || {
            self.process.signal(signal).expect("a signal");
            self.process.wait(RESTART).expect("its exit status")
        })
        .await;
        self.process = Self::launch(&self.command, self.dir.path(), self.port()).await;
    }

    /// Returns the port, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the [URL](PostgresServer::url) of the server through this pooler.
    pub fn session_url(&self) -> String {
        self.url.clone()
    }

    /// Returns the URL with the parameter that a pooler in transaction mode needs.
    pub fn url(&self) -> String {
        format!("{}&pooler=transaction", self.url)
    }
}

/// Returns the program. Debian puts it into a folder that is not in the `PATH` of every user.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|folder| folder.join("pgbouncer"))
        .find(|program| program.exists())
}
