//! The messages for mistakes: one message for each mistake, at the right place, and nothing else.
//!
//! A compiler runs for each of these files, which takes a minute, so the tests run with `REDLOCK_TRYBUILD=1` alone.
//! Unit tests of `redlock-macros` check the texts of the attribute's own messages in every run. After a change of a
//! message, write the files anew, and read the diff:
//! `TRYBUILD=overwrite REDLOCK_TRYBUILD=1 cargo test -p redlock-axum --all-features --test mistakes`.

use std::fs;

/// The headings of the page "Compiler errors", but for the first and the last one, are messages that the compiler has
/// given. A heading has `..` for the parts that depend on the program.
#[test]
fn the_headings_of_the_guide_are_messages_of_the_compiler() {
    let page = include_str!("../docs/compiler-errors.md");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ui");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files =
        files.filter(|file| file.extension().is_some_and(|extension| extension == "stderr"));
    let messages: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let headings: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    assert!(headings.len() > 10, "{headings:?}");
    for heading in &headings[1..headings.len() - 1] {
        let is_message = |line: &str| {
            let after = |line, part| Some(str::split_once(line?, part)?.1);
            heading.split("..").fold(Some(line), after).is_some()
        };
        assert!(messages.lines().any(is_message), "no message of the compiler is: {heading}");
    }
}

/// Compiles the files, and compares the messages with those in the files beside them.
#[test]
fn each_mistake_has_one_message_at_its_token() {
    if std::env::var_os("REDLOCK_TRYBUILD").is_some() {
        trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
    }
}
