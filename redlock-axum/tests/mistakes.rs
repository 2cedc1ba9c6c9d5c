//! The messages for mistakes: one message for each mistake, at the right place, and nothing else.
//!
//! A compiler runs for each of these files, which takes a minute, so the tests run with `REDLOCK_TRYBUILD=1` alone.
//! Unit tests of `redlock-macros` check the texts of the attribute's own messages in every run. After a change of a
//! message, write the files anew, and read the diff:
//! `TRYBUILD=overwrite REDLOCK_TRYBUILD=1 cargo test -p redlock-axum --all-features --test mistakes`.

/// Compiles the files, and compares the messages with those in the files beside them.
#[test]
fn each_mistake_has_one_message_at_its_token() {
    if std::env::var_os("REDLOCK_TRYBUILD").is_some() {
        trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
    }
}
