//! Rules about what code may contain.

use std::fs;

use crate::code::{SourceFile, Word, words};

/// Code that may stand in a few files only.
struct Rule {
    /// The searched code: tokens between blanks, `..` for anything up to a `;` or a `]`, or, after a `~`, a word
    /// or a text within a token.
    patterns: &'static [&'static str],
    /// The files that may contain it. At least one of them does, or the rule looks for the wrong thing.
    homes: &'static [&'static str],
    /// The finding for another file.
    problem: &'static str,
}

const RULES: [Rule; 5] = [
    // A new item of another module or crate would become public without a decision.
    Rule {
        patterns: &["pub use .. *"],
        homes: &[],
        problem: "`pub use` of everything: a crate names each item that it exports",
    },
    // `cargo doc` of an application shows a dependency with the features that the application has enabled. A reader
    // learns about another feature only from a page that is always there.
    Rule {
        patterns: &["cfg_attr .. feature .. include_str"],
        homes: &[],
        problem: "a page that only a feature shows",
    },
    // The shortest and the longest lease, 10 ms and 7 days, in code and in messages.
    Rule {
        patterns: &["from_millis ( 10 )"],
        homes: &["redlock-core/src/validity.rs", "redlock-core/src/waiting/pauses.rs"],
        problem: "looks like a limit of the lease, which redlock-core/src/validity.rs defines",
    },
    Rule {
        patterns: &[
            "from_micros ( 10000 )",
            "604800",
            "604800000",
            "7 * 24",
            "24 * 7",
            "7 * DAY",
            "DAY * 7",
            "from_days ( 7 )",
            "from_weeks ( 1 )",
            "from_hours ( 168 )",
            "~10 ms",
            "~7 days",
        ],
        homes: &["redlock-core/src/validity.rs"],
        problem: "looks like a limit of the lease, which redlock-core/src/validity.rs defines",
    },
    // Every front end takes the options as one type, so that the next option needs changes in a few files only. The rule
    // looks for `max_hold`, because nothing else has this name.
    Rule {
        patterns: &["~max_hold"],
        homes: &[
            "redlock-core/src/options/resolved.rs",
            "redlock-core/src/options/rules.rs",
            "redlock-core/src/options/table.rs",
        ],
        problem: "names an option of a lock, which only the options and their rules name",
    },
];

/// The READMEs with programs.
const READMES: [&str; 4] =
    ["README.md", "redlock-axum/README.md", "redlock-core/README.md", "redlock-macros/README.md"];

/// Finds code in files that may not contain it, and rules that find nothing.
pub(crate) fn check(files: &[SourceFile]) -> Vec<String> {
    let mut unused: Vec<&Rule> = RULES.iter().filter(|rule| !rule.homes.is_empty()).collect();
    let mut findings = Vec::new();
    for SourceFile { path, code } in files {
        let code = words(code);
        for rule in &RULES {
            let at_home = rule.homes.contains(&path.as_str());
            for pattern in rule.patterns {
                for line in lines(&code, pattern) {
                    unused.retain(|other| !at_home || !std::ptr::eq(*other, rule));
                    if !at_home {
                        let problem = rule.problem;
                        findings.push(format!("{path}:{line}: `{pattern}`: {problem}"));
                    }
                }
            }
        }
    }
    findings.extend(unused.iter().map(|rule| format!("no home has any of {:?}", rule.patterns)));
    findings
}

/// Returns the lines where a pattern begins.
fn lines(code: &[Word], pattern: &str) -> Vec<usize> {
    let starts = (0..code.len()).filter(|start| match pattern.strip_prefix('~') {
        Some(text) => contains(&code[*start].text, text),
        None => matches(&code[*start..], pattern),
    });
    starts.map(|start| code[start].line).collect()
}

/// Returns whether the text contains `part`, and not only within a longer word or number: `17 days`.
fn contains(text: &str, part: &str) -> bool {
    let is_inside = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(part).any(|(at, _)| {
        !text[..at].ends_with(is_inside) && !text[at + part.len()..].starts_with(is_inside)
    })
}

/// Returns whether the code begins with the pattern.
fn matches(code: &[Word], pattern: &str) -> bool {
    let mut at = 0;
    for (index, piece) in pattern.split(" .. ").enumerate() {
        let piece: Vec<_> = piece.split(' ').collect();
        let is_here = |at: usize| {
            let texts = code[at..].iter().map(|word| word.text.as_str());
            texts.take(piece.len()).eq(piece.iter().copied())
        };
        let is_end = |at: usize| matches!(code[at].text.as_str(), ";" | "]");
        let last = if index == 0 { at } else { code.len() - 1 };
        let ahead = (at..=last.min(code.len() - 1)).take_while(|at| index == 0 || !is_end(*at));
        let Some(found) = ahead.into_iter().find(|at| is_here(*at)) else { return false };
        at = (found + piece.len()).min(code.len() - 1);
    }
    true
}

/// Finds programs in the READMEs that print an error by `Debug`, which is not made for readers: each `main` that returns
/// a value. The first error of a newcomer is that no Redis is running.
pub(crate) fn check_readmes() -> Vec<String> {
    let of_file = |path| match fs::read_to_string(path) {
        Ok(text) => mains(path, &text),
        Err(error) => vec![format!("{path}: {error}")],
    };
    READMES.into_iter().flat_map(of_file).collect()
}

pub(crate) fn mains(path: &str, text: &str) -> Vec<String> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| line.contains("fn main() ->"));
    let problem = "`main` returns a value, so that an error is printed by `Debug`";
    lines.map(|(line, _)| format!("{path}:{line}: {problem}")).collect()
}
