//! The table of features of a crate has a row for each stable feature of its manifest, with the right default.

use std::collections::BTreeMap;
use std::fs;

use toml::{Table, Value};

/// The crates with features, each with the file that has the table.
const TABLES: [(&str, &str); 2] = [
    ("redlock-axum/Cargo.toml", "redlock-axum/docs/features.md"),
    ("redlock-core/Cargo.toml", "redlock-core/src/lib.rs"),
];
/// The first cells of the table.
const HEAD: &str = "| feature | default |";

/// The names of features, each with whether it is enabled by default: `yes` or `no`.
type Features = BTreeMap<String, String>;

/// Finds features that a table lacks, rows of features that do not exist, and wrong defaults.
pub(crate) fn check() -> Vec<String> {
    let read = |path| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let findings =
        |(manifest, page)| Ok(differences(page, &stable(&read(manifest)?), &rows(&read(page)?)));
    let findings =
        TABLES.into_iter().map(|table| findings(table).unwrap_or_else(|error| vec![error]));
    findings.flatten().collect()
}

/// Returns the stable features of a manifest.
fn stable(manifest: &str) -> Features {
    let manifest: Table = manifest.parse().unwrap_or_default();
    let features = manifest.get("features").and_then(Value::as_table);
    let default = features.and_then(|features| features.get("default")).and_then(Value::as_array);
    let is_default =
        |name: &str| default.into_iter().flatten().any(|value| value.as_str() == Some(name));
    let names = features.into_iter().flat_map(Table::keys);
    names
        .filter(|name| *name != "default" && !name.starts_with("unstable"))
        .map(|name| (name.clone(), if is_default(name) { "yes" } else { "no" }.to_owned()))
        .collect()
}

/// Returns the rows of the table, which may stand in the comment of a crate.
fn rows(page: &str) -> Features {
    let lines = page.lines().map(|line| line.strip_prefix("//! ").unwrap_or(line));
    let rows =
        lines.skip_while(|line| !line.starts_with(HEAD)).take_while(|line| line.starts_with('|'));
    let cells = |row: &str| {
        let mut cells = row.split('|').map(str::trim).skip(1);
        Some((cells.next()?.trim_matches('`').to_owned(), cells.next()?.to_owned()))
    };
    // The first two lines are the head.
    rows.skip(2).filter_map(cells).collect()
}

fn differences(page: &str, features: &Features, rows: &Features) -> Vec<String> {
    let missing = features.keys().filter(|name| !rows.contains_key(*name));
    let missing =
        missing.map(|name| format!("{page}: the table has no row for the feature `{name}`"));
    let wrong = rows.iter().filter_map(|(name, default)| match features.get(name) {
        None => Some(format!("{page}: the table has a row for `{name}`, which is no feature")),
        Some(right) if right != default => Some(format!(
            "{page}: the default of the feature `{name}` is `{right}`, and not `{default}`"
        )),
        Some(_) => None,
    });
    missing.chain(wrong).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[features]\ndefault = ['a']\na = []\nb = ['dep:c']\nunstable-d = []\n[dependencies]\nc = '1'";

    fn findings(page: &str) -> Vec<String> {
        differences("a.md", &stable(MANIFEST), &rows(page))
    }

    #[test]
    fn a_table_with_all_features_and_their_defaults_is_no_finding() {
        let table = "# Features\n\n| feature | default | adds |\n|---|---|---|\n| `a` | yes | A |\n| `b` | no | B |\n";
        assert_eq!(findings(table), [""; 0]);
        let comment: String = table.lines().flat_map(|line| ["//! ", line, "\n"]).collect();
        assert_eq!(findings(&comment), [""; 0]);
    }

    #[test]
    fn a_missing_row_an_unknown_row_and_a_wrong_default_are_found() {
        assert_eq!(
            findings(
                "| feature | default |\n|---|---|\n| `a` | no |\n| `c` | no |\n\n| `b` | no |"
            ),
            [
                "a.md: the table has no row for the feature `b`",
                "a.md: the default of the feature `a` is `yes`, and not `no`",
                "a.md: the table has a row for `c`, which is no feature",
            ]
        );
        assert_eq!(findings("").len(), 2, "there is no table");
    }
}
