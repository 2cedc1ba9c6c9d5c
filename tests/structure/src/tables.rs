//! Tables in documents and manifests that are complete:
//!
//! * the tables of options have a row for each option that exists, and for no other;
//! * the table of features of a crate has a row for each stable feature, with its default;
//! * docs.rs documents every stable feature of a published crate. A manifest lists them by name, because
//!   `all-features = true` would include the unstable ones.

use std::collections::BTreeMap;
use std::fs;

use syn::LitStr;
use toml::{Table, Value};

use crate::code::words;

/// The published crates, each with the page that has the table of its features.
const CRATES: [(&str, Option<&str>); 3] = [
    ("redlock-axum/Cargo.toml", Some("redlock-axum/docs/features.md")),
    ("redlock-core/Cargo.toml", Some("redlock-core/src/lib.rs")),
    ("redlock-macros/Cargo.toml", None),
];
/// The first cells of the table of features.
const FEATURES: &str = "| feature | default |";

/// The page whose tables have all options.
const ALL: &str = "redlock-axum/docs/options.md";

/// The table of the options of a lock, with a line `name: type,` for each option.
const OF_LOCK: &str = "redlock-core/src/options/table.rs";
/// Where the code lists other names of options: a file, and the name of a constant, a function or a macro.
const OF_ATTRIBUTE: [Source; 1] = [("redlock-axum/src/attribute/options.rs", "unknown_argument")];
/// The fields of a policy, with a line `name: type,` for each one.
const OF_POLICY: &str = "redlock-axum/src/layer/de.rs";

type Source = (&'static str, &'static str);
/// The names in a table, each with its default, if it has one.
type Rows = BTreeMap<String, String>;

/// Finds missing rows of a table, rows without an option or a feature, and wrong defaults.
pub(crate) fn check() -> Vec<String> {
    let options = check_options();
    let features = CRATES.map(|(manifest, page)| check_features(manifest, page));
    let results = [options].into_iter().chain(features);
    results.flat_map(|result| result.unwrap_or_else(|error| vec![error])).collect()
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

fn check_options() -> Result<Vec<String>, String> {
    let mut all = fields(&read(OF_LOCK)?);
    for source in OF_ATTRIBUTE {
        all.extend(options_in(source)?);
    }
    all.extend(fields(&read(OF_POLICY)?));
    Ok(differences(ALL, "option", &all, &options(&read(ALL)?)))
}

fn options_in((path, item): Source) -> Result<Rows, String> {
    let names = names(&read(path)?, item);
    if names.is_empty() {
        return Err(format!("{path}: found no names of options in {item}"));
    }
    Ok(names)
}

/// Returns the options in the lines `name: type,`.
pub(crate) fn fields(code: &str) -> Rows {
    let rows = code.lines().filter(|line| line.ends_with(','));
    rows.filter_map(|line| option(line.trim().split_once(": ")?.0)).collect()
}

/// Returns the names in the constant, function or macro `item` of a code: strings, or the words between backticks of a longer
/// string.
pub(crate) fn names(code: &str, item: &str) -> Rows {
    let words = words(&code.parse().unwrap_or_default());
    let texts: Vec<_> = words.iter().map(|word| word.text.as_str()).collect();
    let is_here = |at: &usize| match texts[*at..] {
        ["const" | "fn", name, ..] | ["macro_rules", "!", name, ..] => name == item,
        _ => false,
    };
    let Some(start) = (0..texts.len()).find(is_here) else { return Rows::new() };
    let mut depth = 0_usize;
    let mut names = Rows::new();
    for pair in texts[start..].windows(2) {
        match pair[0] {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 && matches!(pair[0], ";" | "}") {
            break;
        }
        if let Ok(text) = syn::parse_str::<LitStr>(pair[0]) {
            let text = text.value();
            names.extend(quoted(&text).chain([text.as_str()]).filter_map(option));
        }
    }
    names
}

/// Returns the options in the first column of the tables: the first word of each code span.
pub(crate) fn options(text: &str) -> Rows {
    let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    cells.flat_map(quoted).filter_map(|code| option(code.split([' ', '(']).next()?)).collect()
}

/// Returns the parts of the text between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the text as a row if it is the name of an option.
fn option(text: &str) -> Option<(String, String)> {
    let is_name = |character: char| character.is_ascii_lowercase() || character == '_';
    (!text.is_empty() && text.chars().all(is_name)).then(|| (text.to_owned(), String::new()))
}

fn check_features(manifest: &str, page: Option<&str>) -> Result<Vec<String>, String> {
    let (features, on_docs_rs) = features(&read(manifest)?);
    let names = features.keys().map(|name| (name.clone(), String::new())).collect();
    let mut findings = differences(manifest, "feature for docs.rs", &names, &on_docs_rs);
    if let Some(page) = page {
        findings.extend(differences(page, "feature", &features, &feature_rows(&read(page)?)));
    }
    Ok(findings)
}

/// Returns the stable features of a manifest with their defaults, and its list of features for docs.rs.
pub(crate) fn features(manifest: &str) -> (Rows, Rows) {
    let manifest: Table = manifest.parse().unwrap_or_default();
    let features = manifest.get("features").and_then(Value::as_table);
    let default = features.and_then(|features| features.get("default"));
    let is_default = |name: &str| strings(default).any(|other| other == name);
    let stable = features.into_iter().flat_map(Table::keys);
    let stable = stable.filter(|name| *name != "default" && !name.starts_with("unstable"));
    let docs_rs = ["package", "metadata", "docs", "rs"];
    let docs_rs = docs_rs
        .iter()
        .try_fold(&manifest, |table, name| table.get(*name).and_then(Value::as_table));
    let listed = strings(docs_rs.and_then(|table| table.get("features")));
    (
        stable.map(|name| (name.clone(), yes_or_no(is_default(name)))).collect(),
        listed.map(|name| (name.to_owned(), String::new())).collect(),
    )
}

fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn yes_or_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

/// Returns the rows of the table of features, which may stand in the comment of a crate.
pub(crate) fn feature_rows(page: &str) -> Rows {
    let lines = page.lines().map(|line| line.strip_prefix("//! ").unwrap_or(line));
    let rows = lines.skip_while(|line| !line.starts_with(FEATURES));
    let cells = |row: &str| {
        let mut cells = row.split('|').map(str::trim).skip(1);
        Some((cells.next()?.trim_matches('`').to_owned(), cells.next()?.to_owned()))
    };
    // The first two lines are the head.
    rows.take_while(|line| line.starts_with('|')).skip(2).filter_map(cells).collect()
}

/// Describes how the rows of a table differ from what exists.
pub(crate) fn differences(place: &str, what: &str, exists: &Rows, rows: &Rows) -> Vec<String> {
    let missing = exists.keys().filter(|name| !rows.contains_key(*name));
    let missing = missing.map(|name| format!("{place}: there is no row for the {what} `{name}`"));
    let wrong = rows.iter().filter_map(|(name, value)| match exists.get(name) {
        None => Some(format!("{place}: there is a row for `{name}`, which is no {what}")),
        Some(right) if right != value => {
            Some(format!("{place}: the {what} `{name}` has the default `{right}`, not `{value}`"))
        }
        Some(_) => None,
    });
    missing.chain(wrong).collect()
}
