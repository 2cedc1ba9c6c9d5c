//! Rules about the types of the product crates.
//!
//! * Each name of a type is defined once, so that a reader who searches for a name finds one type. Types are structs,
//!   enums, unions, traits and type aliases, also those in the call of a macro such as `pin_project!`. Associated types
//!   and types in the body of a function have a narrow scope and are not checked.
//! * Variants of public enums can get more fields: a variant with named fields is `#[non_exhaustive]`. Clippy checks that
//!   the enums can get more variants (`exhaustive_enums`), but not this.

use std::collections::BTreeMap;

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::{Fields, Item, ItemEnum, Visibility};

use crate::code::SourceFile;

/// The keywords before the name of a type.
const KEYWORDS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

/// Finds types with the name of an earlier type, and variants that cannot get another field.
pub(crate) fn check(files: &[SourceFile]) -> Vec<String> {
    let mut first = BTreeMap::new();
    let mut findings = Vec::new();
    for SourceFile { path, code } in files {
        // `Tree` has parsed the file already, so an error is impossible.
        let items = syn::parse2(code.clone()).map_or(Vec::new(), |file: syn::File| file.items);
        let mut types = Types::default();
        types.collect(&items);
        let place = |name: &Ident| format!("{path}:{}", name.span().start().line);
        for variant in types.closed_variants {
            findings.push(format!("{}: {variant} is not #[non_exhaustive]", place(&variant)));
        }
        for name in types.names {
            let place = place(&name);
            if let Some(other) = first.get(&name) {
                findings.push(format!("{place}: {other} defines a type {name}, too"));
            } else {
                first.insert(name, place);
            }
        }
    }
    findings
}

#[derive(Default)]
struct Types {
    names: Vec<Ident>,
    closed_variants: Vec<Ident>,
}

impl Types {
    /// Collects the types among the items and in their inline modules.
    fn collect(&mut self, items: &[Item]) {
        for item in items {
            let name = match item {
                Item::Struct(item) => &item.ident,
                Item::Union(item) => &item.ident,
                Item::Trait(item) => &item.ident,
                Item::Type(item) => &item.ident,
                Item::Enum(item) => {
                    self.closed_variants.extend(closed_variants(item));
                    &item.ident
                }
                Item::Mod(module) => {
                    self.collect(module.content.as_ref().map_or(&[], |(_, items)| items));
                    continue;
                }
                // A `macro_rules!` has an identifier. The rule cannot see the items of its calls.
                Item::Macro(item) if item.ident.is_none() => {
                    self.names.extend(in_macro(item.mac.tokens.clone()));
                    continue;
                }
                _ => continue,
            };
            self.names.push(name.clone());
        }
    }
}

fn closed_variants(item: &ItemEnum) -> impl Iterator<Item = Ident> {
    let is_public = matches!(item.vis, Visibility::Public(_));
    let closed = item.variants.iter().filter(move |variant| {
        let is_open = || variant.attrs.iter().any(|at| at.path().is_ident("non_exhaustive"));
        is_public && matches!(variant.fields, Fields::Named(_)) && !is_open()
    });
    closed.map(|variant| variant.ident.clone())
}

/// Finds the types in the call of a macro. Groups are skipped: they are bodies, fields and attributes.
fn in_macro(tokens: TokenStream) -> Vec<Ident> {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let names = tokens.windows(2).filter_map(|pair| match pair {
        [TokenTree::Ident(keyword), TokenTree::Ident(name)]
            if KEYWORDS.iter().any(|known| keyword == known) =>
        {
            Some(name.clone())
        }
        _ => None,
    });
    names.collect()
}
