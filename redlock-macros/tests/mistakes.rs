//! What a mistake looks like to the one who makes it: one message, at the right place, and nothing
//! besides.

/// Messages of the attribute itself.
#[test]
fn each_mistake_has_one_message_at_its_token() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

/// Messages of the compiler, which must point at what the user wrote. These are cases whose wording
/// has not changed for years.
#[test]
fn the_compilers_messages_point_at_the_users_code() {
    trybuild::TestCases::new().compile_fail("tests/ui/compiler/*.rs");
}

/// Broken rules of the options. `redlock-core` has the rules, and the compiler evaluates them, so the wording
/// around each message is the compiler's.
#[test]
fn each_broken_rule_is_reported_at_its_option() {
    trybuild::TestCases::new().compile_fail("tests/ui/rules/*.rs");
}
