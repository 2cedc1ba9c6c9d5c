//! The keepalive timers of the kernel.

use std::time::Duration;

/// Returns the time until the kernel probes a connection to this port. `None` while no established connection to it has a
/// keepalive timer.
///
/// # Panics
///
/// If the kernel does not list its connections (`/proc/net/tcp`).
pub fn keepalive_timer(port: u16) -> Option<Duration> {
    const ESTABLISHED: &str = "01";
    let port = format!(":{port:04X}");
    let sockets =
        std::fs::read_to_string("/proc/net/tcp").expect("the connections of this machine");
    sockets.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = fields.get(2)?.ends_with(&port) && fields[3] == ESTABLISHED;
        let hundredths = fields.get(5)?.strip_prefix("02:").filter(|_| is_ours)?;
        Some(Duration::from_millis(u64::from_str_radix(hundredths, 16).ok()? * 10))
    })
}
