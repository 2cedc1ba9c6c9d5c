//! Parses the function under the attribute. Its body is not parsed and stays an unchanged list of tokens.

use proc_macro2::TokenStream;
use proc_macro2::extra::DelimSpan;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, FnArg, GenericArgument, PatType, PathArguments, PathSegment, ReturnType, Safety,
    Signature, Token, Type, TypeGroup, TypeParamBound, TypeParen, Visibility, braced, parse_quote,
};

/// A function that can be locked.
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    /// The attributes `#![..]` at the beginning of the body.
    pub(crate) inner_attributes: Vec<Attribute>,
    pub(crate) body: TokenStream,
    pub(crate) brace: DelimSpan,
    /// The future that the function returns, if it is not `async`.
    pub(crate) returned_future: Option<ReturnedFuture>,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let start = input.span();
        let not_a_function = |_| {
            syn::Error::new(start, "`#[redis_lock]` locks a function with a body: an `async fn`")
        };
        let signature: Signature = input.parse().map_err(not_a_function)?;
        if let Some(semicolon) = input.parse::<Option<Token![;]>>()? {
            return Err(syn::Error::new(
                semicolon.span,
                "the function has no body; put `#[redis_lock]` on the implementation",
            ));
        }
        let content;
        let brace = braced!(content in input).span;
        let returned_future = match &signature.output {
            ReturnType::Type(_, ty) if signature.asyncness.is_none() => ReturnedFuture::of(ty),
            _ => None,
        };
        let function = Self {
            attributes,
            visibility,
            signature,
            inner_attributes: content.call(Attribute::parse_inner)?,
            body: content.parse()?,
            brace,
            returned_future,
        };
        function.check()?;
        Ok(function)
    }
}

impl Function {
    fn check(&self) -> syn::Result<()> {
        let signature = &self.signature;
        if let Some(constness) = &signature.constness {
            return Err(syn::Error::new_spanned(
                constness,
                "a `const fn` cannot wait for a lock; it must be an `async fn`",
            ));
        }
        if signature.asyncness.is_none() && self.returned_future.is_none() {
            return Err(syn::Error::new_spanned(
                signature.fn_token,
                "a lock is awaited, so the function must be an `async fn`, or return an \
                 `impl Future<Output = ..>` or a `Pin<Box<dyn Future<Output = ..>>>`",
            ));
        }
        if !matches!(signature.safety, Safety::Default) {
            return Err(syn::Error::new_spanned(
                &signature.safety,
                "an `unsafe fn` cannot be locked; lock a safe function that calls it",
            ));
        }
        if let Some(abi) = &signature.abi {
            return Err(syn::Error::new_spanned(abi, "an `extern` function cannot be locked"));
        }
        let attributes = signature.inputs.iter().flat_map(|parameter| match parameter {
            FnArg::Receiver(receiver) => &receiver.attrs,
            FnArg::Typed(typed) => &typed.attrs,
        });
        let is_cfg = |attribute: &&Attribute| {
            attribute.path().is_ident("cfg") || attribute.path().is_ident("cfg_attr")
        };
        match { attributes }.find(is_cfg) {
            Some(cfg) => Err(syn::Error::new_spanned(
                cfg,
                "`#[redis_lock]` does not support `#[cfg]` on a parameter; put it on the whole \
                 function",
            )),
            None => Ok(()),
        }
    }

    /// Returns the type of the value that the function returns when it is awaited.
    pub(crate) fn output(&self) -> Type {
        match (&self.returned_future, &self.signature.output) {
            (Some(returned), _) => returned.output.clone(),
            (None, ReturnType::Type(_, ty)) => (**ty).clone(),
            (None, ReturnType::Default) => parse_quote!(()),
        }
    }

    /// Returns the parameters without `self`.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &PatType> {
        self.signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(parameter) => Some(parameter),
            FnArg::Receiver(_) => None,
        })
    }
}

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
    fn of(ty: &Type) -> Option<Self> {
        match ungrouped(ty) {
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
}

/// Removes parentheses, and the invisible groups that `macro_rules!` puts around its fragments.
pub(crate) fn ungrouped(mut ty: &Type) -> &Type {
    while let Type::Group(TypeGroup { elem, .. }) | Type::Paren(TypeParen { elem, .. }) = ty {
        ty = elem;
    }
    ty
}

/// Returns the output of a `Box<dyn Future<Output = ..>>`.
fn boxed_output(ty: &Type) -> Option<Type> {
    let Type::Path(path) = ungrouped(ty) else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Box")?;
    match ungrouped(argument(last)?) {
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
pub(crate) fn argument(segment: &PathSegment) -> Option<&Type> {
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
            // `macro_rules!` groups what it passes on.
            let elem = syn::parse_str(&format!("({written})")).unwrap();
            let group_token = syn::token::Group::default();
            let grouped = Type::Group(TypeGroup { attrs: Vec::new(), group_token, elem });
            assert!(ReturnedFuture::of(&grouped).is_some(), "{written}");
        }
        for written in
            ["u8", "Result<(), Error>", "impl Future", "Pin<&mut Work>", "Pin<Box<Work>>"]
        {
            assert!(ReturnedFuture::of(&syn::parse_str(written).unwrap()).is_none(), "{written}");
        }
    }
}
