//! The keepalive timers of the kernel.

/// Returns whether the kernel sends keepalive probes over each connection to this port of 127.0.0.1, and whether there is one.
///
/// # Panics
///
/// If the kernel does not list its connections.
pub fn is_probed(port: u16) -> bool {
    const KEEPALIVE: &str = "02:";
    let list = std::fs::read_to_string("/proc/net/tcp").expect("the connections of this machine");
    let server = format!("0100007F:{port:04X}");
    // The third column is the remote address, the fourth one the state (1: established), the sixth one the timer.
    let timers = list.lines().filter_map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        (columns.get(2) == Some(&&*server) && columns[3] == "01").then(|| columns[5].to_owned())
    });
    let timers: Vec<_> = timers.collect();
    !timers.is_empty() && timers.iter().all(|timer| timer.starts_with(KEEPALIVE))
}
