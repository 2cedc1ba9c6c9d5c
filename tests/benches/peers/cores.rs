//! Which cores this process and the servers run on.

use redlock_tests::RedisServer;

/// Puts this process and the servers on cores of their own. What one caller waits for depends more on
/// whether the server happens to be woken on its core than on anything else otherwise. Where there is
/// one core, or the system is another, nothing changes.
#[cfg(target_os = "linux")]
pub(crate) fn apart(servers: &[RedisServer]) {
    if let [first @ .., last] = &all()[..]
        && !first.is_empty()
    {
        pin(std::process::id(), first);
        for server in servers {
            pin(server.process_id().unsigned_abs(), &[*last]);
        }
    }
}

/// Lets everybody run everywhere again.
#[cfg(target_os = "linux")]
pub(crate) fn shared(servers: &[RedisServer]) {
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

/// All threads that a process has by now.
#[cfg(target_os = "linux")]
fn pin(process: u32, cores: &[usize]) {
    let mut set = rustix::thread::CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
    let ids = threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok());
    for thread in ids.filter_map(rustix::thread::Pid::from_raw) {
        // A thread that has ended in between needs no core.
        let _ = rustix::thread::sched_setaffinity(Some(thread), &set);
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn apart(_: &[RedisServer]) {}

#[cfg(not(target_os = "linux"))]
pub(crate) fn shared(_: &[RedisServer]) {}
