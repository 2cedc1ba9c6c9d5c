//! ARCHITECTURE.md, and the invariants in the docs of modules, name files and tests that exist.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

const PAPER: &str = "ARCHITECTURE.md";

/// The folders that paths in the paper and in the invariants are relative to.
const ROOTS: [&str; 5] = [
    "",
    "redlock-core/src/",
    "redlock-core/src/store/redis/",
    "redlock-core/",
    "redlock-axum/src/",
];

/// The folders with the tests that are named.
const CODE: [&str; 4] = ["redlock-core", "redlock-macros", "redlock-axum", "tests"];

/// Finds files and tests that are named and do not exist, and invariants without a test.
pub(crate) fn check() -> Vec<String> {
    let Ok(paper) = fs::read_to_string(PAPER) else {
        return vec![format!("{PAPER} cannot be read")];
    };
    let mut functions = HashSet::new();
    let mut modules = BTreeMap::new();
    for folder in CODE {
        visit(Path::new(folder), &mut |path, text| {
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            functions.extend(names.map(ToOwned::to_owned));
            if let Some(invariants) = invariants(text) {
                modules.insert(path.display().to_string(), invariants);
            }
        });
    }
    let exists = |path: &str| ROOTS.iter().any(|root| Path::new(&format!("{root}{path}")).exists());
    let is_function = |name: &str| functions.contains(name);
    let mut findings = missing(PAPER, &paper, &exists, &is_function);
    for (path, invariants) in &modules {
        findings.extend(missing(path, invariants, &exists, &is_function));
    }
    findings.extend(unlisted(&paper, &modules));
    findings
}

/// Returns a finding for each quoted path and each quoted name of a test that does not exist.
pub(crate) fn missing(
    file: &str,
    text: &str,
    exists: &dyn Fn(&str) -> bool,
    is_function: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for quoted in quoted(line) {
            let problem = if is_path(quoted) && !exists(quoted) {
                "there is no such file"
            } else if is_test(quoted) && !is_function(quoted) {
                "there is no such test"
            } else {
                continue;
            };
            findings.push(format!("{file}:{}: `{quoted}`: {problem}", index + 1));
        }
    }
    findings
}

/// Returns a finding for each invariant that either the paper or the docs of all modules lack, and for each one
/// without a test.
pub(crate) fn unlisted(paper: &str, modules: &BTreeMap<String, String>) -> Vec<String> {
    let section = paper.split("\n## ").find(|section| section.starts_with("Invariants\n"));
    let listed = section.unwrap_or_default().lines().filter_map(|line| line.strip_prefix("* **"));
    let mut listed: Vec<&str> = listed.filter_map(|line| Some(line.split_once("**")?.0)).collect();
    let all = listed.clone();
    let mut findings = Vec::new();
    for (path, invariants) in modules {
        for invariant in invariants.split("\n//! **").skip(1) {
            let name = invariant.split(".**").next().unwrap_or_default();
            let is_it = |other: &str| other.eq_ignore_ascii_case(name);
            listed.retain(|other| !is_it(other));
            if !all.iter().any(|other| is_it(other)) {
                findings.push(format!("{path}: the invariant `{name}` is not in {PAPER}"));
            }
            if !invariant.lines().flat_map(quoted).any(is_test) {
                findings.push(format!("{path}: the invariant `{name}` has no test"));
            }
        }
    }
    let lacking = listed.iter();
    findings.extend(lacking.map(|name| format!("{PAPER}: the docs of no module have `{name}`")));
    findings
}

/// Returns the invariants in the docs of a module, after as many empty lines as stand before them.
pub(crate) fn invariants(text: &str) -> Option<String> {
    let docs: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
    let start = docs.iter().position(|line| *line == "//! # Invariants")?;
    Some(format!("{}{}", "\n".repeat(start), docs[start..].join("\n")))
}

/// Returns the texts between backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
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

/// Calls `call` with each Rust file in a folder.
pub(crate) fn visit(folder: &Path, call: &mut dyn FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            visit(&path, call);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            call(&path, &fs::read_to_string(&path).unwrap_or_default());
        }
    }
}
