//! Keys that are long, empty, or contain control characters.

use std::collections::HashSet;

use redlock_core::{KeyError, KeyPart, LockKey};

use crate::model::{InPieces, decode, render};

#[test]
fn names_of_every_length_around_the_limit_give_different_keys() {
    let mut seen = HashSet::new();
    for length in 1..=300 {
        for character in ["x", "é", "🦀", "%"] {
            let name = character.repeat(length);
            for key in [LockKey::new(&name).unwrap(), render("{a}", &[("a", &name)]).unwrap()] {
                assert!(key.as_str().len() <= 200, "{}", key.as_str().len());
                seen.insert(key);
            }
        }
    }
    // Seven keys per length: four characters, each raw and as a value. `x` needs no encoding, so
    // its two keys are equal.
    assert_eq!(seen.len(), 300 * 7);
}

#[test]
fn empty_values_are_errors_and_control_characters_are_encoded() {
    for template in ["{a}", "x:{a}", "{a:lower}", "{a:u64}", "{a:i64}", "{a:uuid}"] {
        let error = render(template, &[("a", "")]).unwrap_err();
        assert!(matches!(error, KeyError::EmptyPart { name: Some(a), .. } if a == "a"));
    }
    let part = format!("x:{}", KeyPart(&InPieces("")));
    assert!(matches!(LockKey::new(part), Err(KeyError::EmptyPart { name: None, .. })));
    // A control character in a value is encoded. In the developer's own text it is an error.
    for control in ["\0", "\n", "\r", "\u{1b}[2J", "\u{7f}", "\u{85}", "\u{9b}"] {
        let key = render("x:{a}", &[("a", control)]).unwrap();
        assert_eq!(decode(&key.as_str()[2..]).as_deref(), Some(control));
        assert!(LockKey::new(format!("x:{control}")).is_err());
    }
}
