//! The messages for mistakes: one message for each mistake, at the right place, and nothing else.

/// Messages of the attribute itself.
#[test]
fn each_mistake_has_one_message_at_its_token() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

/// Messages of the compiler, which must point at the code of the user. These are
/// cases whose wording has not changed for years.
#[test]
fn compiler_messages_point_at_the_code_of_the_user() {
    trybuild::TestCases::new().compile_fail("tests/ui/compiler/*.rs");
}

/// Broken rules of the options. `redlock-core` defines the rules, and the compiler evaluates them,
/// so the wording around each message comes from the compiler.
#[test]
fn each_broken_rule_is_reported_at_its_option() {
    trybuild::TestCases::new().compile_fail("tests/ui/rules/*.rs");
}
