//! Different values give different keys (invariant 10), proven the long way round: whatever values
//! went into a key can be read back out of it. Random pairs of values would not do: they miss the
//! collision of a naive join in millions of tries.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use redlock_core::{KeyError, KeyPart, KeyTemplate, LockKey, TemplateError};
use sha2::{Digest, Sha256};

const MIB: usize = 1024 * 1024;

fn config() -> ProptestConfig {
    ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() }
}

/// What a careless join would trip over.
const PIECES: [&str; 28] = [
    "a", "b", "ab", "A", "42", "042", "+42", ":", "::", "/", "#", "-", ".", "_", "~", "%", "%25",
    "%2F", "%3A", "%3a", "{", "}", "\0", "\n", " ", "é", "e\u{301}", "日🦀",
];

fn value() -> impl Strategy<Value = String> {
    let pieces = prop::collection::vec(select(&PIECES[..]), 1..6).prop_map(|all| all.concat());
    prop_oneof![8 => pieces, 2 => ".{1,12}", 1 => "[a-zé:#]{60,200}"]
}

fn is_unreserved(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-._~".contains(character)
}

/// Encodes as RFC 3986 says, written anew for the comparison.
fn encode(value: &str) -> String {
    let encode = |byte: &u8| match char::from(*byte) {
        character if is_unreserved(character) => character.to_string(),
        _ => format!("%{byte:02X}"),
    };
    value.as_bytes().iter().map(encode).collect()
}

/// The inverse. `None` for what no value is encoded to.
fn decode(encoded: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = encoded;
    while let Some(character) = rest.chars().next() {
        let length = if character == '%' {
            let digits = rest.get(1..3)?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            3
        } else {
            bytes.push(u8::try_from(character).ok().filter(|_| is_unreserved(character))?);
            1
        };
        rest = &rest[length..];
    }
    String::from_utf8(bytes).ok().filter(|decoded| encode(decoded) == encoded)
}

/// What a key of more than 200 bytes becomes.
fn shortened(long: &str) -> String {
    let head = (0..=128).rev().find(|&length| long.is_char_boundary(length)).unwrap();
    let digest: Vec<_> = Sha256::digest(long).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}%#{}", &long[..head], digest.concat())
}

fn limited(key: String) -> String {
    if key.len() > 200 { shortened(&key) } else { key }
}

/// Writes its value in several pieces, as many `Display` implementations do.
struct InPieces<'a>(&'a str);

impl fmt::Display for InPieces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| write!(f, "{character}"))
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_part_can_be_decoded(value in value()) {
        let part = KeyPart(&value).to_string();
        prop_assert_eq!(decode(&part), Some(value.clone()));
        prop_assert_eq!(KeyPart(&InPieces(&value)).to_string(), part);
    }

    #[test]
    fn a_key_of_parts_can_be_taken_apart(values in prop::collection::vec(value(), 1..4)) {
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
    fn a_key_made_of_a_key_is_the_same(text in ".{1,300}") {
        if let Ok(key) = LockKey::new(text) {
            prop_assert_eq!(LockKey::new(&key), Ok(key));
        }
    }

    #[test]
    fn whatever_is_read_as_a_template_does_not_panic(
        template in prop_oneof![any::<String>(), template()],
        value in any::<String>(),
    ) {
        match KeyTemplate::new(&template) {
            Ok(read) => {
                prop_assert_eq!(read.to_string(), template.as_str());
                prop_assert_eq!(KeyTemplate::new(&read.to_string()), Ok(read.clone()));
                let _ = read.render(|_| Some(value.as_str().into()), Vec::new);
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}

/// Templates, most of them right.
fn template() -> impl Strategy<Value = String> {
    const PIECES: [&str; 18] = [
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
    prop::collection::vec(select(&PIECES[..]), 1..9).prop_map(|all| all.concat())
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

/// A value of a type can be written in several ways.
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
            // Not in upper case: not every character comes back from there.
            _ => self.l.clone(),
        }
    }
}

/// A template taken apart: texts, and names between them.
#[derive(Debug, PartialEq)]
enum Piece<'t> {
    Text(String),
    Value(&'t str),
}

fn pieces(template: &str) -> Vec<Piece<'_>> {
    let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), template);
    while let Some(character) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("{{").or_else(|| rest.strip_prefix("}}")) {
            text.push(character);
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let (inner, after) = after.split_once('}').unwrap();
            pieces.push(Piece::Text(std::mem::take(&mut text)));
            pieces.push(Piece::Value(inner.split(':').next().unwrap()));
            rest = after;
        } else {
            text.push(character);
            rest = &rest[character.len_utf8()..];
        }
    }
    pieces.push(Piece::Text(text));
    pieces
}

