//! Parses the function under the attribute. Its body is not parsed and stays an unchanged list of tokens.

use proc_macro2::extra::DelimSpan;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, FnArg, PatType, ReturnType, Safety, Signature, Token, Type, Visibility, braced,
    parse_quote,
};

use crate::returned_future::ReturnedFuture;

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
        for parameter in &signature.inputs {
            if let Some(cfg) = attributes(parameter).iter().find(|attribute| is_cfg(attribute)) {
                return Err(syn::Error::new_spanned(
                    cfg,
                    "`#[redis_lock]` does not support `#[cfg]` on a parameter; put it on the \
                     whole function",
                ));
            }
        }
        Ok(())
    }

    /// Returns the type of the value that the function returns when it is awaited.
    pub(crate) fn output(&self) -> Type {
        match (&self.returned_future, &self.signature.output) {
            (Some(returned), _) => returned.output.clone(),
            (None, ReturnType::Type(_, ty)) => (**ty).clone(),
            (None, ReturnType::Default) => parse_quote!(()),
        }
    }

    /// Returns whether the function names `Self`. Its body then cannot move into a nested function, in which
    /// `Self` does not exist.
    pub(crate) fn names_self_type(&self) -> bool {
        mentions_self_type(self.signature.to_token_stream())
            || body_mentions_self_type(self.body.clone())
    }

    /// Returns the parameters without `self`.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &PatType> {
        self.signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(parameter) => Some(parameter),
            FnArg::Receiver(_) => None,
        })
    }
}

fn attributes(parameter: &FnArg) -> &[Attribute] {
    match parameter {
        FnArg::Receiver(receiver) => &receiver.attrs,
        FnArg::Typed(typed) => &typed.attrs,
    }
}

fn is_cfg(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg") || attribute.path().is_ident("cfg_attr")
}

fn mentions_self_type(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == "Self",
        TokenTree::Group(group) => mentions_self_type(group.stream()),
        _ => false,
    })
}

/// The keywords of items in which `Self` is the item's own type.
const OWN_SELF: [&str; 4] = ["enum", "impl", "struct", "trait"];

/// Returns whether `Self` occurs in a body, except in items in which `Self` is the item's own type.
fn body_mentions_self_type(tokens: TokenStream) -> bool {
    let mut own_self = false;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(ident) if OWN_SELF.iter().any(|keyword| ident == keyword) => {
                own_self = true;
            }
            // `union` is a keyword only before a name; elsewhere it is a name itself.
            TokenTree::Ident(ident) if ident == "union" => {
                own_self |= matches!(tokens.peek(), Some(TokenTree::Ident(_)));
            }
            TokenTree::Ident(ident) if ident == "Self" && !own_self => return true,
            // A tuple struct ends at the semicolon, every other item at its closing brace.
            TokenTree::Punct(punct) if punct.as_char() == ';' => own_self = false,
            TokenTree::Group(group) if own_self => {
                own_self = group.delimiter() != Delimiter::Brace;
            }
            TokenTree::Group(group) if body_mentions_self_type(group.stream()) => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    #[test]
    fn self_in_an_item_of_the_body_is_the_type_of_the_item() {
        for own in [
            quote!(
                impl Tree {
                    fn new() -> Self {}
                }
            ),
            quote!(
                struct Node {
                    next: Option<Box<Self>>,
                }
            ),
            quote!(
                struct Node(Option<Box<Self>>);
            ),
            quote!(
                struct Node<T>(T)
                where
                    Option<Self>: Sized;
            ),
            quote!(
                enum Tree<T> {
                    Leaf,
                    Node(Box<Self>, T),
                }
            ),
            quote!(
                union Bits {
                    next: *const Self,
                }
            ),
        ] {
            assert!(!body_mentions_self_type(own.clone()), "{own}");
            let outside = quote!(#own Self::new());
            assert!(body_mentions_self_type(outside.clone()), "{outside}");
        }
        let name = quote!(let union = { Self::new() }; union);
        assert!(body_mentions_self_type(name));
    }
}
