//! Checks that only one file contains the shortest and the longest lease, so that no two places disagree.

use crate::tokens::{Token, tokens};
use crate::tree::SourceFile;

/// The file with the limits.
const HOME: &str = "redlock-core/src/validity.rs";

/// The limits, 10 ms and 7 days, in the forms in which code may write them.
const LIMITS: [&str; 11] = [
    "from_millis(10)",
    "from_micros(10_000)",
    "604_800",
    "604_800_000",
    "7 * 24",
    "24 * 7",
    "7 * DAY",
    "DAY * 7",
    "from_days(7)",
    "from_weeks(1)",
    "from_hours(168)",
];

/// The limits in the forms in which messages name them.
const TEXTS: [&str; 2] = ["10 ms", "7 days"];

/// Files in which the same time has another meaning.
const OTHERS: [(&str, &str); 1] = [
    // The shortest pause of a waiter.
    ("redlock-core/src/queue/backoff.rs", "from_millis(10)"),
];

/// Finds limits outside of their file.
pub(crate) fn check(files: &[SourceFile]) -> Vec<String> {
    let mut at_home = false;
    let mut findings = Vec::new();
    for SourceFile { path, text } in files {
        let code = tokens(text);
        for limit in LIMITS {
            let Some(line) = find(&code, &tokens(limit)) else { continue };
            if path == HOME {
                at_home = true;
            } else if !OTHERS.contains(&(path, limit)) {
                findings.push(format!(
                    "{path}:{line}: `{limit}` looks like a limit of the lease; see {HOME}"
                ));
            }
        }
        // Only a literal has a space in its text.
        let is_text = |token: &&Token| TEXTS.iter().any(|limit| names(&token.text, limit));
        for Token { text, line } in code.iter().filter(is_text).filter(|_| path != HOME) {
            findings.push(format!("{path}:{line}: {text} names a limit of the lease; see {HOME}"));
        }
    }
    if !at_home {
        findings.push(format!("{HOME} has none of the limits of the lease that are looked for"));
    }
    findings
}

/// Returns whether the text contains the limit, and not only a longer number: `17 days`.
fn names(text: &str, limit: &str) -> bool {
    let mut places = text.match_indices(limit);
    places.any(|(index, _)| !text[..index].ends_with(|c: char| c.is_ascii_digit()))
}

/// Returns the line of the first occurrence of a limit's tokens.
fn find(code: &[Token], limit: &[Token]) -> Option<usize> {
    let is_limit = |code: &[Token]| {
        code.iter().map(|token| &token.text).eq(limit.iter().map(|token| &token.text))
    };
    Some(code.windows(limit.len()).find(|code| is_limit(code))?[0].line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let file =
            |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
        check(&[file(HOME, "const A: Duration = Duration::from_millis(10);"), file(path, text)])
    }

    #[test]
    fn a_limit_in_another_file_is_found() {
        assert_eq!(
            findings("a.rs", "\nconst A: Duration = Duration::from_millis(10);"),
            [
                "a.rs:2: `from_millis(10)` looks like a limit of the lease; see redlock-core/src/validity.rs"
            ]
        );
        for code in [
            "const A: u64 = 604800;",
            "fn f() { g(604_800u64) }",
            "const A: Duration = Duration::from_secs(7 * 24 * 60 * 60);",
            "const A: u64 = 7 * DAY;",
            "m! { Duration::from_millis( 10_u64 ) }",
        ] {
            assert_eq!(findings("a.rs", code).len(), 1, "{code}");
        }
    }

    #[test]
    fn a_message_with_a_limit_is_found_outside_of_its_file() {
        let text = "m!(\"at most 7 days\", r\"from 10 ms\", \"at most 17 days, 10ms\");";
        assert_eq!(
            findings("a.rs", text),
            [
                "a.rs:1: \"at most 7 days\" names a limit of the lease; see redlock-core/src/validity.rs",
                "a.rs:1: r\"from 10 ms\" names a limit of the lease; see redlock-core/src/validity.rs",
            ]
        );
        assert_eq!(findings(HOME, text), [""; 0]);
    }

    #[test]
    fn other_times_comments_and_tests_are_no_findings() {
        for code in [
            "const A: Duration = Duration::from_millis(100);",
            "const A: Duration = Duration::from_secs(10);",
            "/// From `from_millis(10)` to 604_800 s.\nfn f() {} // 7 * DAY",
            "#[cfg(test)] mod tests { const A: u64 = 604_800; }",
        ] {
            assert_eq!(findings("a.rs", code), [""; 0], "{code}");
        }
    }

    #[test]
    fn a_time_with_another_meaning_is_known_by_its_file() {
        let (path, time) = OTHERS[0];
        assert_eq!(findings(path, &format!("fn f() {{ {time} }}")), [""; 0]);
        assert_eq!(findings(path, "fn f() { 604_800 }").len(), 1);
    }

    #[test]
    fn limits_that_are_written_in_an_unknown_way_are_noticed() {
        let file = SourceFile { path: HOME.to_owned(), text: "const A: u64 = 1;".to_owned() };
        assert_eq!(
            check(&[file]),
            [format!("{HOME} has none of the limits of the lease that are looked for")]
        );
    }
}
