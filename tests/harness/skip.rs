//! Tests that cannot run on this machine.

use std::fs::OpenOptions;
use std::io::Write;

/// The file that collects the skipped tests, so that `tests/run.sh` can count them.
const LIST: &str = "REDLOCK_TEST_SKIPPED";

/// Reports on standard error that a test was skipped. The caller returns from its test.
///
/// # Panics
///
/// In CI (`CI=true` or `CI=1`), where no test may be skipped.
pub fn skip(why: &str) {
    let in_ci = std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1");
    assert!(!in_ci, "in CI no test may be skipped: {why}");
    // The name of the thread is that of its test. A test on a runtime of many threads may run elsewhere.
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = format!("SKIPPED {test}: {why}\n");
    // The test runner captures the output of `eprintln!`.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(list) = std::env::var_os(LIST) {
        let list = OpenOptions::new().append(true).create(true).open(list);
        list.and_then(|mut list| list.write_all(line.as_bytes()))
            .expect("the list of skipped tests");
    }
}
