//! Distributes the function's other attributes between the outer and the inner function.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::quote;
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Meta, Token, parse_quote};

/// Returns the attributes of the outer function, which callers see. If `nested`, the inner function is
/// inside of it, so the lints of the outer function apply to both.
pub(crate) fn of_outer(attributes: &[Attribute], nested: bool) -> Vec<Attribute> {
    attributes
        .iter()
        .filter_map(|attribute| match Target::of(attribute, nested) {
            Target::Outer | Target::Both => Some(attribute.clone()),
            Target::Inner => None,
            Target::Expected => Some(allowed(attribute)),
        })
        .collect()
}

/// Returns the attributes of the inner function, which contains the user's code.
pub(crate) fn of_inner(attributes: &[Attribute], nested: bool, name: &Ident) -> Vec<Attribute> {
    attributes
        .iter()
        .filter(|attribute| Target::of(attribute, nested) != Target::Outer)
        .map(|attribute| named_span(attribute, name))
        .collect()
}

/// Returns a second `#[redis_lock]` without `manager`. It would make the inner function a handler, too,
/// but axum calls only the outer function.
pub(crate) fn second_handler_lock(attributes: &[Attribute]) -> Option<&Attribute> {
    attributes.iter().find(|attribute| {
        is_last_segment(attribute, "redis_lock") && !has_argument(attribute, "manager")
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// On the outer function: documentation and deprecation.
    Outer,
    /// On the inner function: `#[instrument]`, `#[debug_handler]` and every attribute that is unknown here.
    Inner,
    /// On both functions: conditional compilation and lint levels.
    Both,
    /// `#[expect]` on the inner function and `#[allow]` on the outer one, in which the lint may not occur.
    Expected,
}

impl Target {
    fn of(attribute: &Attribute, nested: bool) -> Self {
        let path = attribute.path();
        let is = |names: &[&str]| names.iter().any(|name| path.is_ident(name));
        if is(&["doc", "deprecated", "must_use"]) || documents_by_cfg(attribute) {
            Self::Outer
        } else if is(&["cfg", "allow", "warn", "deny", "forbid"]) {
            if nested { Self::Outer } else { Self::Both }
        } else if is(&["expect"]) {
            if nested { Self::Outer } else { Self::Expected }
        } else {
            Self::Inner
        }
    }
}

/// Turns `#[expect(..)]` into `#[allow(..)]`.
fn allowed(expected: &Attribute) -> Attribute {
    let mut allowed = expected.clone();
    if let Meta::List(list) = &mut allowed.meta {
        list.path = Ident::new("allow", list.path.span()).into();
    }
    allowed
}

/// Returns whether the attribute adds only documentation or a deprecation, as
/// `#[cfg_attr(docsrs, doc(..))]` does.
fn documents_by_cfg(attribute: &Attribute) -> bool {
    let parse = Punctuated::<Meta, Token![,]>::parse_terminated;
    attribute.path().is_ident("cfg_attr")
        && attribute.parse_args_with(parse).is_ok_and(|metas| {
            let mut attributes = metas.iter().skip(1);
            attributes.all(|meta| meta.path().is_ident("doc") || meta.path().is_ident("deprecated"))
        })
}

/// Adds the name of the user's function to an `#[instrument]` without a name.
///
/// `#[instrument]` names its span after the function, but the inner function has a generated name.
fn named_span(attribute: &Attribute, name: &Ident) -> Attribute {
    let name = name.unraw().to_string();
    let mut attribute = attribute.clone();
    if !is_last_segment(&attribute, "instrument") {
        return attribute;
    }
    match &mut attribute.meta {
        Meta::Path(path) => attribute.meta = parse_quote!(#path(name = #name)),
        Meta::List(list) if !has_span_name(&list.tokens) => {
            let written = &list.tokens;
            list.tokens = quote!(name = #name, #written);
        }
        _ => {}
    }
    attribute
}

fn has_span_name(arguments: &TokenStream) -> bool {
    let begins_with_text =
        matches!(arguments.clone().into_iter().next(), Some(TokenTree::Literal(_)));
    begins_with_text || has_name(arguments, "name")
}

fn is_last_segment(attribute: &Attribute, name: &str) -> bool {
    let last = attribute.path().segments.last();
    last.is_some_and(|segment| segment.ident == name)
}

fn has_argument(attribute: &Attribute, name: &str) -> bool {
    match &attribute.meta {
        Meta::List(list) => has_name(&list.tokens, name),
        _ => false,
    }
}

/// Returns whether the arguments contain `name =`, at the start or after a comma.
fn has_name(arguments: &TokenStream, name: &str) -> bool {
    let mut starts = true;
    arguments.clone().into_iter().any(|token| {
        let found = starts && matches!(&token, TokenTree::Ident(ident) if ident == name);
        starts = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ',');
        found
    })
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;

    use super::*;

    fn places(attribute: &Attribute) -> (Target, Target) {
        (Target::of(attribute, true), Target::of(attribute, false))
    }

    #[test]
    fn each_attribute_goes_to_the_right_function() {
        use Target::{Both, Expected, Inner, Outer};

        let cases: [(Attribute, (Target, Target)); 9] = [
            (parse_quote!(#[doc = "Pays."]), (Outer, Outer)),
            (parse_quote!(#[deprecated]), (Outer, Outer)),
            (parse_quote!(#[cfg_attr(docsrs, doc(cfg(feature = "x")))]), (Outer, Outer)),
            (parse_quote!(#[cfg(unix)]), (Outer, Both)),
            (parse_quote!(#[allow(dead_code)]), (Outer, Both)),
            (parse_quote!(#[expect(dead_code)]), (Outer, Expected)),
            (parse_quote!(#[tracing::instrument]), (Inner, Inner)),
            (parse_quote!(#[cfg_attr(debug_assertions, axum::debug_handler)]), (Inner, Inner)),
            (parse_quote!(#[inline]), (Inner, Inner)),
        ];
        for (attribute, expected) in cases {
            assert_eq!(places(&attribute), expected, "{}", attribute.to_token_stream());
        }
    }

    #[test]
    fn an_expect_for_one_function_becomes_an_allow_on_the_other() {
        let written: Attribute = parse_quote!(#[expect(deprecated, reason = "old")]);
        let outer: Attribute = parse_quote!(#[allow(deprecated, reason = "old")]);
        let name = Ident::new("pay", proc_macro2::Span::call_site());
        let written = [written];
        assert_eq!(of_outer(&written, false), [outer]);
        assert_eq!(of_inner(&written, false, &name), written);
        assert_eq!(of_outer(&written, true), written);
        assert!(of_inner(&written, true, &name).is_empty());
    }

    #[test]
    fn a_span_gets_the_name_of_the_function_unless_it_has_a_name() {
        let name = Ident::new("pay", proc_macro2::Span::call_site());
        let cases: [(Attribute, Attribute); 5] = [
            (parse_quote!(#[instrument]), parse_quote!(#[instrument(name = "pay")])),
            (parse_quote!(#[instrument()]), parse_quote!(#[instrument(name = "pay",)])),
            (
                parse_quote!(#[tracing::instrument(skip(name), err)]),
                parse_quote!(#[tracing::instrument(name = "pay", skip(name), err)]),
            ),
            (
                parse_quote!(#[instrument(skip_all, name = "p")]),
                parse_quote!(#[instrument(skip_all, name = "p")]),
            ),
            (parse_quote!(#[instrument("p")]), parse_quote!(#[instrument("p")])),
        ];
        for (written, expected) in cases {
            let named = named_span(&written, &name);
            assert_eq!(named.to_token_stream().to_string(), expected.to_token_stream().to_string());
        }
    }
}
