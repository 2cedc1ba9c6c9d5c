//! Generates options that the compiler evaluates and checks when it compiles the attribute.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Expr, GenericParam, Signature};

use crate::hygiene::{span_at, with_span};
use crate::key::collect_names;

/// Options that are a constant of the generated code.
pub(crate) struct Evaluated<'a> {
    /// The name of the constant.
    pub(crate) name: Ident,
    /// The type of the options.
    pub(crate) ty: TokenStream,
    pub(crate) value: TokenStream,
    pub(crate) checks: Vec<Check>,
    /// The constants of the user in the value, each with the function that explains why a wrong type is refused.
    pub(crate) constants: Vec<(&'a Expr, TokenStream)>,
}

/// A check of one option.
pub(crate) struct Check {
    /// The span at which a broken rule is reported.
    pub(crate) span: Span,
    /// The function that panics if a rule is broken.
    pub(crate) assertion: TokenStream,
    /// The arguments of the function after the options.
    pub(crate) arguments: TokenStream,
}

impl Evaluated<'_> {
    /// Returns an expression for the options of the function with this signature.
    pub(crate) fn expression(&self, signature: &Signature) -> TokenStream {
        let Self { name, ty, value, checks, constants } = self;
        let types = constants.iter().map(|(constant, expect)| {
            let expect = with_span(span_at(constant), expect.clone());
            quote_spanned!(span_at(constant)=> #expect(&#constant);)
        });
        let types = (!constants.is_empty()).then(|| quote!(let _ = || { #(#types)* };));
        let is_generic = constants.iter().any(|(constant, _)| is_generic(constant, signature));
        let checks = checks.iter().map(|Check { span, assertion, arguments }| {
            let assertion = with_span(*span, assertion.clone());
            if is_generic {
                quote_spanned!(*span=> const { #assertion(&#value #arguments) };)
            } else {
                quote_spanned!(*span=> const _: () = #assertion(&#name #arguments);)
            }
        });
        if is_generic {
            return quote!({ #types #(#checks)* const { #value } });
        }
        quote! {{
            const #name: #ty = #value;
            #(#checks)*
            #types
            #name
        }}
    }
}

/// Returns whether a constant names `Self` or a generic parameter of the function.
///
/// An item could not refer to them, but a `const` block can. The compiler evaluates a block only when it builds
/// the program, not when it checks it, and in a generic function only if the function is used.
fn is_generic(constant: &Expr, signature: &Signature) -> bool {
    let mut names = BTreeSet::new();
    collect_names(constant.to_token_stream(), &mut names);
    let mut generics = signature.generics.params.iter().filter_map(|parameter| match parameter {
        GenericParam::Type(parameter) => Some(&parameter.ident),
        GenericParam::Const(parameter) => Some(&parameter.ident),
        GenericParam::Lifetime(_) => None,
    });
    names.contains("Self") || generics.any(|generic| names.contains(&generic.unraw().to_string()))
}
