//! The attribute reads texts when it is compiled, and `redlock-core` reads those of the layers, the policies and the
//! configuration at run time. Both accept the same texts, so that all of them can lock the same keys.
//!
//! This module compiles the code of the attribute that reads texts, because a crate with an attribute exports no
//! functions.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use redlock_axum::{KeyTemplate, TemplateError};

use crate::requests::config;

#[cfg(feature = "serde")]
#[path = "../../../redlock-macros/src/duration_text.rs"]
mod duration_text;
#[path = "../../../redlock-macros/src/key_text.rs"]
mod key_text;
#[path = "../../../redlock-macros/src/spring.rs"]
mod spring;

/// Checks a property of texts that are put together of these pieces.
fn check(
    cases: u32,
    pieces: &'static [&'static str],
    property: impl Fn(&str) -> Result<(), TestCaseError>,
) {
    let pieces = prop::collection::vec(select(pieces), 0..7);
    TestRunner::new(config(cases)).run(&pieces, |pieces| property(&pieces.concat())).unwrap();
}

#[test]
fn unseparated_placeholders_are_refused_by_both() {
    const PIECES: &[&str] = &[
        "{a}", "{b}", "{a}", "{{", "}}", ":", "-", ".", "_", "~", "%", "/", "#", "x", "é", " ",
        "7", "\"",
    ];
    check(2000, PIECES, |text| {
        let unseparated = key_text::unseparated(text);
        match KeyTemplate::new(text) {
            Err(TemplateError::NotSeparated { first, second, .. }) => {
                prop_assert_eq!(unseparated, Some((&*first, &*second)));
            }
            // Without a placeholder, as in `:#x`.
            Ok(_) | Err(TemplateError::Spring { .. } | TemplateError::Empty) => {
                prop_assert_eq!(unseparated, None, "{}", text);
            }
            Err(error) => prop_assert!(false, "{}: {}", text, error),
        }
        Ok(())
    });
}

/// The attribute knows the parameters, so it recognizes more references.
#[test]
fn expressions_of_spring_are_refused_by_both() {
    const PIECES: &[&str] =
        &["'", "#", "a", "id", ".", "+", " ", ":", "'a' + ", " + #id", " + '", "{id}", "{{", "4"];
    check(2000, PIECES, |text| {
        let by_signs = spring::rust_form(text, |_| false);
        let by_any_name = spring::rust_form(text, |_| true);
        let by_template = match KeyTemplate::new(text) {
            Err(TemplateError::Spring { rust, .. }) => Some(rust),
            _ => None,
        };
        prop_assert_eq!(by_signs.is_some(), by_template.is_some(), "{}", text);
        prop_assert!(by_template.is_none() || by_any_name.is_some(), "{}", text);
        // The key template writes `#item.sku` as `{sku}`, and does not translate `#4`.
        if let (Some(form), Some(template)) = (by_signs, by_template)
            && form.starts_with("key = ")
            && template != "order:{id}"
        {
            prop_assert_eq!(form, format!("key = \"{}\"", template), "{}", text);
        }
        Ok(())
    });
}

#[test]
fn both_have_the_same_types_of_placeholders() {
    for (name, _) in key_text::KINDS {
        assert!(KeyTemplate::new(&format!("{{a:{name}}}")).is_ok(), "{name}");
    }
    let error = KeyTemplate::new("{a:?}").unwrap_err();
    assert!(matches!(error, TemplateError::UnknownType { .. }));
    let names = key_text::KINDS.map(|(name, _)| name).join(", ");
    assert!(error.to_string().ends_with(&format!("there are {names}")), "{error}");
}

/// Names that `format!` accepts or that are identifiers in Rust. A unit test of the attribute has the same ones.
#[test]
fn a_name_with_blanks_or_signs_is_refused_as_by_the_attribute() {
    for name in ["a ", " a", "a\u{a0}", " ", "0 ", "a/**/", "r#a", "r#type", "a b", "1a", "_ "] {
        let error = KeyTemplate::new(&format!("pair:{{{name}}}:{{b}}")).unwrap_err();
        assert!(matches!(&error, TemplateError::BadName { name: bad, .. } if bad == name));
    }
}

#[cfg(feature = "serde")]
#[test]
fn durations_are_read_alike_by_the_attribute_and_from_a_configuration() {
    use std::time::Duration;

    use duration_text::DurationText;
    use redlock_axum::{LockOptions, WaitTime};

    const PIECES: &[&str] =
        &["0", "5", "30", " ", "+", "-", ".", "_", "ms", "s", "m", "h", "sec", "us"];
    check(4000, PIECES, |text| {
        let configured = serde_json::json!({ "wait_time": text });
        let configured = serde_json::from_value::<LockOptions>(configured).ok();
        let configured = configured.and_then(|options| options.wait_time);
        let written = duration_text::parse(text).ok().map(|written| match written {
            DurationText::Number(seconds) => Duration::from_secs(seconds),
            DurationText::Sum(time) => time,
        });
        prop_assert_eq!(written.map(WaitTime::UpTo), configured, "{}", text);
        Ok(())
    });
}
