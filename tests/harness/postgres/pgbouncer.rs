//! The connection pooler pgbouncer.

use std::path::PathBuf;

use tempfile::TempDir;

use super::files::{Installation, traversable};
use super::{PostgresServer, START};
use crate::eventually::eventually;
use crate::port::Port;
use crate::process::Process;
use crate::scratch::scratch;

/// A pgbouncer in transaction mode in front of a [`PostgresServer`]. Dropping the value ends the process.
#[derive(Debug)]
pub struct PgBouncer {
    process: Process,
    port: Port,
    url: String,
    _dir: TempDir,
}

impl PgBouncer {
    /// Starts a pgbouncer and waits until it accepts connections.
    ///
    /// # Errors
    ///
    /// There is no pgbouncer on this machine. The error is the reason.
    ///
    /// # Panics
    ///
    /// If the process cannot be started.
    pub async fn start(server: &PostgresServer) -> Result<Self, String> {
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
             listen_port = {number}\nunix_socket_dir =\npool_mode = transaction\nauth_type = {method}\n\
             auth_file = {path}/users\n",
            server.port()
        );
        let users = format!("\"app\" \"{}\"\n", password.unwrap_or_default().replace('"', "\"\""));
        for (name, text) in [("users", users), ("ini", configuration)] {
            let file = folder.join(name);
            std::fs::write(&file, text).expect("a file");
            installation.own(&file);
        }
        let (command, mut arguments) = installation.program(&program);
        arguments.push(folder.join("ini").into());
        let log = dir.path().join("log");
        let process = Process::start(&command, arguments, &[], &log).expect("a process");
        let mut this = Self { process, url: server.url_at("127.0.0.1", number), port, _dir: dir };
        eventually("pgbouncer accepts connections", START, async || {
            let ended = this.process.ended().expect("the state of the process").is_some();
            assert!(!ended, "{}", std::fs::read_to_string(&log).unwrap_or_default());
            tokio::net::TcpStream::connect(("127.0.0.1", number)).await.ok()
        })
        .await;
        Ok(this)
    }

    /// Returns the port, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the [URL](PostgresServer::url) of the server through this pooler, with the parameter that a pooler needs.
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
