//! Recognizes the return type of a function that returns a future instead of being `async`.

use proc_macro2::TokenStream;
use quote::quote_spanned;
use syn::punctuated::Punctuated;
use syn::{GenericArgument, PathArguments, PathSegment, Token, Type, TypeParamBound};

use crate::hygiene::mixed_span;

/// The future that a function returns.
pub(crate) struct ReturnedFuture {
    /// The type of the values that the future resolves to.
    pub(crate) output: Type,
    /// The whole type, if it is a box: `Pin<Box<dyn Future<Output = ..>>>`.
    pub(crate) boxed: Option<Type>,
}

impl ReturnedFuture {
    /// Returns `None` if the type is not obviously a future: `impl Future`, `Pin<Box<dyn Future>>` (which
    /// `#[async_trait]` writes), or a `BoxFuture` or `LocalBoxFuture` of the crate `futures`.
    pub(crate) fn of(ty: &Type) -> Option<Self> {
        match ty {
            Type::Group(group) => Self::of(&group.elem),
            Type::Paren(inner) => Self::of(&inner.elem),
            Type::ImplTrait(opaque) => Some(Self { output: output(&opaque.bounds)?, boxed: None }),
            Type::Path(path) => {
                let last = path.path.segments.last()?;
                let output = if last.ident == "BoxFuture" || last.ident == "LocalBoxFuture" {
                    argument(last)?.clone()
                } else if last.ident == "Pin" {
                    boxed_output(argument(last)?)?
                } else {
                    return None;
                };
                Some(Self { output, boxed: Some(ty.clone()) })
            }
            _ => None,
        }
    }

    /// Returns the body of a function with this return type. The future runs `body`.
    pub(crate) fn future(&self, body: &TokenStream) -> TokenStream {
        let future = quote_spanned!(mixed_span()=> async move { #body });
        match self.boxed {
            Some(_) => quote_spanned!(mixed_span()=> ::std::boxed::Box::pin(#future)),
            None => future,
        }
    }
}

/// Returns the output of a `Box<dyn Future<Output = ..>>`.
fn boxed_output(ty: &Type) -> Option<Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Box")?;
    match argument(last)? {
        Type::TraitObject(object) => output(&object.bounds),
        _ => None,
    }
}

/// Returns the output of the bound `Future<Output = ..>`.
fn output(bounds: &Punctuated<TypeParamBound, Token![+]>) -> Option<Type> {
    bounds.iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else { return None };
        let last = bound.path.segments.last().filter(|last| last.ident == "Future")?;
        let PathArguments::AngleBracketed(of) = &last.arguments else { return None };
        of.args.iter().find_map(|argument| match argument {
            GenericArgument::AssocType(associated) if associated.ident == "Output" => {
                Some(associated.ty.clone())
            }
            _ => None,
        })
    })
}

/// Returns the first type among the arguments of a generic type.
fn argument(segment: &PathSegment) -> Option<&Type> {
    let PathArguments::AngleBracketed(of) = &segment.arguments else { return None };
    of.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;

    use super::*;

    #[test]
    fn futures_are_recognized() {
        for (written, boxed) in [
            ("impl Future<Output = u8>", false),
            ("impl Send + std::future::Future<Output = u8> + use<'_, Self>", false),
            ("Pin<Box<dyn Future<Output = u8> + Send + 'a>>", true),
            ("::core::pin::Pin<::std::boxed::Box<dyn ::core::future::Future<Output = u8>>>", true),
            ("BoxFuture<'a, u8>", true),
            ("futures::future::LocalBoxFuture<'_, u8>", true),
        ] {
            let future = ReturnedFuture::of(&syn::parse_str(written).unwrap()).unwrap();
            assert_eq!(future.output.to_token_stream().to_string(), "u8", "{written}");
            assert_eq!(future.boxed.is_some(), boxed, "{written}");
        }
        for written in
            ["u8", "Result<(), Error>", "impl Future", "Pin<&mut Work>", "Pin<Box<Work>>"]
        {
            assert!(ReturnedFuture::of(&syn::parse_str(written).unwrap()).is_none(), "{written}");
        }
    }
}
