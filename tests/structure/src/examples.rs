//! Each example can be started, and has a section in `examples/README.md`, whose commands a test runs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const FOLDER: &str = "examples";

/// Finds examples that the manifest, the README or the tests lack.
pub(crate) fn check() -> Vec<String> {
    let read = |name: &str| fs::read_to_string(Path::new(FOLDER).join(name)).unwrap_or_default();
    let names = programs(Path::new(FOLDER));
    let names = names.iter().map(String::as_str).collect();
    let mut tests = String::new();
    collect_code(Path::new("tests"), &mut tests);
    missing(&names, &read("Cargo.toml"), &read("README.md"), &tests)
}

/// Returns the names of the examples in a folder. An example is a file, or a folder with a `main.rs`.
fn programs(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let programs = entries.map(|entry| entry.path()).filter(|path| {
        path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").is_file()
    });
    programs.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect()
}

/// Returns a finding for each example, in a file or in the manifest, and each place that lacks it.
fn missing(files: &BTreeSet<&str>, manifest: &str, readme: &str, tests: &str) -> Vec<String> {
    let in_manifest = manifest.split("[[example]]").skip(1).filter_map(|table| {
        let name = table.lines().find_map(|line| line.strip_prefix("name = "))?;
        Some(name.trim_matches('"'))
    });
    let in_manifest: BTreeSet<_> = in_manifest.collect();
    let examples: BTreeSet<_> = files.union(&in_manifest).copied().collect();
    if examples.is_empty() {
        return vec![format!("{FOLDER} has no examples")];
    }
    let mut findings = Vec::new();
    for name in examples {
        let line = |line: &str| readme.lines().any(|other| other == line);
        let command = format!("cargo run --example {name}");
        let started = readme.lines().any(|line| line.starts_with("$ ") && line.ends_with(&command));
        for (found, problem) in [
            (files.contains(name), "its code is missing"),
            (in_manifest.contains(name), "Cargo.toml does not list it"),
            (line(&format!("## {name}")), "README.md has no section about it"),
            (started, "README.md has no command that starts it"),
            (tests.contains(&format!("Walkthrough::run(\"{name}\")")), "no test runs its section"),
        ] {
            if !found {
                findings.push(format!("{FOLDER}/{name}: {problem}"));
            }
        }
    }
    findings
}

/// Appends the text of all Rust files in a folder.
fn collect_code(folder: &Path, code: &mut String) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect_code(&path, code);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            code.push_str(&fs::read_to_string(path).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[[example]]\nname = \"index\"\npath = \"index.rs\"\n";
    const README: &str = "## index\n$ LOCKS_URLS=redis://10.0.0.1 cargo run --example index\n";
    const TESTS: &str = "Walkthrough::run(\"index\").await";

    #[test]
    fn an_example_in_all_places_is_no_finding() {
        assert_eq!(missing(&["index"].into(), MANIFEST, README, TESTS), [""; 0]);
    }

    #[test]
    fn each_place_that_lacks_an_example_is_a_finding() {
        assert_eq!(missing(&[].into(), "", README, TESTS), ["examples has no examples"]);
        assert_eq!(
            missing(&[].into(), MANIFEST, README, TESTS),
            ["examples/index: its code is missing"]
        );
        assert_eq!(
            missing(&["index"].into(), "", "", ""),
            [
                "examples/index: Cargo.toml does not list it",
                "examples/index: README.md has no section about it",
                "examples/index: README.md has no command that starts it",
                "examples/index: no test runs its section",
            ]
        );
    }

    #[test]
    fn an_example_is_a_file_or_a_folder() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let names = programs(&examples);
        assert!(names.contains("index") && names.contains("shop"), "{names:?}");
        // Neither a folder without `main.rs` nor a file of another kind is an example.
        assert!(!names.contains("README") && !names.contains("policies.toml"), "{names:?}");
        assert!(programs(&examples.join("..")).is_empty());
    }

    /// A name that another one contains.
    #[test]
    fn an_example_with_a_longer_name_is_another_example() {
        let (readme, tests) = (README.replace("index", "index2"), TESTS.replace("index", "index2"));
        assert_eq!(missing(&["index"].into(), MANIFEST, &readme, &tests).len(), 3);
    }
}