/// Reads the values back, by nothing but the template: that this can be done is the proof.
fn read<'t>(template: &[Piece<'t>], key: &str) -> Option<Vec<(&'t str, String)>> {
    let is_border = |character| !is_unreserved(character) && character != '%';
    let (mut values, mut rest) = (Vec::new(), key);
    for (index, piece) in template.iter().enumerate() {
        let name = match piece {
            Piece::Text(text) => {
                rest = rest.strip_prefix(text.as_str())?;
                continue;
            }
            Piece::Value(name) => name,
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

/// Each template that is accepted, and each set of values.
#[test]
fn values_can_be_read_back_out_of_what_a_template_makes_of_them() {
    let (accepted, refused) = (Cell::new(0), Cell::new(0));
    let mut runner = TestRunner::new(ProptestConfig { cases: 1000, ..config() });
    let spelling = select(&[Spelling::Canonical, Spelling::Other][..]);
    let cases = (template(), Values::any(), spelling);
    let result = runner.run(&cases, |(source, values, spelling)| {
        let template = match KeyTemplate::new(&source) {
            Ok(template) => template,
            Err(error) => {
                let expected = matches!(error, TemplateError::NotSeparated { .. });
                prop_assert!(expected, "{}", error);
                refused.set(refused.get() + 1);
                return Ok(());
            }
        };
        let value = |name: &str| Some(values.spelled(name, spelling).into());
        let key = template.render(value, Vec::new).unwrap();

        let pieces = pieces(&source);
        let canonical = |name: &str| values.spelled(name, Spelling::Canonical);
        let expected: Vec<_> =
            template.placeholders().map(|name| (name, canonical(name))).collect();
        let in_full: String = pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Value(name) => encode(&canonical(name)),
            })
            .collect();
        prop_assert_eq!(read(&pieces, &in_full), Some(expected));
        prop_assert_eq!(key.as_str(), limited(in_full));
        accepted.set(accepted.get() + 1);
        Ok(())
    });
    result.unwrap();
    assert!(accepted.get() > 300 && refused.get() > 30, "{accepted:?} {refused:?}");
}

fn render(template: &str, values: &[(&str, &str)]) -> Result<LockKey, KeyError> {
    let value = |name: &str| {
        let (_, value) = *values.iter().find(|(known, _)| *known == name)?;
        Some(value.to_owned().into())
    };
    KeyTemplate::new(template).unwrap().render(value, Vec::new)
}

/// The borders that a naive join moves.
#[test]
fn a_border_cannot_be_moved() {
    let pairs = [
        (["a:b", "c"], ["a", "b:c"]),
        (["a/", "b"], ["a", "/b"]),
        (["a%3Ab", "c"], ["a:b", "c"]),
        (["a%", "25b"], ["a%25", "b"]),
        (["a", "%00"], ["a", "\0"]),
        (["é", "x"], ["e\u{301}", "x"]),
    ];
    for (one, other) in pairs {
        for template in ["{a}:{b}", "{a}/{b}", "k#{a}}}{b}", "{a}-:-{b}"] {
            let key = |[a, b]: [&str; 2]| render(template, &[("a", a), ("b", b)]).unwrap();
            assert_ne!(key(one), key(other), "{template}");
        }
    }
}

#[test]
fn lengths_around_the_limit_are_told_apart() {
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
    // What needs no encoding is one key both ways.
    assert_eq!(seen.len(), 300 * 7);
}

#[test]
fn values_that_no_key_can_be_made_of_are_errors() {
    for template in ["{a}", "x:{a}", "{a:lower}", "{a:u64}", "{a:i64}", "{a:uuid}"] {
        let error = render(template, &[("a", "")]).unwrap_err();
        assert_eq!(error, KeyError::EmptyPart { name: Some("a".into()) });
    }
    let part = format!("x:{}", KeyPart(&InPieces("")));
    assert_eq!(LockKey::new(part), Err(KeyError::EmptyPart { name: None }));
    // A value cannot bring a control character in, only the developer's own text.
    for control in ["\0", "\n", "\r", "\u{1b}[2J", "\u{7f}", "\u{85}", "\u{9b}"] {
        let key = render("x:{a}", &[("a", control)]).unwrap();
        assert_eq!(decode(&key.as_str()[2..]).as_deref(), Some(control));
        assert!(LockKey::new(format!("x:{control}")).is_err());
    }
}

/// What this thread has worked so far: others on the machine do not count.
#[cfg(target_os = "linux")]
fn now() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

#[cfg(not(target_os = "linux"))]
fn now() -> Duration {
    static BEGUN: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    BEGUN.elapsed()
}

/// The least of three times.
fn time<T>(mut work: impl FnMut() -> T) -> Duration {
    let once = |_| {
        let begun = now();
        std::hint::black_box(work());
        now().saturating_sub(begun)
    };
    (0..3).map(once).min().unwrap()
}

/// Sixteen times the work takes about so many times the time, not the square of it.
fn assert_linear<T>(what: &str, large: impl FnMut() -> T, small: impl FnMut() -> T) {
    let (large, small) = (time(large), time(small));
    assert!(large < small * 100 + Duration::from_millis(50), "{what}: {large:?} after {small:?}");
}

#[test]
fn a_value_of_a_megabyte_gives_a_short_key_in_bounded_time() {
    for (template, unit) in
        [("{a}:{b}", "x"), ("{a}:{b}", "%"), ("{a:lower}:{b}", "É"), ("{a:u64}:{b}", "0")]
    {
        let value = |size: usize| format!("{}1", unit.repeat(size / unit.len()));
        let (large, small) = (value(MIB), value(MIB / 64));
        let key = |value: &str| render(template, &[("a", value), ("b", "c")]).unwrap();
        if template.contains("u64") {
            assert_eq!(key(&large).as_str(), "1:c");
        } else {
            let lower = template.contains("lower");
            let taken = if lower { large.to_lowercase() } else { large.clone() };
            let in_full = format!("{}:c", encode(&taken));
            assert_eq!(key(&large).as_str(), shortened(&in_full));
            assert_ne!(key(&large), key(&small));
        }
        let (large, small) = (value(MIB / 4), small);
        assert_linear(template, || key(&large), || key(&small));
    }
    let wrong = "x".repeat(MIB);
    for template in ["{a:u64}", "{a:i64}", "{a:uuid}"] {
        let error = render(template, &[("a", &wrong)]).unwrap_err();
        assert!(matches!(error, KeyError::WrongType { .. }));
        assert!(error.to_string().len() < 200, "the message repeats the value");
    }
}

#[test]
fn a_template_of_a_megabyte_is_read_in_bounded_time() {
    for unit in ["x", "{{", "}}", "{a}:", "{a:lower}é", "{", "}", "{a", "{a}"] {
        let template = |size: usize| unit.repeat(size / unit.len());
        let (large, small) = (template(MIB), template(MIB / 64));
        let read = |source: &str| KeyTemplate::new(source).map(|read| read.placeholders().count());
        if let Ok(count) = read(&large) {
            assert_eq!(count, if unit.contains("{a") { MIB / unit.len() } else { 0 });
            assert!(render(&large, &[("a", "v")]).unwrap().as_str().len() <= 200);
        }
        let (large, small) = (template(MIB / 4), small);
        assert_linear(unit, || read(&large), || read(&small));
    }
}
