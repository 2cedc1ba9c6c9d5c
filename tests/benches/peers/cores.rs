//! Pins this process and the servers to cores.

use redlock_tests::RedisServer;

/// Pins the servers to the last core and this process to the others. Without this, the time of a single
/// caller depends mostly on whether the kernel happens to wake the server on the caller's core. Does
/// nothing on a machine with one core or without Linux.
#[cfg(target_os = "linux")]
pub(crate) fn pin_separately(servers: &[RedisServer]) {
    if let [first @ .., last] = &all()[..]
        && !first.is_empty()
    {
        pin(std::process::id(), first);
        for server in servers {
            pin(server.process_id().unsigned_abs(), &[*last]);
        }
    }
}

/// Lets this process and the servers run on every core again.
#[cfg(target_os = "linux")]
pub(crate) fn unpin(servers: &[RedisServer]) {
    let all = all();
    pin(std::process::id(), &all);
    for server in servers {
        pin(server.process_id().unsigned_abs(), &all);
    }
}

#[cfg(target_os = "linux")]
fn all() -> Vec<usize> {
    use std::sync::OnceLock;

    static ALL: OnceLock<Vec<usize>> = OnceLock::new();
    let read = || {
        let allowed = rustix::thread::sched_getaffinity(None).expect("the cores of this process");
        let cores = 0..rustix::thread::CpuSet::MAX_CPU;
        cores.filter(|core| allowed.is_set(*core)).collect()
    };
    ALL.get_or_init(read).clone()
}

/// Pins all present threads of a process to `cores`.
#[cfg(target_os = "linux")]
fn pin(process: u32, cores: &[usize]) {
    let mut set = rustix::thread::CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    let threads =
        std::fs::read_dir(format!("/proc/{process}/task")).expect("the threads of the process");
    let ids = threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok());
    for thread in ids.filter_map(rustix::thread::Pid::from_raw) {
        // The thread may have ended since the directory was read.
        let _ = rustix::thread::sched_setaffinity(Some(thread), &set);
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn pin_separately(_: &[RedisServer]) {}

#[cfg(not(target_os = "linux"))]
pub(crate) fn unpin(_: &[RedisServer]) {}
