//! Distributes the function's other attributes between the outer and the inner function.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::quote;
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token, parse_quote};

/// Returns the attributes of the outer function, which callers see. The inner function is inside of it, so the
/// lints of the outer function apply to both.
pub(crate) fn of_outer(attributes: &[Attribute]) -> Vec<&Attribute> {
    attributes.iter().filter(|attribute| describes(attribute)).collect()
}

/// Returns the attributes of the inner function, which contains the user's code.
pub(crate) fn of_inner(attributes: &[Attribute], name: &Ident) -> Vec<Attribute> {
    attributes
        .iter()
        .filter(|attribute| !describes(attribute))
        .map(|attribute| named_span(attribute, name))
        .collect()
}

/// Returns the attributes in the order in which the compiler must expand them, so that each contains the ones
/// below it. `None` if there are no attributes that change the function, or if they have that order already.
///
/// The compiler expands the first attribute first. In a function whose code stays in place, the attribute that is
/// expanded last surrounds the others.
pub(crate) fn reversed(attributes: &[Attribute], last: Attribute) -> Option<Vec<Attribute>> {
    let (mut reversed, changing): (Vec<_>, Vec<_>) =
        attributes.iter().cloned().partition(describes);
    if changing.is_empty() || is_reversed(attributes) {
        return None;
    }
    reversed.extend(changing.into_iter().rev());
    reversed.push(last);
    Some(reversed)
}

/// Returns whether another `#[redis_lock]` has reversed the attributes.
pub(crate) fn is_reversed(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| is_last_segment(attribute, "redis_lock_last"))
}

/// Returns a second `#[redis_lock]` without `manager`. It would make the inner function a handler, too,
/// but axum calls only the outer function.
pub(crate) fn second_handler_lock(attributes: &[Attribute]) -> Option<&Attribute> {
    attributes.iter().find(|attribute| {
        is_last_segment(attribute, "redis_lock") && !has_argument(attribute, "manager")
    })
}

/// Returns whether the attribute does not change the code of the function: documentation, deprecation,
/// conditional compilation and lint levels. `#[instrument]`, `#[debug_handler]` and every attribute that is
/// unknown here change it.
fn describes(attribute: &Attribute) -> bool {
    const DESCRIBING: [&str; 9] =
        ["doc", "deprecated", "must_use", "cfg", "allow", "warn", "deny", "forbid", "expect"];
    DESCRIBING.iter().any(|name| attribute.path().is_ident(name)) || documents_by_cfg(attribute)
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

    #[test]
    fn each_attribute_goes_to_the_right_function() {
        let name = Ident::new("pay", proc_macro2::Span::call_site());
        let outer: [Attribute; 6] = [
            parse_quote!(#[doc = "Pays."]),
            parse_quote!(#[deprecated]),
            parse_quote!(#[cfg_attr(docsrs, doc(cfg(feature = "x")))]),
            parse_quote!(#[cfg(unix)]),
            parse_quote!(#[allow(dead_code)]),
            parse_quote!(#[expect(dead_code)]),
        ];
        let inner: [Attribute; 3] = [
            parse_quote!(#[tracing::instrument(name = "p")]),
            parse_quote!(#[cfg_attr(debug_assertions, axum::debug_handler)]),
            parse_quote!(#[inline]),
        ];
        let all = [&outer[..], &inner].concat();
        assert_eq!(of_outer(&all), outer.iter().collect::<Vec<_>>());
        assert_eq!(of_inner(&all, &name), inner);
    }

    #[test]
    fn attributes_that_change_the_function_are_reversed_once() {
        let [doc, instrument, lock]: [Attribute; 3] = [
            parse_quote!(#[doc = "Pays."]),
            parse_quote!(#[instrument]),
            parse_quote!(#[redis_lock(key = "b", manager = m)]),
        ];
        let last: Attribute = parse_quote!(#[x::redis_lock_last(key = "a", manager = m)]);
        assert_eq!(reversed(std::slice::from_ref(&doc), last.clone()), None);
        let written = [instrument.clone(), doc.clone(), lock.clone()];
        let expected = vec![doc, lock, instrument, last.clone()];
        assert_eq!(reversed(&written, last.clone()).as_ref(), Some(&expected));
        assert_eq!(reversed(&expected, last), None);
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
