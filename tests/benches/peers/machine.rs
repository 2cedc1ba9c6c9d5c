//! Describes the machine of a measurement.

use std::process::Command;

/// Returns the processor, the system, the server and the load, in one line.
pub(crate) fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown processor", |(_, model)| model.trim());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!(
        "{cores} cores of {model}, {} {}, {}, load before the start {load}",
        std::env::consts::OS,
        kernel.trim(),
        server(),
    )
}

fn server() -> String {
    let program = std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let version = text.split(' ').find_map(|word| word.strip_prefix("v="));
    format!("{} {}", text.split(' ').next().unwrap_or("Redis"), version.unwrap_or("?"))
}
