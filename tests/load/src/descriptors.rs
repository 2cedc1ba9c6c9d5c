//! The limit of open files, which is also that of open connections.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files of this process to its hard limit. Processes that this one starts
/// from now on inherit the limit.
///
/// # Errors
///
/// The process may open fewer than `needed` files all the same.
pub fn raise_limit(needed: usize) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, raised(limit))?;
    check("this process", limit, needed)
}

/// Raises the limit of open files of a running process as far as it may be raised without privileges.
///
/// # Errors
///
/// The process is gone, or belongs to another user, or may open fewer than `needed` files all the
/// same.
#[cfg(target_os = "linux")]
pub fn raise_limit_of(process: i32, needed: usize) -> io::Result<()> {
    use rustix::process::{Pid, prlimit};

    // The call sets a limit and returns the former one, so that the hard limit has to be read first.
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits"))?;
    let maximum = limits.lines().find_map(|line| {
        let mut values = line.strip_prefix("Max open files")?.split_whitespace();
        values.nth(1)
    });
    let unreadable = || io::Error::other("the limits of the process cannot be read");
    let maximum = maximum.ok_or_else(unreadable)?.parse().ok();
    let limit = Rlimit { current: maximum, maximum };
    prlimit(Pid::from_raw(process), Resource::Nofile, limit)?;
    check("the service", limit, needed)
}

/// Does nothing: other systems do not let one process set the limits of another.
#[cfg(not(target_os = "linux"))]
pub fn raise_limit_of(_process: i32, _needed: usize) -> io::Result<()> {
    Ok(())
}

fn raised(limit: Rlimit) -> Rlimit {
    Rlimit { current: limit.maximum, maximum: limit.maximum }
}

fn check(process: &str, limit: Rlimit, needed: usize) -> io::Result<()> {
    match limit.maximum.and_then(|maximum| usize::try_from(maximum).ok()) {
        Some(maximum) if maximum < needed => Err(io::Error::other(format!(
            "{process} may open {maximum} files, and needs {needed}: raise its hard limit (ulimit -Hn {needed})"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hard_limit_that_is_too_low_is_named() {
        let limit = Rlimit { current: Some(10), maximum: Some(100) };
        check("this process", limit, 100).unwrap();
        let words = check("this process", limit, 101).unwrap_err().to_string();
        assert!(words.contains("may open 100 files, and needs 101"), "{words}");
        check("this process", Rlimit { current: Some(10), maximum: None }, 101).unwrap();
        assert_eq!(raised(limit).current, Some(100));
    }
}
