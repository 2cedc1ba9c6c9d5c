//! Reads values back out of keys.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{RngSeed, TestRunner};
use redlock_core::{KeyPart, KeyTemplate, LockKey};

use crate::model::{InPieces, decode, encode, is_unreserved, shortened};
use crate::seeds::seeds;
use crate::templates::template::{Piece, pieces};

/// Returns a configuration with this number of cases, made from a listed seed. `PROPTEST_CASES` overrides the number.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let from_env = std::env::var_os("PROPTEST_CASES").map(|_| ProptestConfig::default().cases);
    let cases = from_env.unwrap_or(cases);
    let seed = seeds("keys").next().unwrap();
    println!("REDLOCK_SEED={seed} repeats these values");
    let rng_seed = RngSeed::Fixed(seed);
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

/// Pieces of values that a careless join confuses.
const PIECES: [&str; 28] = [
    "a", "b", "ab", "A", "42", "042", "+42", ":", "::", "/", "#", "-", ".", "_", "~", "%", "%25",
    "%2F", "%3A", "%3a", "{", "}", "\0", "\n", " ", "é", "e\u{301}", "日🦀",
];

pub(crate) fn value() -> impl Strategy<Value = String> {
    let pieces = prop::collection::vec(select(&PIECES[..]), 1..6).prop_map(|all| all.concat());
    prop_oneof![8 => pieces, 2 => ".{1,12}", 1 => "[a-zé:#]{60,200}"]
}

fn limited(key: String) -> String {
    if key.len() > 200 { shortened(&key) } else { key }
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn a_part_can_be_decoded(value in value()) {
        let part = KeyPart(&value).to_string();
        prop_assert_eq!(decode(&part), Some(value.clone()));
        prop_assert_eq!(KeyPart(&InPieces(&value)).to_string(), part);
    }

    #[test]
    fn a_key_of_parts_can_be_split_into_its_values(values in prop::collection::vec(value(), 1..4)) {
        let parts: Vec<String> = values.iter().map(|value| KeyPart(value).to_string()).collect();
        let joined = parts.join(":");
        let key = LockKey::new(&joined).unwrap();
        if joined.len() <= 200 {
            let read: Option<Vec<String>> = key.as_str().split(':').map(decode).collect();
            prop_assert_eq!(read, Some(values));
        } else {
            prop_assert_eq!(key.as_str(), shortened(&joined));
        }
    }

    #[test]
    fn a_key_that_is_made_from_a_key_is_equal_to_it(text in ".{1,300}") {
        if let Ok(key) = LockKey::new(text) {
            prop_assert_eq!(LockKey::new(&key), Ok(key));
        }
    }
}

/// Pieces of templates.
pub(crate) const PIECES_OF_TEMPLATES: [&str; 18] = [
    "{a}",
    "{b}",
    "{n:u64}",
    "{i:i64}",
    "{u:uuid}",
    "{l:lower}",
    ":",
    "::",
    "/",
    "#",
    "{{",
    "}}",
    "-",
    "x",
    "7",
    "%",
    "é",
    "x:-",
];

/// Generates templates. Most of them are valid.
fn template() -> impl Strategy<Value = String> {
    prop::collection::vec(select(&PIECES_OF_TEMPLATES[..]), 1..9).prop_map(|all| all.concat())
}

#[derive(Debug, Clone)]
struct Values {
    a: String,
    b: String,
    n: u64,
    i: i64,
    u: u128,
    l: String,
}

/// How a typed value is written: in its canonical form, or in another form that the type accepts.
#[derive(Debug, Clone, Copy)]
enum Spelling {
    Canonical,
    Other,
}

impl Values {
    fn any() -> impl Strategy<Value = Self> {
        (value(), value(), any::<u64>(), any::<i64>(), any::<u128>(), value())
            .prop_map(|(a, b, n, i, u, l)| Self { a, b, n, i, u, l: l.to_lowercase() })
    }

