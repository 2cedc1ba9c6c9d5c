//! Checks that each name of a type is defined once in the product crates, so that a reader who searches for
//! a name finds one type.
//!
//! Types are structs, enums, unions, traits and type aliases, also those in the call of a macro such as
//! `pin_project!`. Associated types and types in the body of a function have a narrow scope and are not
//! checked.

use std::collections::BTreeMap;

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::Item;

use crate::cfg::only_for_tests;
use crate::tree::SourceFile;

/// The keywords before the name of a type.
const KEYWORDS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

/// Finds types with the name of an earlier type.
pub(crate) fn check(files: &[SourceFile]) -> Vec<String> {
    let mut first = BTreeMap::new();
    let mut findings = Vec::new();
    for SourceFile { path, text } in files {
        // `Tree` has parsed the file already, so an error is impossible.
        let items = syn::parse_file(text).map(|file| file.items).unwrap_or_default();
        let mut names = Vec::new();
        collect(&items, &mut names);
        for name in names {
            let place = format!("{path}:{}", name.span().start().line);
            if let Some(other) = first.get(&name) {
                findings.push(format!("{place}: {other} defines a type {name}, too"));
            } else {
                first.insert(name, place);
            }
        }
    }
    findings
}

/// Collects the names of the types among the items and in their inline modules.
fn collect(items: &[Item], names: &mut Vec<Ident>) {
    for item in items {
        let (attributes, name) = match item {
            Item::Struct(item) => (&item.attrs, &item.ident),
            Item::Enum(item) => (&item.attrs, &item.ident),
            Item::Union(item) => (&item.attrs, &item.ident),
            Item::Trait(item) => (&item.attrs, &item.ident),
            Item::Type(item) => (&item.attrs, &item.ident),
            Item::Mod(module) if !only_for_tests(&module.attrs) => {
                collect(module.content.as_ref().map_or(&[][..], |(_, items)| items), names);
                continue;
            }
            // A `macro_rules!` has an identifier. What it defines is unknown.
            Item::Macro(item) if item.ident.is_none() && !only_for_tests(&item.attrs) => {
                names.extend(in_macro(item.mac.tokens.clone()));
                continue;
            }
            _ => continue,
        };
        if !only_for_tests(attributes) {
            names.push(name.clone());
        }
    }
}

/// Finds the types in the call of a macro. Groups are skipped: they are bodies, fields and attributes.
fn in_macro(tokens: TokenStream) -> Vec<Ident> {
    let mut names = Vec::new();
    let mut follows_keyword = false;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if follows_keyword => {
                names.push(ident);
                follows_keyword = false;
            }
            TokenTree::Ident(ident) => {
                follows_keyword = KEYWORDS.iter().any(|keyword| ident == keyword);
            }
            _ => follows_keyword = false,
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| SourceFile {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        check(&files.iter().map(file).collect::<Vec<_>>())
    }

    #[test]
    fn two_types_of_one_name_are_found() {
        for second in [
            "\nstruct A;",
            "\npub enum A {}",
            "\nunion A { b: u8 }",
            "\npub(crate) trait A {}",
            "\ntype A = u8;",
            "mod m {\nstruct A; }",
            "pin_project! {\n#[project = B] pub struct A<T> { c: T } }",
        ] {
            let found = findings(&[("a.rs", "pub struct A(u8);"), ("b.rs", second)]);
            assert_eq!(found, ["b.rs:2: a.rs:1 defines a type A, too"], "{second}");
        }
    }

    #[test]
    fn two_types_of_one_name_in_one_file_are_found() {
        let found = findings(&[("a.rs", "mod b { struct A; }\nmod c { struct A; }")]);
        assert_eq!(found, ["a.rs:2: a.rs:1 defines a type A, too"]);
    }

    #[test]
    fn names_of_other_things_are_no_findings() {
        for second in [
            "struct B { a: A }",
            "impl Iterator for B { type A = u8; }",
            "trait B { type A; }",
            "fn f() { struct A; }",
            "fn A() {}",
            "mod A {}",
            "use a::A;",
            "macro_rules! m { () => { struct A; } }",
            "m! { struct B { a: A } fn f() { struct A; } }",
            "#[cfg(test)] struct A;",
            "#[cfg(test)] mod tests { struct A; }",
            "#[cfg(doctest)] struct A;",
        ] {
            let found = findings(&[("a.rs", "pub struct A;"), ("b.rs", second)]);
            assert_eq!(found, [""; 0], "{second}");
        }
    }
}
