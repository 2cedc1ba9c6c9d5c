//! Whether the server under test was built with TLS.

use std::time::Duration;

use crate::process::Process;
use crate::redis_server::{RedisServer, program};
use crate::scratch::scratch;

/// The longest time for a start that fails, on a machine that is busy with other tests.
const END: Duration = Duration::from_secs(60);

impl RedisServer {
    /// Checks that the server under test was built with TLS.
    ///
    /// # Errors
    ///
    /// The server was built without TLS. The error is the reason to skip a test.
    ///
    /// # Panics
    ///
    /// If the server's program cannot be started.
    pub fn check_tls() -> Result<(), String> {
        let program = program();
        let dir = scratch();
        let log = dir.path().join("redis.log");
        // A server without any port ends at once.
        let arguments = ["--port", "0", "--tls-port", "0", "--save", ""];
        let mut process = Process::start(&program, arguments, &[], &log).expect("a server");
        process.wait(END).expect("the end of the server");
        let output = std::fs::read_to_string(&log).expect("the output of the server");
        if refuses_tls(&output) {
            return Err(format!("{} was built without TLS", program.display()));
        }
        Ok(())
    }
}

/// Returns whether a server has refused the directive `tls-port` because it does not know it. A server that
/// failed for another reason may have TLS, and its tests must run.
fn refuses_tls(output: &str) -> bool {
    output.contains(">>> 'tls-port") && output.contains("Bad directive")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_know_the_directive_has_no_tls() {
        // Redis 6.2.14.
        let output = "\n*** FATAL CONFIG FILE ERROR (Redis 6.2.14) ***\n\
            Reading the configuration file, at line 3\n>>> 'tls-port \"0\"'\n\
            Bad directive or wrong number of arguments\n";
        assert!(refuses_tls(output));
    }

    #[test]
    fn a_server_that_ends_for_another_reason_may_have_tls() {
        // Redis 7.0.15 and Valkey 9.1.
        assert!(!refuses_tls(
            "M 22 Nov 2026 09:27:32.063 # Configured to not listen anywhere, exiting."
        ));
        let other = "*** FATAL CONFIG FILE ERROR (Redis 7.0.15) ***\n\
            Reading the configuration file, at line 2\n>>> 'prot \"0\"'\n\
            Bad directive or wrong number of arguments\n";
        assert!(!refuses_tls(other));
        let wrong = "*** FATAL CONFIG FILE ERROR (Redis 7.0.15) ***\n\
            Reading the configuration file, at line 3\n>>> 'tls-port \"x\"'\n\
            argument couldn't be parsed into an integer\n";
        assert!(!refuses_tls(wrong));
        assert!(!refuses_tls(""));
    }
}
