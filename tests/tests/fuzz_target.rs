//! The fuzz target of the key templates, built as it is and fed with mutated inputs: neither a nightly
//! Rust nor a C++ compiler is needed for this, and the target cannot fall behind the library.
//!
//! For more inputs: `PROPTEST_CASES=1000000`.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::Cell;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestRunner;
use redlock_core::KeyTemplate;

// The target finds this macro where it looks for that of libFuzzer.
extern crate self as libfuzzer_sys;

/// Makes a function of the target that a test can call.
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: $type:ty| $body:block) => {
        pub(crate) fn target($input: $type) $body
    };
}

#[allow(unused_attributes, reason = "`no_main` is for the fuzzer")]
#[path = "../../redlock-core/fuzz/template.rs"]
mod template;

/// What the fuzzer puts together, too.
const DICTIONARY: &str = include_str!("../../redlock-core/fuzz/template.dict");

const TEMPLATES: [&str; 12] = [
    "order:{id}",
    "{a}:{b}",
    "{a}/{b}#{c}",
    "{{{a}}}{b}",
    "{a}:-{a}",
    "n:{n:u64}:{a}",
    "{i:i64}",
    "{u:uuid} {l:lower}",
    "{é_1}|{名}",
    "redis_lock",
    "100%:{a}",
    "{a}日{b}🦀{c}{{",
];
const VALUES: [&str; 12] = [
    "42",
    "042",
    "a:b",
    "a%3Ab",
    "a/b c",
    "{a}",
    "%",
    "é日🦀",
    "\0\n\u{1b}\u{85}",
    "67e55044-10b1-426f-9247-bb680e5fe0c8",
    "Straße",
    "-_.~",
];
const CHARACTERS: [char; 24] = [
    '{', '}', ':', '/', '#', '%', '-', '.', '_', '~', '|', ' ', '\0', '\n', '\u{7f}', '\u{9b}',
    '0', '9', 'a', 'Z', 'é', 'İ', '日', '🦀',
];

/// What is in the dictionary: a quoted text in each line.
fn dictionary() -> Vec<String> {
    let words = DICTIONARY.lines().map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    words.map(|word| word.unwrap().to_owned()).collect()
}

#[derive(Debug, Clone)]
enum Mutation {
    Insert(Index, String),
    Delete(Index, Index),
    Duplicate(Index, Index),
    Swap(Index, Index),
    Repeat(Index, usize),
}

impl Mutation {
    fn any() -> impl Strategy<Value = Self> {
        let index = any::<Index>;
        let character = select(&CHARACTERS[..]).prop_map(String::from);
        let word = prop_oneof![
            3 => select(dictionary()),
            3 => character,
            1 => any::<char>().prop_map(String::from),
        ];
        prop_oneof![
            6 => (index(), word).prop_map(|(at, word)| Self::Insert(at, word)),
            3 => (index(), index()).prop_map(|(from, to)| Self::Delete(from, to)),
            3 => (index(), index()).prop_map(|(from, to)| Self::Duplicate(from, to)),
            3 => (index(), index()).prop_map(|(one, other)| Self::Swap(one, other)),
            1 => (index(), 1..400_usize).prop_map(|(at, times)| Self::Repeat(at, times)),
        ]
    }

    /// Changes a list of characters, and of words that stay together when they are swapped.
    fn apply(&self, tokens: &mut Vec<String>) {
        let length = tokens.len();
        let range = |one: &Index, other: &Index| {
            let (one, other) = (one.index(length), other.index(length));
            one.min(other)..one.max(other) + 1
        };
        match self {
            Self::Insert(at, word) => tokens.insert(at.index(length + 1), word.clone()),
            _ if tokens.is_empty() => {}
            Self::Delete(from, to) => drop(tokens.drain(range(from, to))),
            Self::Duplicate(from, to) => {
                let range = range(from, to);
                let again = tokens[range.clone()].to_vec();
                tokens.splice(range.end..range.end, again);
            }
            Self::Swap(one, other) => tokens.swap(one.index(length), other.index(length)),
            Self::Repeat(at, times) => {
                let at = at.index(length);
                let again = vec![tokens[at].clone(); *times];
                tokens.splice(at..at, again);
            }
        }
    }
}

fn mutated(text: &str, mutations: &[Mutation]) -> String {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        // A placeholder is one token.
        let placeholder = rest.find('}').filter(|_| first == '{').map(|end| end + 1);
        let (token, after) = rest.split_at(placeholder.unwrap_or(first.len_utf8()));
        tokens.push(token.to_owned());
        rest = after;
    }
    for mutation in mutations {
        mutation.apply(&mut tokens);
    }
    tokens.concat()
}

fn text(seeds: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    let mutations = prop::collection::vec(Mutation::any(), 0..=most);
    (select(seeds), mutations).prop_map(|(seed, mutations)| mutated(seed, &mutations))
}

type Values = [String; 3];

fn values() -> impl Strategy<Value = Values> {
    let value = || text(&VALUES, 3);
    [value(), value(), value()]
}

/// Other values, most of them as close as those are that a careless encoding takes for the same.
fn close_to(ones: &Values) -> impl Strategy<Value = Values> + use<> {
    let (swapped, changed) = (ones.clone(), ones.clone());
    let spellings =
        select(&[("%", "%25"), (":", "%3A"), ("/", "%2F"), ("%3A", "%3a"), ("é", "e")][..]);
    let escaped = (0..3_usize, spellings, any::<bool>()).prop_map({
        let ones = ones.clone();
        move |(index, (plain, escaped), back)| {
            let (from, to) = if back { (escaped, plain) } else { (plain, escaped) };
            let mut others = ones.clone();
            others[index] = others[index].replacen(from, to, 1);
            others
        }
    });
    prop_oneof![
        2 => escaped,
        1 => (0..3_usize, 0..3_usize).prop_map(move |(one, other)| {
            let mut others = swapped.clone();
            others.swap(one, other);
            others
        }),
        2 => (0..3_usize, Mutation::any()).prop_map(move |(index, mutation)| {
            let mut others = changed.clone();
            others[index] = mutated(&others[index], &[mutation]);
            others
        }),
        1 => values(),
    ]
}

#[test]
fn what_the_fuzz_target_asserts_holds_for_mutated_inputs() {
    const CASES: u32 = 5000;
    // Asked for by the environment, there may be more, or fewer.
    let asked = std::env::var_os("PROPTEST_CASES").map(|_| ProptestConfig::default().cases);
    let cases = asked.unwrap_or(CASES);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let values = values().prop_flat_map(|ones| (close_to(&ones), Just(ones)));
    let inputs = (text(&TEMPLATES, 4), values);
    let read = Cell::new(0_u32);
    let result = TestRunner::new(config).run(&inputs, |(source, (others, ones))| {
        read.set(read.get() + u32::from(KeyTemplate::new(&source).is_ok()));
        template::target((&source, ones, others));
        Ok(())
    });
    result.unwrap();
    // Otherwise only one side of the parser was tried.
    let read = read.get();
    assert!((cases / 5..cases * 4 / 5).contains(&read), "{read} of {cases} are templates");
}
