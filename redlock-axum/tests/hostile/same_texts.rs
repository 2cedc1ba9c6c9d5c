//! The attribute parses a key template when it is compiled, and `redlock-core` parses that of a layer or a policy at run
//! time. Both accept the same texts, so that all of them can lock the same keys.
//!
//! This module compiles the parser of the attribute, because a crate with an attribute exports no functions.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use redlock_axum::KeyTemplate;

use crate::requests::config;
use template::{Piece, is_position};

#[path = "../../../redlock-macros/src/template.rs"]
#[allow(dead_code, unreachable_pub, reason = "a test does not use every part")]
mod template;

/// Checks texts that are put together of these pieces.
fn check(pieces: &'static [&'static str]) {
    let pieces = prop::collection::vec(select(pieces), 0..7);
    let check = |pieces: Vec<&str>| {
        let text = pieces.concat();
        let by_attribute = template::parse(&text);
        let is_position =
            |piece: &Piece| matches!(piece, Piece::Placeholder { name, .. } if is_position(name));
        // Only the attribute has values after the text.
        prop_assume!(!matches!(&by_attribute, Ok(pieces) if pieces.iter().any(is_position)));
        let by_attribute = by_attribute.map(drop);
        let by_layer = KeyTemplate::new(&text).map(drop);
        prop_assert_eq!(
            by_attribute.is_ok(),
            by_layer.is_ok(),
            "{}: {:?}, {:?}",
            text,
            by_attribute,
            by_layer
        );
        Ok(())
    };
    TestRunner::new(config(2000)).run(&pieces, check).unwrap();
}

#[test]
fn unseparated_placeholders_are_refused_by_both() {
    check(&[
        "{a}", "{b}", "{a}", "{{", "}}", ":", "-", ".", "_", "~", "%", "/", "#", "x", "é", " ",
        "7", "\"",
    ]);
}

#[test]
fn expressions_of_spring_are_refused_by_both() {
    check(&[
        "'", "#", "a", "id", ".", "+", " ", ":", "'a' + ", " + #id", " + '", "{id}", "{{", "4",
    ]);
}

#[test]
fn names_and_types_are_accepted_or_refused_by_both() {
    check(&[
        "{", "}", "a", ":", "u64", "i64", "uuid", "lower", "u32", "?", "_", "é", "²", " ", "r#",
        "1a", "{a:u64}", "\t", "redlock:", "-",
    ]);
}
