//! The tables of options in the documents have a row for each option that exists, and for no other.

use std::collections::BTreeSet;
use std::fs;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The table with all options.
const ALL: &str = "redlock-axum/docs/options.md";
/// The table with the arguments of the attribute, and its heading.
const ARGUMENTS: (&str, &str) = ("README.md", "## The attribute");

/// Where the code lists names of options: a file, and the name of a constant, a function or a called macro.
const OF_LOCK: Source = ("redlock-core/src/options/fields.rs", "fields");
const OF_POLICY: Source = ("redlock-axum/src/policy/de.rs", "OWN_FIELDS");
const OF_ATTRIBUTE: [Source; 4] = [
    ("redlock-macros/src/options.rs", "LOCK_OPTIONS"),
    ("redlock-macros/src/options.rs", "OTHER_OPTIONS"),
    ("redlock-macros/src/http.rs", "NAMES"),
    ("redlock-macros/src/arguments.rs", "known_arguments"),
];

type Source = (&'static str, &'static str);
type Names = BTreeSet<String>;

/// Finds options that a table lacks, and rows of options that do not exist.
pub(crate) fn check() -> Vec<String> {
    check_tables().unwrap_or_else(|error| vec![error])
}

fn check_tables() -> Result<Vec<String>, String> {
    let of_lock = listed(OF_LOCK)?;
    let mut arguments = of_lock.clone();
    for source in OF_ATTRIBUTE {
        arguments.append(&mut listed(source)?);
    }
    let mut all = arguments.clone();
    all.append(&mut listed(OF_POLICY)?);

    let (readme, heading) = ARGUMENTS;
    let mut findings = differences(ALL, &all, &rows(&read(ALL)?));
    let of_attribute = rows(section(&read(readme)?, heading));
    findings.extend(differences(readme, &arguments, &of_attribute));
    Ok(findings)
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

/// Returns the names that a source lists.
fn listed((path, item): Source) -> Result<Names, String> {
    let names = names(&read(path)?, item);
    if names.is_empty() {
        return Err(format!("{path}: found no names of options in {item}"));
    }
    Ok(names)
}

/// Returns the names in the item `item`. In a macro call they are the names before a colon. In a constant or a
/// function they are strings, or the words between backticks of a longer string.
fn names(code: &str, item: &str) -> Names {
    let code = code.parse::<TokenStream>().unwrap_or_default();
    let code: Vec<_> = code.into_iter().collect();
    let mut names = Names::new();
    for (index, window) in code.windows(3).enumerate() {
        let is = |token: &TokenTree, text: &str| token.to_string() == text;
        let [first, second, third] = window else { continue };
        let is_call = is(first, item) && is(second, "!");
        let is_definition = (is(first, "const") || is(first, "fn")) && is(second, item);
        if is_call && let TokenTree::Group(fields) = third {
            add_fields(fields.stream(), &mut names);
        } else if is_definition {
            let end =
                code[index..].iter().position(is_end).map_or(code.len(), |end| index + end + 1);
            add_strings(code[index..end].iter().cloned().collect(), &mut names);
        }
    }
    names
}

/// Returns whether the token ends a constant or a function.
fn is_end(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(end) => end.as_char() == ';',
        _ => false,
    }
}

fn add_fields(tokens: TokenStream, names: &mut Names) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    for pair in tokens.windows(2) {
        if let [TokenTree::Ident(name), TokenTree::Punct(colon)] = pair
            && colon.as_char() == ':'
        {
            names.insert(name.to_string());
        }
    }
}

fn add_strings(tokens: TokenStream, names: &mut Names) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => add_strings(group.stream(), names),
            TokenTree::Literal(literal) => {
                if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                    let text = text.value();
                    names.extend(quoted(&text).chain([text.as_str()]).filter_map(name));
                }
            }
            _ => {}
        }
    }
}

/// Returns the part of the text below the heading.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let start = text.find(&format!("{heading}\n")).map_or(text.len(), |at| at + heading.len());
    let text = &text[start..];
    &text[..text.find("\n## ").unwrap_or(text.len())]
}

/// Returns the names in the first column of the tables: the first word of each code span.
fn rows(text: &str) -> Names {
    let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    cells.flat_map(quoted).filter_map(|code| name(code.split([' ', '(']).next()?)).collect()
}

/// Returns the parts of the text between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the text if it is the name of an option.
fn name(text: &str) -> Option<String> {
    let is_name = |character: char| character.is_ascii_lowercase() || character == '_';
    (!text.is_empty() && text.chars().all(is_name)).then(|| text.to_owned())
}

fn differences(path: &str, options: &Names, rows: &Names) -> Vec<String> {
    let missing = options
        .difference(rows)
        .map(|name| format!("{path}: the table of options has no row for `{name}`"));
    let unknown = rows.difference(options).map(|name| {
        format!("{path}: the table of options has a row for `{name}`, which is no option")
    });
    missing.chain(unknown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> Names {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_names_in_code_are_found() {
        let code = r#"
            macro_rules! fields { ($($name:ident: $value:ty,)*) => {}; }
            fields! { expire: Time, wait_time: Option<Wait>, }
            const OPTIONS: [(&str, Parse); 2] = [("renew", switch), ("max_hold", time)];
            fn known() -> String { format!("the arguments are `key`, {} and `crate`", list()) }
            const OTHER: &str = "other";
        "#;
        assert_eq!(names(code, "fields"), set(&["expire", "wait_time"]));
        assert_eq!(names(code, "OPTIONS"), set(&["renew", "max_hold"]));
        assert_eq!(names(code, "known"), set(&["key", "crate"]));
        assert_eq!(names(code, "MOVED"), set(&[]));
    }

    #[test]
    fn a_row_names_its_options_in_the_first_column() {
        let table = "text about `text`\n| option | meaning |\n|---|---|\n| `key = \"{id}\"`, `key(\"{}\", id)` | |\n\
                     | `renew`, `max_hold = 60` | as `watchdog` |\n| plain | |\n";
        assert_eq!(rows(table), set(&["key", "renew", "max_hold"]));
    }

    #[test]
    fn only_the_section_with_the_heading_counts() {
        let text = "## A\n| `a` | |\n## B\n| `b` | |\n### C\n| `c` | |\n## D\n| `d` | |\n";
        assert_eq!(rows(section(text, "## B")), set(&["b", "c"]));
        assert_eq!(rows(section(text, "## D")), set(&["d"]));
        assert_eq!(rows(section(text, "## E")), set(&[]));
    }

    #[test]
    fn a_missing_row_and_an_unknown_row_are_found() {
        let options = set(&["expire", "keep"]);
        assert_eq!(differences("a.md", &options, &options), [""; 0]);
        assert_eq!(
            differences("a.md", &options, &set(&["expire", "lease"])),
            [
                "a.md: the table of options has no row for `keep`",
                "a.md: the table of options has a row for `lease`, which is no option",
            ]
        );
    }
}
