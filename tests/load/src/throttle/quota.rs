//! Throttling by a control group of Linux.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A control group of its own for one process, with 20 ms of processor time in every 100 ms.
#[derive(Debug)]
pub(super) struct Quota {
    process: i32,
    former: PathBuf,
    group: PathBuf,
}

/// A hierarchy of control groups that can limit processor time.
struct Hierarchy {
    /// Where the hierarchy is mounted.
    root: &'static str,
    /// How the line of the hierarchy in `/proc/<id>/cgroup` is recognized, by its second field.
    line: fn(&str) -> bool,
    /// The file that takes the limit.
    file: &'static str,
    limit: &'static str,
}

const HIERARCHIES: [Hierarchy; 2] = [
    // Version 2. The kernel's period is 100 ms unless another is set, as it is in version 1.
    Hierarchy {
        root: "/sys/fs/cgroup",
        line: str::is_empty,
        file: "cpu.max",
        limit: "20000 100000",
    },
    // Version 1.
    Hierarchy {
        root: "/sys/fs/cgroup/cpu",
        line: |controllers| controllers.split(',').any(|controller| controller == "cpu"),
        file: "cpu.cfs_quota_us",
        limit: "20000",
    },
];

impl Quota {
    pub(super) fn set(process: i32) -> io::Result<Self> {
        let groups = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
        let mut error = io::Error::from(io::ErrorKind::Unsupported);
        for hierarchy in &HIERARCHIES {
            match Self::set_in(hierarchy, &groups, process) {
                Ok(quota) => return Ok(quota),
                Err(other) => error = other,
            }
        }
        Err(error)
    }

    fn set_in(hierarchy: &Hierarchy, groups: &str, process: i32) -> io::Result<Self> {
        let former = groups.lines().find_map(|line| {
            let (_, line) = line.split_once(':')?;
            let (controllers, path) = line.split_once(':')?;
            (hierarchy.line)(controllers).then(|| path.trim_start_matches('/'))
        });
        let root = Path::new(hierarchy.root);
        let former = root.join(former.ok_or(io::ErrorKind::Unsupported)?);
        let group = root.join(format!("redlock-load-{process}"));
        fs::create_dir(&group)?;
        let quota = Self { process, former, group };
        // Where the limit cannot be set, the group is removed again by the drop.
        write(&quota.group.join(hierarchy.file), hierarchy.limit)?;
        write(&quota.group.join("cgroup.procs"), &process.to_string())?;
        Ok(quota)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // The process may have ended. A group without processes can be removed.
        let _ = write(&self.former.join("cgroup.procs"), &self.process.to_string());
        let _ = fs::remove_dir(&self.group);
    }
}

/// Writes to a file that exists: in a hierarchy without the controller it does not.
fn write(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;

    fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}
