//! Names and spans for the generated code that cannot clash with the user's code.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident};
use syn::spanned::Spanned;

/// Returns code in braces, with the span of the user's braces, to which some messages point.
pub(crate) fn braced(span: Span, code: TokenStream) -> TokenStream {
    let mut group = Group::new(Delimiter::Brace, code);
    group.set_span(span);
    group.into_token_stream()
}

/// Returns a name for a variable of the generated code.
///
/// Hygiene hides the variable from the user's code. But it does not hide the user's constants and unit
/// structs from the pattern that binds the variable, so a prefix makes the name unique.
pub(crate) fn local(name: impl std::fmt::Display) -> Ident {
    format_ident!("__redis_lock_{}", name.to_string(), span = mixed_span())
}

/// Returns the span for names that the user's code cannot see.
pub(crate) fn mixed_span() -> Span {
    Span::mixed_site()
}

/// Returns the same span, with errors in the code reported at the user's tokens.
pub(crate) fn span_at(tokens: &impl Spanned) -> Span {
    mixed_span().located_at(tokens.span())
}

/// Returns the same tokens, with errors in the code reported at `span`.
pub(crate) fn with_span(span: Span, tokens: TokenStream) -> TokenStream {
    let place = |mut token: TokenTree| {
        token.set_span(token.span().located_at(span));
        token
    };
    tokens.into_iter().map(place).collect()
}
