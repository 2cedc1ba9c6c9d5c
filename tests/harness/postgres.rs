//! A PostgreSQL server for one test.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::eventually::eventually;
use crate::process::Process;
use crate::scratch::scratch;

const START: Duration = Duration::from_secs(60);

/// A PostgreSQL server that listens on a Unix socket in a temporary folder. Dropping the value ends the
/// server and removes its data.
#[derive(Debug)]
pub struct Postgres {
    _process: Process,
    dir: TempDir,
}

impl Postgres {
    /// Starts a server.
    ///
    /// # Errors
    ///
    /// PostgreSQL, or the user to run it as, does not exist on this machine. The error is the reason.
    ///
    /// # Panics
    ///
    /// If the server cannot be started.
    pub async fn start() -> Result<Self, String> {
        let programs = programs().ok_or("PostgreSQL's initdb and postgres are missing")?;
        let dir = scratch();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).expect("a directory for the data");
        let user = user(dir.path(), &data)?;

        let mut initdb = as_user(user, &programs.join("initdb"));
        initdb.args(["-U", "postgres", "-A", "trust", "--no-sync", "-D"]).arg(&data);
        let output = initdb.output().expect("initdb");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

        let server = as_user(user, &programs.join("postgres"));
        let mut arguments: Vec<_> = server.get_args().map(ToOwned::to_owned).collect();
        let settings = ["-c", "listen_addresses=", "-c", "fsync=off", "-k"];
        arguments.extend(settings.map(Into::into));
        arguments.extend([data.clone().into(), "-D".into(), data.into()]);
        let log = dir.path().join("log");
        let program = server.get_program();
        let process = Process::start(program, arguments, &[], &log);
        let server = Self { _process: process.expect("the server's process"), dir };
        eventually("PostgreSQL answers", START, async || {
            let connected = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await;
            connected.ok().map(drop)
        })
        .await;
        Ok(server)
    }

    /// Returns the connection string.
    pub fn url(&self) -> String {
        format!("host={} user=postgres", self.dir.path().join("data").display())
    }
}

/// Returns the folder of the server's programs. Debian does not put it into `PATH`.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut debian: Vec<_> = debian.flatten().map(|entry| entry.path().join("bin")).collect();
    debian.sort();
    std::env::split_paths(&path)
        .chain(debian.into_iter().rev())
        .find(|folder| folder.join("postgres").exists() && folder.join("initdb").exists())
}

/// Returns the user and the group to run the server as, and makes them the owner of the data; `None` for the
/// current user. PostgreSQL refuses to run as root.
fn user(dir: &Path, data: &Path) -> Result<Option<(u32, u32)>, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let id = |option| {
        let output = Command::new("id").args([option, "postgres"]).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    let (Some(user), Some(group)) = (id("-u"), id("-g")) else {
        return Err("PostgreSQL does not run as root, and there is no user postgres".to_owned());
    };
    let traversable = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(dir, traversable).expect("permissions");
    chown(data, Some(user), Some(group)).expect("an owner of the data");
    Ok(Some((user, group)))
}

fn as_user(user: Option<(u32, u32)>, program: &Path) -> Command {
    let Some((user, group)) = user else { return Command::new(program) };
    // `setpriv` replaces itself by the program (exec), so that its process id is the program's.
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={group}")]);
    command.arg("--clear-groups").arg(program);
    command
}
