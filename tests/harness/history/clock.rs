//! The clock of a history.

use rustix::time::{ClockId, clock_gettime};

/// Reads a clock that never steps and is the same for all processes of this machine.
pub fn monotonic_nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither field is ever negative on this clock.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
