//! Which texts are templates. This module compiles the fuzz target as it is and runs its
//! assertions, so that the target cannot fall behind the library. It needs neither a nightly Rust
//! nor a C++ compiler.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use redlock_core::KeyTemplate;

use crate::reading_back::{PIECES_OF_TEMPLATES, config, value};

/// Turns the fuzz target into a function that a test can call.
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: $type:ty| $body:block) => {
        pub(crate) fn target($input: $type) $body
    };
}

#[allow(unused_attributes, reason = "`no_main` is for the fuzzer")]
#[path = "../../../tests/fuzz/template.rs"]
pub(crate) mod template;

/// Pieces that are no template, or that form one only with the text around them.
const WRONG_PIECES: [&str; 20] = [
    "{",
    "}",
    "{}",
    "{a",
    "{:u64}",
    "{a:}",
    "{a:u65}",
    "{a:U64}",
    "{1a}",
    "{a b}",
    "{a-b}",
    "{ a}",
    "{a:u64:u64}",
    "{{a}",
    "{\u{663}}",
    "\0",
    "\n",
    "\u{1b}",
    "\u{7f}",
    "\u{9b}",
];

/// Placeholders with a source of values, and near misses.
const SOURCES: [&str; 18] = [
    "{header(x-user)}",
    "{header(X-User):lower}",
    "{header(x'y)}",
    "{query(a)}",
    "{query(a:b)}",
    "{query(a b):u64}",
    "{query(#é[])}",
    "{ext(a)}",
    "{ext(a):uuid}",
    "{header()}",
    "{header(x user)}",
    "{header(é)}",
    "{header(a}",
    "{header(a)b}",
    "{query(a(b)}",
    "{ext(a-b)}",
    "{cookie(a)}",
    "{query(a):u65}",
];

const SIGNS_OF_SPRING: [&str; 9] = ["'", "' +", "+ '", "#a", ":#a", "x#a", "#_", "#4", "+"];

/// Generates templates and near misses.
fn source() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        16 => select(&PIECES_OF_TEMPLATES[..]).prop_map(String::from),
        2 => select(&["{é_1}", "{名}", "{_}", "{a1}", "日", "🦀", "-._~"][..]).prop_map(String::from),
        2 => select(&SOURCES[..]).prop_map(String::from),
        1 => select(&SIGNS_OF_SPRING[..]).prop_map(String::from),
        1 => select(&WRONG_PIECES[..]).prop_map(String::from),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..7).prop_map(|all| all.concat())
}

type Values = [String; 3];

fn values() -> impl Strategy<Value = Values> {
    let value = || prop_oneof![9 => value(), 1 => Just(String::new())];
    [value(), value(), value()]
}

/// Generates two sets of values. Often the second set differs from the first by an encoding that a
/// careless implementation confuses.
fn pairs_of_values() -> impl Strategy<Value = (Values, Values)> {
    const SPELLINGS: [(&str, &str); 5] =
        [("%", "%25"), (":", "%3A"), ("%3A", "%3a"), ("/", "%2F"), ("é", "e")];
    let change = (0..3_usize, 0..3_usize, select(&SPELLINGS[..]));
    (values(), values(), change, 0..4).prop_map(|(ones, others, (one, other, (from, to)), kind)| {
        let mut close = ones.clone();
        match kind {
            0 => close = others,
            1 => close.swap(one, other),
            2 => close[one] = close[one].replacen(from, to, 1),
            _ => close[one] = close[one].replacen(to, from, 1),
        }
        (ones, close)
    })
}

#[test]
fn the_assertions_of_the_fuzz_target_hold() {
    let config = config(5000);
    let cases = config.cases;
    let read = Cell::new(0_u32);
    let inputs = (source(), pairs_of_values());
    let result = TestRunner::new(config).run(&inputs, |(source, (ones, others))| {
        read.set(read.get() + u32::from(KeyTemplate::new(&source).is_ok()));
        template::target((&source, ones, others));
        Ok(())
    });
    result.unwrap();
    // The test covers both sides of the parser only if valid and invalid templates occur.
    let read = read.get();
    assert!((cases / 5..cases * 4 / 5).contains(&read), "{read} of {cases} are templates");
}
