//! The memory of a running process.

use std::fmt;

const MIB: u64 = 1024 * 1024;

/// How much memory a process has in use, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The memory that is resident now.
    pub resident: u64,
    /// The most memory that was resident at any time.
    pub peak: u64,
}

impl Memory {
    /// Reads `/proc`; `None` if the process does not exist, or the system has no `/proc`.
    pub fn of(process: i32) -> Option<Self> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
        };
        Some(Self { resident: value("VmRSS:")?, peak: value("VmHWM:")? })
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB resident, {} MiB at most", self.resident / MIB, self.peak / MIB)
    }
}

/// Returns the resident memory of a process, in bytes; `None` as for [`Memory::of`].
pub fn resident(process: i32) -> Option<u64> {
    Memory::of(process).map(|memory| memory.resident)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_running_process_is_known() {
        let own = i32::try_from(std::process::id()).unwrap();
        let memory = Memory::of(own).unwrap();
        assert!(memory.resident > 0 && memory.peak >= memory.resident, "{memory:?}");
        assert_eq!(Memory::of(i32::MAX), None);
    }
}
