//! Tests of the program that searches the output of a test run.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;
use std::process::{Command, Stdio};

/// Returns whether the program accepts `output` from a run that uses two passwords.
fn is_accepted(output: &[u8]) -> bool {
    let mut passwords = tempfile::NamedTempFile::new().unwrap();
    passwords.write_all(b"opensesame\nopen%20sesame\n").unwrap();
    let mut search = Command::new(env!("CARGO_BIN_EXE_redlock-logs"));
    search.env("REDLOCK_TEST_PASSWORDS", passwords.path());
    let mut search = search.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    search.stdin.take().unwrap().write_all(output).unwrap();
    search.wait().unwrap().success()
}

/// A test that expects the warning collects it, and prints nothing.
#[test]
fn output_with_a_warning_of_the_order_of_locks_is_rejected() {
    let warning = "requests take locks in different orders, so they may wait for each other";
    for (level, accepted) in [("WARN", false), ("INFO", true)] {
        let output = format!("---- stdout ----\n {level} redlock_core::lock_order: {warning}\n");
        assert_eq!(is_accepted(output.as_bytes()), accepted, "{level}");
    }
}

#[test]
fn output_with_a_password_or_a_token_is_rejected() {
    assert!(is_accepted(b"test the_first ... ok\nthe end\n"));
    assert!(is_accepted(b"\xff no text\n"));
    for secret in [
        "redis://:opensesame@host",
        "redis://:open%20sesame@host",
        "0123456789abcdef0123456789abcdef",
    ] {
        let output = format!("test the_first ... ok\n---- stdout ----\nit is {secret}\nthe end\n");
        assert!(!is_accepted(output.as_bytes()), "{secret}");
    }
}
