//! `PgAdvisoryLock` of sqlx, and its server.

use std::future::pending;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use sqlx::postgres::{PgAdvisoryLock, PgConnection};
use sqlx::{Connection, Row};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::holder::{KEY, cancel};
use crate::server::free_port;

pub struct Postgres {
    port: u16,
    _process: Child,
    _folder: TempDir,
}

/// Returns the command of a program of PostgreSQL. It refuses to run as root.
fn program(name: &str) -> Command {
    let mut folders: Vec<PathBuf> =
        std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    let path =
        folders.into_iter().map(|folder| folder.join(name)).find(|path| path.exists()).unwrap();
    let own = std::fs::metadata("/proc/self").unwrap();
    if std::os::unix::fs::MetadataExt::uid(&own) == 0 {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(path);
        return command;
    }
    Command::new(path)
}

impl Postgres {
    pub async fn start() -> Self {
        let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder.path(), all).unwrap();
        let data = folder.path().join("data");
        let mut init = program("initdb");
        init.args(["--auth=trust", "--no-sync", "--username=trial", "-D"])
            .arg(&data)
            .stdout(Stdio::null());
        assert!(init.status().await.unwrap().success());
        let mut server = program("postgres");
        server.arg("-D").arg(&data).args([
            "-p",
            &port.to_string(),
            "-c",
            "listen_addresses=127.0.0.1",
            "-k",
            "",
        ]);
        server.stderr(Stdio::null()).kill_on_drop(true);
        let started = Self { port, _process: server.spawn().unwrap(), _folder: folder };
        while PgConnection::connect(&started.url()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        started
    }

    pub fn url(&self) -> String {
        format!("postgres://trial@127.0.0.1:{}/postgres", self.port)
    }

    async fn number(&self, query: &'static str) -> i64 {
        let mut connection = PgConnection::connect(&self.url()).await.unwrap();
        sqlx::query(query).fetch_one(&mut connection).await.unwrap().get(0)
    }

    pub async fn is_locked(&self) -> bool {
        self.number("select count(*) from pg_locks where locktype = 'advisory' and granted").await
            > 0
    }

    pub async fn take_away(&self) {
        self.number(
            "select count(pg_terminate_backend(pid)) from pg_locks where locktype = 'advisory'",
        )
        .await;
    }

    /// Returns another session with the lock.
    pub async fn hold(&self) -> PgConnection {
        let mut connection = PgConnection::connect(&self.url()).await.unwrap();
        PgAdvisoryLock::new(KEY).acquire(&mut connection).await.unwrap().leak();
        connection
    }
}

/// A lock of the session, over a connection that lives on, as those of a pool do.
pub async fn run(url: &str, work: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let lock = PgAdvisoryLock::new(KEY);
    match work {
        "cancel" => cancel(lock.acquire(&mut connection)).await,
        "drop" => {
            drop(lock.acquire(&mut connection).await.unwrap());
            println!("dropped");
        }
        _ => {
            let _guard = lock.acquire(&mut connection).await.unwrap();
            println!("held");
            pending::<()>().await;
        }
    }
    pending::<()>().await;
}
