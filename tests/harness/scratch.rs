//! Directories that do not outlive the test process, however it ends.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use rustix::fs::statvfs;
use rustix::process::getppid;
use tempfile::TempDir;

/// Removes a directory when standard input ends. The kernel closes that pipe when this process dies for any reason. A
/// server that is being killed may still create files for a moment.
const CLEAN_UP: &str = r#"
read -r _
for _ in 1 2 3 4 5; do
    rm -rf "$1" && exit
    sleep 1
done
"#;

static ON_DISK: LazyLock<Root> = LazyLock::new(|| {
    end_with_parent();
    Root::in_folder(&std::env::temp_dir()).expect("a directory for this process")
});

static IN_MEMORY: LazyLock<Option<Root>> = LazyLock::new(|| {
    let folder = Path::new("/dev/shm");
    let space = statvfs(folder).ok()?;
    (space.f_bavail * space.f_frsize >= ENOUGH).then(|| Root::in_folder(folder).ok())?
});

/// The space in memory that the servers of all tests may need at once. A container may have much less.
const ENOUGH: u64 = 2 << 30;

/// The directory of this process, which contains all others.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    _clean_up: ChildStdin,
}

impl Root {
    fn in_folder(folder: &Path) -> std::io::Result<Self> {
        // By this name, `tests/run.sh` finds the servers that its tests left behind.
        let run = std::env::var("REDLOCK_TEST_RUN").unwrap_or_default();
        let dir = tempfile::Builder::new()
            .prefix(&format!("redlock-test-{run}-"))
            // PostgreSQL runs as another user.
            .permissions(Permissions::from_mode(0o711))
            .tempdir_in(folder)?;
        let mut clean_up = Command::new("/bin/sh")
            .args(["-c", CLEAN_UP, "clean-up"])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A signal to the group of this process, such as by Ctrl-C, must not end the clean-up.
            .process_group(0)
            .spawn()?;
        let stdin = clean_up.stdin.take().expect("a pipe");
        Ok(Self { path: dir.keep(), _clean_up: stdin })
    }

    fn dir(&self) -> TempDir {
        tempfile::tempdir_in(&self.path).expect("a directory")
    }
}

/// Creates a directory. It is removed when the value is dropped, or when this process ends.
pub(crate) fn scratch() -> TempDir {
    ON_DISK.dir()
}

/// Creates a directory in memory if possible, so that servers that write to its files do not wait for a disk. The files
/// outlive a server that is killed.
pub(crate) fn scratch_in_memory() -> TempDir {
    IN_MEMORY.as_ref().unwrap_or_else(|| &ON_DISK).dir()
}

/// Ends this process when the process that started it ends, as a killed test runner does.
pub fn end_with_parent() {
    let parent = getppid();
    std::thread::spawn(move || {
        while getppid() == parent {
            std::thread::sleep(Duration::from_secs(1));
        }
        std::process::exit(1);
    });
}
