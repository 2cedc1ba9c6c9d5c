//! Finds code that only tests or rustdoc compile.

use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

/// Returns whether an item with these attributes is compiled for tests or rustdoc only.
pub(crate) fn only_for_tests(attributes: &[Attribute]) -> bool {
    let cfgs = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    cfgs.filter_map(|cfg| cfg.parse_args().ok()).any(|condition| needs_tests(&condition))
}

/// Returns whether a condition holds for tests or rustdoc only.
fn needs_tests(condition: &Meta) -> bool {
    let parts = |list: &syn::MetaList| {
        list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default()
    };
    match condition {
        Meta::Path(path) => ["test", "doc", "doctest"].iter().any(|name| path.is_ident(name)),
        Meta::List(list) if list.path.is_ident("all") => parts(list).iter().any(needs_tests),
        Meta::List(list) if list.path.is_ident("any") => parts(list).iter().all(needs_tests),
        _ => false,
    }
}
