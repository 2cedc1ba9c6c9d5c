//! Generates the code of functions whose code stays in the function itself, in an `async` block.
//!
//! An inner function would be a second method, which an `impl Trait for ..` cannot have, and a nested function
//! has no `self` and no `Self`. In a block, both mean the same as before.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{GenericArgument, Pat, PathArguments, Type, parse_quote};

use crate::bindings::{Parameter, Parameters};
use crate::expand::{Expansion, braced};
use crate::hygiene::{local, mixed_span, span_at};

impl Expansion<'_> {
    /// Returns an `async` block that contains the user's code.
    ///
    /// All parameters move into the block, so that they are dropped at its end, before the release.
    pub(crate) fn block(&self) -> TokenStream {
        let function = self.function;
        let this = function.signature.receiver().map(|receiver| {
            let this = receiver.self_token;
            quote_spanned!(mixed_span()=> let _ = &#this;)
        });
        let (bound, use_names, body) =
            (bound(&self.parameters), self.parameters.use_names(), &function.body);
        let code = match &function.returned_future {
            None => {
                let typed = self.typed_block();
                quote!(#typed #this #bound #use_names #body)
            }
            // The code returns a future. In a closure it can also return from its middle.
            Some(returned) => {
                let closure = braced(function.brace.join(), quote!(#bound #use_names #body));
                let output = match &returned.boxed {
                    Some(ty) => {
                        let ty = without_impl(ty, &parse_quote!(_));
                        quote!(-> #ty)
                    }
                    None => quote!(),
                };
                quote_spanned!(mixed_span()=> #this (move || #output #closure)().await)
            }
        };
        let block = braced(function.brace.join(), code);
        quote_spanned!(mixed_span()=> async move #block)
    }

    /// Returns a statement that never returns, but gives the `async` block around it the function's return type.
    /// Otherwise the compiler would have to infer the type, and could not always do so.
    pub(crate) fn typed_block(&self) -> Option<TokenStream> {
        let ty = self.function.output();
        let ty = without_impl(&ty, &parse_quote!(_));
        if matches!(ty, Type::Infer(_)) {
            return None;
        }
        let span = span_at(&ty);
        let mut output = local("output");
        output.set_span(span);
        Some(quote_spanned! {span=>
            if let ::core::option::Option::Some(#output) = ::core::option::Option::None::<#ty> {
                return #output;
            }
        })
    }
}

/// Returns statements that move the parameters into the block around them and bind the user's patterns, as the
/// beginning of an `async fn` does.
fn bound(parameters: &Parameters<'_>) -> Option<TokenStream> {
    if parameters.kept {
        return None;
    }
    let (plain, others): (Vec<_>, Vec<_>) =
        parameters.iter().partition(|parameter| matches!(*parameter.written.pat, Pat::Ident(_)));
    let names = plain.iter().map(|parameter| &parameter.outer_name);
    let patterns = plain.iter().map(|parameter| &parameter.written.pat);
    // One tuple for all, because Clippy reports `let id = id;` and `let _id = arg;`.
    let plain = (!plain.is_empty())
        .then(|| quote_spanned!(mixed_span()=> let (#(#patterns,)*) = (#(#names,)*);));
    let others = others.iter().map(|Parameter { written, outer_name, .. }| {
        let pattern = &written.pat;
        quote_spanned! {mixed_span()=>
            let #outer_name = #outer_name;
            let #pattern = #outer_name;
        }
    });
    Some(quote!(#(#others)* #plain))
}

/// Replaces each `impl Trait` by another type, because only a signature can contain it.
pub(crate) fn without_impl(ty: &Type, other: &Type) -> Type {
    let mut ty = ty.clone();
    replace_impl(&mut ty, other);
    ty
}

fn replace_impl(ty: &mut Type, other: &Type) {
    match ty {
        Type::ImplTrait(_) => *ty = other.clone(),
        Type::Array(array) => replace_impl(&mut array.elem, other),
        Type::Group(group) => replace_impl(&mut group.elem, other),
        Type::Paren(inner) => replace_impl(&mut inner.elem, other),
        Type::Reference(reference) => replace_impl(&mut reference.elem, other),
        Type::Slice(slice) => replace_impl(&mut slice.elem, other),
        Type::Tuple(tuple) => tuple.elems.iter_mut().for_each(|ty| replace_impl(ty, other)),
        Type::Path(path) => path.path.segments.iter_mut().for_each(|segment| {
            if let PathArguments::AngleBracketed(of) = &mut segment.arguments {
                for argument in &mut of.args {
                    match argument {
                        GenericArgument::Type(ty) => replace_impl(ty, other),
                        GenericArgument::AssocType(associated) => {
                            replace_impl(&mut associated.ty, other);
                        }
                        _ => {}
                    }
                }
            }
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;

    use super::*;

    #[test]
    fn an_impl_in_a_type_is_inferred() {
        for (written, expected) in [
            ("Result<impl Into<u8>, Error>", "Result<_,Error>"),
            ("(u8, &[impl Copy])", "(u8,&[_])"),
            ("Result<Box<dyn Fn() -> u8>, Error>", "Result<Box<dyn Fn()->u8>,Error>"),
        ] {
            let ty = without_impl(&syn::parse_str(written).unwrap(), &parse_quote!(_));
            assert_eq!(
                ty.to_token_stream().to_string().replace(' ', ""),
                expected.replace(' ', "")
            );
        }
    }
}