    fn spelled(&self, name: &str, spelling: Spelling) -> String {
        let uuid = format!("{:032x}", self.u);
        let groups = [&uuid[..8], &uuid[8..12], &uuid[12..16], &uuid[16..20], &uuid[20..]];
        match (name, spelling) {
            ("a", _) => self.a.clone(),
            ("b", _) => self.b.clone(),
            ("n", Spelling::Canonical) => self.n.to_string(),
            ("n", Spelling::Other) => format!("+00{}", self.n),
            ("i", Spelling::Canonical) => self.i.to_string(),
            ("i", Spelling::Other) => {
                format!("{}00{}", if self.i < 0 { "-" } else { "+" }, self.i.unsigned_abs())
            }
            ("u", Spelling::Canonical) => groups.join("-"),
            ("u", Spelling::Other) => uuid.to_uppercase(),
            // Not in upper case: lower-casing does not restore every character.
            _ => self.l.clone(),
        }
    }
}

/// Reads the values back out of a key, with nothing but the template. If the values can be read
/// back, different values have different keys.
fn read<'t>(template: &[Piece<'t>], key: &str) -> Option<Vec<(&'t str, String)>> {
    let is_border = |character| !is_unreserved(character) && character != '%';
    let (mut values, mut rest) = (Vec::new(), key);
    for (index, piece) in template.iter().enumerate() {
        let name = match piece {
            Piece::Text(text) => {
                rest = rest.strip_prefix(text.as_str())?;
                continue;
            }
            Piece::Value(name, _) => name,
        };
        let Piece::Text(after) = &template[index + 1] else { return None };
        let run = match (rest.find(is_border), after.find(is_border)) {
            (Some(border), Some(begins)) => rest[..border].strip_suffix(&after[..begins])?,
            (_, None) => rest.strip_suffix(after.as_str())?,
            (None, Some(_)) => return None,
        };
        values.push((*name, decode(run)?));
        rest = &rest[run.len()..];
    }
    rest.is_empty().then_some(values)
}

/// Tries each accepted template with generated values.
#[test]
fn values_can_be_read_back_out_of_a_rendered_template() {
    let (accepted, refused) = (Cell::new(0_u32), Cell::new(0_u32));
    let mut runner = TestRunner::new(config(1000));
    let spelling = select(&[Spelling::Canonical, Spelling::Other][..]);
    let cases = (template(), Values::any(), spelling);
    let result = runner.run(&cases, |(source, values, spelling)| {
        let template = match KeyTemplate::new(&source) {
            Ok(template) => template,
            Err(error) => {
                let error = error.to_string();
                // The text has no placeholder, and a `#` before a letter: `:#x`.
                let is_spring = error.contains("is an expression of Spring")
                    && !source.contains('{')
                    && source.contains('#');
                let expected = error.starts_with("nothing separates {") || is_spring;
                prop_assert!(expected, "{}", error);
                refused.set(refused.get() + 1);
                return Ok(());
            }
        };
        let spelled: Vec<_> =
            template.placeholders().map(|name| (name, values.spelled(name, spelling))).collect();
        let key = template.render(spelled.iter().map(|(name, value)| (*name, &**value))).unwrap();

        let pieces = pieces(&source).unwrap();
        let canonical = |name: &str| values.spelled(name, Spelling::Canonical);
        let expected: Vec<_> =
            template.placeholders().map(|name| (name, canonical(name))).collect();
        let in_full: String = pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Value(name, _) => encode(&canonical(name)),
            })
            .collect();
        prop_assert_eq!(read(&pieces, &in_full), Some(expected));
        prop_assert_eq!(key.as_str(), limited(in_full));
        accepted.set(accepted.get() + 1);
        Ok(())
    });
    result.unwrap();
    let cases = accepted.get() + refused.get();
    assert!(accepted.get() > cases / 3 && refused.get() > cases / 30, "{accepted:?} {refused:?}");
}
