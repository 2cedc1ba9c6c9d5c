//! Checks that a minor version of a crate may add variants to its public enums, and fields to their variants.
//!
//! For that, each public enum must be `#[non_exhaustive]`, and so must each of its variants with named
//! fields. A variant with unnamed fields never gets another field.

use syn::{Attribute, Fields, Item, ItemEnum, Visibility};

use crate::cfg::only_for_tests;
use crate::tree::SourceFile;

/// Public enums that never get another variant, and so need not be `#[non_exhaustive]`.
const EXHAUSTIVE: [&str; 1] = ["RunError"];

/// Finds public enums that cannot get more variants, and variants that cannot get more fields.
pub(crate) fn check(files: &[SourceFile]) -> Vec<String> {
    let mut findings = Vec::new();
    for SourceFile { path, text } in files {
        // `Tree` has parsed the file already, so an error is impossible.
        let items = syn::parse_file(text).map(|file| file.items).unwrap_or_default();
        for item in public_enums(&items) {
            let name = &item.ident;
            let mut fail = |at: &syn::Ident, what: String| {
                let line = at.span().start().line;
                findings.push(format!("{path}:{line}: {what} is not #[non_exhaustive]"));
            };
            if !is_open(&item.attrs) && !EXHAUSTIVE.iter().any(|exhaustive| name == exhaustive) {
                fail(name, format!("the public enum {name}"));
            }
            for variant in &item.variants {
                if matches!(variant.fields, Fields::Named(_)) && !is_open(&variant.attrs) {
                    fail(&variant.ident, format!("the variant {name}::{}", variant.ident));
                }
            }
        }
    }
    findings
}

fn public_enums(items: &[Item]) -> Vec<&ItemEnum> {
    let mut enums = Vec::new();
    for item in items {
        match item {
            Item::Enum(item) if matches!(item.vis, Visibility::Public(_)) => enums.push(item),
            Item::Mod(module) if !only_for_tests(&module.attrs) => {
                let items = module.content.as_ref().map_or(&[][..], |(_, items)| items);
                enums.extend(public_enums(items));
            }
            _ => {}
        }
    }
    enums
}

fn is_open(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("non_exhaustive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        check(&[SourceFile { path: "a.rs".to_owned(), text: text.to_owned() }])
    }

    #[test]
    fn a_public_enum_that_is_exhaustive_is_found() {
        let finding = "a.rs:1: the public enum A is not #[non_exhaustive]";
        assert_eq!(findings("pub enum A { B(u8), C }"), [finding]);
        assert_eq!(findings("mod m { pub enum A { B } }"), [finding]);
    }

    #[test]
    fn a_variant_that_cannot_get_another_field_is_found() {
        let text =
            "#[non_exhaustive]\npub enum A {\n#[non_exhaustive]\nB { c: u8 },\nD { e: u8 },\n}";
        assert_eq!(findings(text), ["a.rs:5: the variant A::D is not #[non_exhaustive]"]);
        let text = "pub enum RunError { A { b: u8 } }";
        assert_eq!(findings(text), ["a.rs:1: the variant RunError::A is not #[non_exhaustive]"]);
    }

    #[test]
    fn open_and_private_enums_are_no_findings() {
        for text in [
            "#[non_exhaustive] pub enum A { B(u8), C, #[non_exhaustive] D { e: u8 } }",
            "pub(crate) enum A { B { c: u8 } }",
            "enum A { B { c: u8 } }",
            "pub enum RunError { A(u8) }",
            "#[cfg(test)] mod tests { pub enum A { B } }",
        ] {
            assert_eq!(findings(text), [""; 0], "{text}");
        }
    }
}
