//! ARCHITECTURE.md names files and tests that exist.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

const PAPER: &str = "ARCHITECTURE.md";

/// The folders that paths in the paper are relative to.
const ROOTS: [&str; 5] = [
    "",
    "redlock-core/src/",
    "redlock-core/src/store/redis/",
    "redlock-core/",
    "redlock-axum/src/",
];

/// The folders whose tests the paper names.
const CODE: [&str; 4] = ["redlock-core", "redlock-macros", "redlock-axum", "tests"];

/// Finds files and tests that the paper names and that do not exist.
pub(crate) fn check() -> Vec<String> {
    let Ok(text) = fs::read_to_string(PAPER) else {
        return vec![format!("{PAPER} cannot be read")];
    };
    let mut functions = HashSet::new();
    for folder in CODE {
        collect_functions(Path::new(folder), &mut functions);
    }
    let exists = |path: &str| ROOTS.iter().any(|root| Path::new(&format!("{root}{path}")).exists());
    missing(&text, &exists, &|name| functions.contains(name))
}

/// Returns a finding for each quoted path and each quoted name of a test that does not exist.
pub(crate) fn missing(
    text: &str,
    exists: &dyn Fn(&str) -> bool,
    is_function: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        // Every second piece between backticks is quoted.
        for quoted in line.split('`').skip(1).step_by(2) {
            let problem = if is_path(quoted) && !exists(quoted) {
                "there is no such file"
            } else if is_test(quoted) && !is_function(quoted) {
                "there is no such test"
            } else {
                continue;
            };
            findings.push(format!("{PAPER}:{}: `{quoted}`: {problem}", index + 1));
        }
    }
    findings
}

fn is_path(quoted: &str) -> bool {
    let of_path = |character: char| character.is_ascii_alphanumeric() || "_-./".contains(character);
    let extension = Path::new(quoted).extension().is_some_and(|extension| {
        ["rs", "md", "lua", "sh", "toml"].iter().any(|known| extension == *known)
    });
    quoted.chars().all(of_path) && (extension || quoted.contains('/'))
}

/// Names of tests are sentences, so they have several underscores.
fn is_test(quoted: &str) -> bool {
    let of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    quoted.chars().all(of_name) && quoted.matches('_').count() >= 3
}

/// Collects the names of the functions in a folder.
fn collect_functions(folder: &Path, functions: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect_functions(&path, functions);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            functions.extend(names.map(ToOwned::to_owned));
        }
    }
}
