//! docs.rs documents every feature of a published crate, except `default` and features whose names
//! start with `unstable`.
//!
//! A manifest lists the features by name, because `all-features = true` would include the unstable ones.

use std::collections::BTreeSet;
use std::fs;

use toml::{Table, Value};

/// Finds features that docs.rs does not document, and features in the list that it should not document.
pub(crate) fn check(name: &str) -> Vec<String> {
    let path = format!("{name}/Cargo.toml");
    match fs::read_to_string(&path) {
        Ok(text) => differences(&path, &text),
        Err(error) => vec![format!("{path}: {error}")],
    }
}

fn differences(path: &str, text: &str) -> Vec<String> {
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    let features = manifest.get("features").and_then(Value::as_table);
    let stable: BTreeSet<&str> = features
        .into_iter()
        .flat_map(Table::keys)
        .map(String::as_str)
        .filter(|feature| *feature != "default" && !feature.starts_with("unstable"))
        .collect();
    let docs_rs = ["package", "metadata", "docs", "rs"]
        .iter()
        .try_fold(&manifest, |table, name| table.get(*name).and_then(Value::as_table));
    let listed = docs_rs.and_then(|table| table.get("features")).and_then(Value::as_array);
    let listed: BTreeSet<&str> = listed.into_iter().flatten().filter_map(Value::as_str).collect();

    let missing = stable.difference(&listed).map(|feature| {
        format!("{path}: the features for docs.rs do not include the feature {feature:?}")
    });
    let unexpected = listed.difference(&stable).map(|feature| {
        format!("{path}: the features for docs.rs include {feature:?}, which is no stable feature")
    });
    missing.chain(unexpected).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEATURES: &str = "[features]\ndefault = ['a']\na = []\nb = []\nunstable-c = []\n";

    fn findings(docs_rs: &str) -> Vec<String> {
        differences("Cargo.toml", &format!("{docs_rs}\n{FEATURES}"))
    }

    #[test]
    fn the_list_of_all_stable_features_is_no_finding() {
        assert_eq!(findings("[package.metadata.docs.rs]\nfeatures = ['b', 'a']"), [""; 0]);
        assert_eq!(differences("Cargo.toml", "[package]\nname = 'd'"), [""; 0]);
    }

    #[test]
    fn a_feature_that_is_missing_in_the_list_is_found() {
        let b = "Cargo.toml: the features for docs.rs do not include the feature \"b\"";
        assert_eq!(findings("[package.metadata.docs.rs]\nfeatures = ['a']"), [b]);
        assert_eq!(findings("[package.metadata.docs.rs]").len(), 2);
        assert_eq!(findings("[package.metadata.docs.rs]\nall-features = true").len(), 2);
        assert_eq!(findings("").len(), 2);
    }

    #[test]
    fn a_listed_feature_that_is_unstable_or_missing_is_found() {
        for feature in ["unstable-c", "default", "d"] {
            let list = format!("[package.metadata.docs.rs]\nfeatures = ['a', 'b', '{feature}']");
            let finding = format!(
                "Cargo.toml: the features for docs.rs include {feature:?}, which is no stable feature"
            );
            assert_eq!(findings(&list), [finding]);
        }
    }
}
