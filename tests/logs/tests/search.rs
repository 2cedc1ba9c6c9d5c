//! The search of what a test run has printed.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;
use std::process::{Command, Stdio};

/// Whether this may be printed, by a run whose passwords are in a file.
fn may_be_printed(output: &[u8]) -> bool {
    let mut passwords = tempfile::NamedTempFile::new().unwrap();
    passwords.write_all(b"opensesame\nopen%20sesame\n").unwrap();
    let mut search = Command::new(env!("CARGO_BIN_EXE_redlock-logs"));
    search.env("REDLOCK_TEST_PASSWORDS", passwords.path());
    let mut search = search.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    search.stdin.take().unwrap().write_all(output).unwrap();
    search.wait().unwrap().success()
}

#[test]
fn a_password_or_a_token_in_the_output_is_found() {
    assert!(may_be_printed(b"test the_first ... ok\nthe end\n"));
    assert!(may_be_printed(b"\xff no text\n"));
    for secret in [
        "redis://:opensesame@host",
        "redis://:open%20sesame@host",
        "0123456789abcdef0123456789abcdef",
    ] {
        let output = format!("test the_first ... ok\n---- stdout ----\nit is {secret}\nthe end\n");
        assert!(!may_be_printed(output.as_bytes()), "{secret}");
    }
}
