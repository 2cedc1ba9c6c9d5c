//! Parses any text as a template and renders it with any values. Nothing panics, exactly the documented
//! templates are accepted, a template prints as its source, and different values give different keys.
//!
//! The tests of `redlock-core` build this file, too, with another source of inputs.

#![no_main]

use redlock_core::{KeyError, KeyTemplate, LockKey};

const TYPES: [&str; 4] = ["u64", "i64", "uuid", "lower"];

type Values = [String; 3];

libfuzzer_sys::fuzz_target!(|input: (&str, Values, Values)| {
    let (source, ones, others) = input;
    let read = KeyTemplate::new(source);
    let expected = pieces(source);
    assert_eq!(read.is_ok(), expected.is_some(), "{source:?}: {read:?}");
    let (Ok(template), Some(expected)) = (read, expected) else { return };
    let expected = || expected.iter().filter_map(Piece::name);
    assert_eq!(template.to_string(), source);
    assert_eq!(KeyTemplate::new(&template.to_string()).as_ref(), Ok(&template));
    assert!(template.placeholders().eq(expected().map(|(name, _)| name)), "{source:?}");

    let mut names: Vec<&str> = template.placeholders().collect();
    names.sort_unstable();
    names.dedup();
    let one = render(&template, &names, &ones);
    for others in [shifted(&ones), others] {
        let other = render(&template, &names, &others);
        // A typed value can be written in several ways, so different texts may give the same key.
        if expected().all(|(_, kind)| kind.is_none())
            && let (Ok(one), Ok(other)) = (&one, other)
        {
            let count = names.len().min(ones.len());
            assert_eq!(*one == other, ones[..count] == others[..count], "{one} and {other}");
        }
    }
});

/// A piece of a template: literal text, or a placeholder with its type.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece<'t> {
    Text(String),
    Value(&'t str, Option<&'t str>),
}

impl<'t> Piece<'t> {
    fn name(&self) -> Option<(&'t str, Option<&'t str>)> {
        match self {
            Self::Text(_) => None,
            Self::Value(name, kind) => Some((name, *kind)),
        }
    }
}

/// Parses a template, independently of the library: a text before, between and after its placeholders. Returns `None` if
/// it is invalid.
pub(crate) fn pieces(source: &str) -> Option<Vec<Piece<'_>>> {
    let (mut all, mut text, mut separated, mut rest) = (Vec::new(), String::new(), true, source);
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        match character {
            '{' | '}' if rest.starts_with(character) => {
                rest = &rest[1..];
                separated = true;
                text.push(character);
            }
            '{' => {
                let (inner, after) = rest.split_once('}')?;
                rest = after;
                // The last `)` ends an argument, because no type contains one.
                let (argument, typed) = inner.rsplit_once(')').unwrap_or(("", inner));
                let (_, kind) = typed.split_once(':').map_or((typed, None), |(a, b)| (a, Some(b)));
                let name = &inner[..inner.len() - kind.map_or(0, |kind| kind.len() + 1)];
                let is_source = !argument.is_empty() && is_source(name);
                if !(is_source || is_identifier(name))
                    || kind.is_some_and(|kind| !TYPES.contains(&kind))
                    || !separated
                {
                    return None;
                }
                separated = false;
                all.extend([Piece::Text(std::mem::take(&mut text)), Piece::Value(name, kind)]);
            }
            '}' => return None,
            _ if character.is_control() => return None,
            _ => {
                separated |= !(character.is_ascii_alphanumeric() || "-._~%".contains(character));
                text.push(character);
            }
        }
    }
    all.push(Piece::Text(text));
    (!source.is_empty() && !is_for_spring(source)).then_some(all)
}

fn is_identifier(name: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    name.chars().all(is_letter) && name.chars().next().is_some_and(|first| !first.is_numeric())
}

/// Returns whether the name is `header(..)`, `query(..)` or `ext(..)` with a valid argument.
fn is_source(name: &str) -> bool {
    let Some((source, argument)) = name.split_once('(') else { return false };
    let Some(argument) = argument.strip_suffix(')') else { return false };
    let all =
        |is_valid: &dyn Fn(char) -> bool| !argument.is_empty() && argument.chars().all(is_valid);
    match source {
        "header" => all(&|c| c.is_ascii_graphic() && !"\"(),/:;<=>?@[\\]{}".contains(c)),
        "query" => all(&|c| !c.is_control() && !"(){}".contains(c)),
        "ext" => is_identifier(argument),
        _ => false,
    }
}

/// Returns whether the text is written for Spring.
fn is_for_spring(source: &str) -> bool {
    let is_reference = |at: usize| {
        let name = source[at + 1..].chars().next();
        name.is_some_and(|c| c.is_alphabetic() || c == '_')
    };
    source.starts_with('\'')
        || source.ends_with('\'')
        || ["' +", "+ '"].iter().any(|sign| source.contains(sign))
        || !source.contains('{') && source.match_indices('#').any(|(at, _)| is_reference(at))
}

/// Moves the first character of the second value to the end of the first.
fn shifted([first, second, third]: &Values) -> Values {
    let mut rest = second.chars();
    let first = first.chars().chain(rest.next()).collect();
    [first, rest.as_str().to_owned(), third.clone()]
}

fn render(template: &KeyTemplate, names: &[&str], values: &Values) -> Result<LockKey, KeyError> {
    let values = names.iter().copied().zip(values.iter().map(String::as_str));
    let key = template.render(values)?;
    assert!(!key.as_str().is_empty() && key.as_str().len() <= 200);
    assert!(!key.as_str().contains(char::is_control));
    assert_eq!(LockKey::new(&key).as_ref(), Ok(&key));
    Ok(key)
}
