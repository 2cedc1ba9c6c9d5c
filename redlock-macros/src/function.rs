//! The function under the attribute. Its body stays a list of tokens, untouched.

use proc_macro2::extra::DelimSpan;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, FnArg, PatType, Safety, Signature, Token, Visibility, braced};

/// A function that can be locked.
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    /// `#![..]` at the beginning of the body.
    pub(crate) inner_attributes: Vec<Attribute>,
    pub(crate) body: TokenStream,
    pub(crate) brace: DelimSpan,
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
                "there is no body to lock; put `#[redis_lock]` on the implementation",
            ));
        }
        let content;
        let brace = braced!(content in input).span;
        let function = Self {
            attributes,
            visibility,
            signature,
            inner_attributes: content.call(Attribute::parse_inner)?,
            body: content.parse()?,
            brace,
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
        if signature.asyncness.is_none() {
            return Err(syn::Error::new_spanned(
                signature.fn_token,
                "a lock is awaited, so the function must be an `async fn` (under `#[async_trait]`, \
                 lock a function of your own and call it from here)",
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
                    "`#[redis_lock]` does not go with `#[cfg]` on a parameter; put it on the \
                     whole function",
                ));
            }
        }
        Ok(())
    }

    /// Whether the function names `Self`, so that its body cannot move into a function of its own
    /// inside of it.
    pub(crate) fn names_self_type(&self) -> bool {
        mentions_self_type(self.signature.to_token_stream())
            || body_mentions_self_type(self.body.clone())
    }

    /// The parameters but `self`.
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

/// Whether `Self` occurs outside of the items in a body that have one of their own.
fn body_mentions_self_type(tokens: TokenStream) -> bool {
    let mut own_self = false;
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) if ident == "impl" || ident == "trait" => {
            own_self = true;
            false
        }
        TokenTree::Ident(ident) => ident == "Self" && !own_self,
        TokenTree::Group(group) if own_self && group.delimiter() == Delimiter::Brace => {
            own_self = false;
            false
        }
        TokenTree::Group(group) => body_mentions_self_type(group.stream()),
        _ => false,
    })
}
