//! The programs of PostgreSQL, the user that runs them, and the files of a new server.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::scratch::scratch;

/// The programs that the harness runs.
const PROGRAMS: [&str; 5] = ["postgres", "initdb", "psql", "pg_basebackup", "pg_resetwal"];

/// The programs of PostgreSQL, and the user that runs them.
#[derive(Debug)]
pub(super) struct Installation {
    folder: PathBuf,
    /// The ids of the user and of its group; `None` for the current user.
    user: Option<(u32, u32)>,
    /// A data folder that no server has used.
    template: PathBuf,
}

impl Installation {
    /// Finds the installation, and makes the template on the first call.
    ///
    /// # Errors
    ///
    /// PostgreSQL, or the user to run it as, does not exist on this machine. The error is the reason.
    pub(super) fn find() -> Result<&'static Self, String> {
        static FOUND: OnceLock<Result<Installation, String>> = OnceLock::new();
        FOUND.get_or_init(Self::search).as_ref().map_err(Clone::clone)
    }

    fn search() -> Result<Self, String> {
        let folder = programs().ok_or(
            "PostgreSQL's postgres, initdb, psql, pg_basebackup or pg_resetwal is missing",
        )?;
        let mut installation = Self { folder, user: user()?, template: PathBuf::new() };
        installation.template = installation.make_template();
        Ok(installation)
    }

    /// Returns a program and its first arguments, which run it as the user of the servers.
    pub(super) fn program(&self, program: &Path) -> (OsString, Vec<OsString>) {
        // `Path::join` keeps an absolute path.
        let program = self.folder.join(program).into_os_string();
        let Some((user, group)) = self.user else { return (program, Vec::new()) };
        // `setpriv` replaces itself by the program (exec), so that its process id is the program's.
        let ids = [format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".into()];
        let arguments = ids.into_iter().map(OsString::from).chain([program]);
        ("setpriv".into(), arguments.collect())
    }

    /// Runs a program of PostgreSQL to its end.
    pub(super) fn run<A: AsRef<OsStr>>(&self, program: &str, arguments: &[A]) {
        let (command, first) = self.program(program.as_ref());
        run(Command::new(command).args(first).args(arguments));
    }

    /// Makes the user of the servers the owner of a file or folder.
    pub(super) fn own(&self, path: &Path) {
        if let Some((user, group)) = self.user {
            chown(path, Some(user), Some(group)).expect("an owner");
        }
    }

    /// Creates a folder that the user of the servers can write to.
    pub(super) fn folder(&self, path: &Path) {
        std::fs::create_dir(path).expect("a folder");
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(path, private).expect("permissions");
        self.own(path);
    }

    /// Makes a data folder for a new server.
    pub(super) fn copy_template(&self, data: &Path) {
        copy(&self.template, data);
    }

    /// Gives a data folder, which no server uses, a system identifier of its own. All copies of the template have the same.
    pub(super) fn identify(&self, data: &Path) {
        let control = data.join("global/pg_control");
        let mut bytes = std::fs::read(&control).expect("the control file");
        // The identifier comes first.
        bytes[..8].copy_from_slice(&rand::random::<[u8; 8]>());
        std::fs::write(&control, bytes).expect("the control file");
        // Corrects the checksum, and writes the identifier into the log.
        self.run("pg_resetwal", &["-f".as_ref(), "-D".as_ref(), data.as_os_str()]);
    }

    /// Returns the data folder that all test processes copy, because `initdb` takes half a second. It stays in the target
    /// folder.
    fn make_template(&self) -> PathBuf {
        let postgres = self.folder.join("postgres");
        let version = Command::new(postgres).arg("--version").output().expect("postgres --version");
        let version = String::from_utf8_lossy(&version.stdout);
        let version: String = version.chars().filter(char::is_ascii_alphanumeric).collect();
        let test = std::env::current_exe().expect("the path of this program");
        // The tests are in `deps`.
        let target = test.ancestors().nth(2).expect("the folder of the build");
        let user = self.user.map_or(0, |(user, _)| user);
        let template = target.join(format!("{version}-{user}"));
        if template.exists() {
            return template;
        }
        let dir = scratch();
        traversable(dir.path());
        let (parent, staged) = (dir.path().join("initdb"), tempfile::tempdir_in(target));
        self.folder(&parent);
        let data = parent.join("data");
        let options = "-U postgres -A trust -E UTF8 --locale=C --no-sync --wal-segsize=1 -D";
        let options = options.split(' ').map(OsStr::new).chain([data.as_os_str()]);
        self.run("initdb", &options.collect::<Vec<_>>());
        let staged = staged.expect("a folder beside the template");
        copy(&data, &staged.path().join("data"));
        // Another test process may have been faster. A folder appears under its name with all of its files.
        let renamed = std::fs::rename(staged.path().join("data"), &template);
        assert!(renamed.is_ok() || template.exists(), "{renamed:?}");
        template
    }
}

/// Lets every user pass through a folder.
pub(super) fn traversable(dir: &Path) {
    let permissions = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(dir, permissions).expect("permissions");
}

/// Copies a folder with its owners and permissions.
pub(super) fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-a").args([from, to]));
}

fn run(command: &mut Command) {
    let output = command.output().expect("a program that starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", command.get_program().display());
}

/// Returns the folder of the server's programs. Debian does not put it into `PATH`.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut debian: Vec<_> = debian.flatten().map(|entry| entry.path().join("bin")).collect();
    debian.sort();
    std::env::split_paths(&path)
        .chain(debian.into_iter().rev())
        .find(|folder| PROGRAMS.iter().all(|program| folder.join(program).exists()))
}

/// Returns the user and the group to run the servers as; `None` for the current user. PostgreSQL refuses to run as root.
fn user() -> Result<Option<(u32, u32)>, String> {
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
    Ok(Some((user, group)))
}
