//! Names and spans of the generated code that cannot meet those of the user's code.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::format_ident;
use syn::spanned::Spanned;

/// A name for what the generated code binds. Hygiene hides it from the code around it, but not a
/// constant or unit struct of that code from the pattern that binds it; the prefix does.
pub(crate) fn local(name: impl std::fmt::Display) -> Ident {
    format_ident!("__redis_lock_{}", name.to_string(), span = mixed())
}

/// For names that no code of the user can see.
pub(crate) fn mixed() -> Span {
    Span::mixed_site()
}

/// The same, for code whose errors belong to something of the user's.
pub(crate) fn located(tokens: &impl Spanned) -> Span {
    mixed().located_at(tokens.span())
}

/// The same tokens, for code whose errors belong to the place `span`.
pub(crate) fn placed_at(span: Span, tokens: TokenStream) -> TokenStream {
    let place = |mut token: TokenTree| {
        token.set_span(token.span().located_at(span));
        token
    };
    tokens.into_iter().map(place).collect()
}
