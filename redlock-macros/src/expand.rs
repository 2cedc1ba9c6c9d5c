//! Generates the code, which extracts, then locks, then runs the function, and always releases.
//!
//! The outer function has the user's name and parameters. The inner function has the user's
//! parameters, body and return type unchanged, so that the compiler's messages about them are the same
//! as without the attribute. A method has no inner function: its code stays in place (`in_place.rs`). The
//! generated code is short: everything that an ordinary function can do is in `redlock_axum::__private`.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{FnArg, Signature, parse_quote, parse_quote_spanned};

use crate::arguments::{Arguments, Skip};
use crate::bindings::Parameters;
use crate::forwarding;
use crate::function::Function;
use crate::hygiene::local;
use crate::key::{Key, Template, collect_names};
use crate::{rules, spring};

/// The position of an attribute among the other attributes of its function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// As the user wrote it.
    Written,
    /// The compiler has expanded all other attributes of the function.
    Last,
}

/// Expands the attribute on an item.
pub(crate) fn expand(
    arguments: &TokenStream,
    item: &TokenStream,
    position: Position,
) -> TokenStream {
    match try_expand(arguments, item.clone(), position) {
        Ok(expanded) => expanded,
        // The item is kept, so that code which uses it causes no further errors.
        Err(error) => {
            let error = error.into_compile_error();
            quote!(#item #error)
        }
    }
}

fn try_expand(
    written: &TokenStream,
    item: TokenStream,
    position: Position,
) -> syn::Result<TokenStream> {
    let arguments: Arguments = syn::parse2(written.clone())?;
    let function: Function = syn::parse2(item)?;
    rules::check(&arguments, &function)?;
    let expansion = Expansion::new(&arguments, &function);
    expansion.check_key()?;
    if position == Position::Written
        && !expansion.nested
        && let Some(later) = expansion.after_the_other_attributes(written)
    {
        return Ok(later);
    }
    expansion.tokens()
}

/// One use of the attribute.
pub(crate) struct Expansion<'a> {
    pub(crate) arguments: &'a Arguments,
    pub(crate) function: &'a Function,
    pub(crate) parameters: Parameters<'a>,
    /// Whether the user's code is in an inner function. Otherwise it stays in place.
    pub(crate) nested: bool,
    pub(crate) inner_name: Ident,
    /// `redlock_axum::__private`.
    pub(crate) private: TokenStream,
}

impl<'a> Expansion<'a> {
    fn new(arguments: &'a Arguments, function: &'a Function) -> Self {
        let name = &function.signature.ident;
        let root = arguments
            .crate_path
            .as_ref()
            .map_or_else(|| quote!(::redlock_axum), ToTokens::to_token_stream);
        let nested = function.signature.receiver().is_none()
            && function.returned_future.is_none()
            && !function.names_self_type();
        Self {
            parameters: Parameters::new(
                function.parameters(),
                names_in(arguments),
                forwarding::is_reversed(&function.attributes),
            ),
            arguments,
            function,
            nested,
            inner_name: inner_name(name),
            private: quote!(#root::__private),
        }
    }

    /// Refuses a key in the expression language of Spring, which would be one constant key for all calls.
    fn check_key(&self) -> syn::Result<()> {
        let Some(Template { literal, .. }) = self.arguments.key.template() else { return Ok(()) };
        let text = literal.value();
        match spring::rust_form(&text, |name| self.parameters.binds(name)) {
            Some(rust) => Err(syn::Error::new(
                literal.span(),
                format!(
                    "`{text}` is written for Spring, and would be one key for all calls; write `{rust}`"
                ),
            )),
            None => Ok(()),
        }
    }

    /// Returns the function as it is, but with this attribute below all others, in the reverse order. The compiler
    /// then expands the innermost attribute first and this one last. So the code of each attribute contains the
    /// code of the attributes below it, as in a function with an inner function.
    ///
    /// Returns `None` if there is nothing to reverse.
    fn after_the_other_attributes(&self, written: &TokenStream) -> Option<TokenStream> {
        let Self { private, function, .. } = self;
        let last = parse_quote!(#[#private::redis_lock_last(#written)]);
        let attributes = forwarding::reversed(&function.attributes, last)?;
        let Function { visibility, signature, inner_attributes, body, brace, .. } = function;
        let block = braced(brace.join(), quote!(#(#inner_attributes)* #body));
        Some(quote!(#(#attributes)* #visibility #signature #block))
    }

    fn tokens(&self) -> syn::Result<TokenStream> {
        let Function { attributes, inner_attributes, visibility, returned_future, .. } =
            self.function;
        let signature = self.outer_signature();
        let body = match &self.arguments.manager {
            None => self.handler_body()?,
            Some(manager) => self.function_body(manager)?,
        };
        if self.nested {
            let (attributes, inner) = (forwarding::of_outer(attributes), self.inner());
            return Ok(quote!(#(#attributes)* #visibility #signature { #inner #body }));
        }
        let body = match returned_future {
            Some(returned) => returned.future(&body),
            None => body,
        };
        // The compiler does not see that a block drops a captured `mut self`, and so reads its last value.
        let dropped =
            matches!(signature.receiver(), Some(receiver) if receiver.mutability.is_some())
                .then(|| quote!(#[allow(unused_assignments)]));
        Ok(quote!(#(#attributes)* #dropped #visibility #signature { #(#inner_attributes)* #body }))
    }

    /// Returns the inner function, which contains the user's code.
    fn inner(&self) -> TokenStream {
        let Function { attributes, inner_attributes, body, brace, signature, .. } = self.function;
        let attributes = forwarding::of_inner(attributes, &signature.ident);
        let signature = Signature { ident: self.inner_name.clone(), ..signature.clone() };
        let use_names = self.parameters.use_names();
        let block = braced(brace.join(), quote!(#(#inner_attributes)* #use_names #body));
        // The inner function must be `async`, even if it awaits nothing.
        quote!(#[allow(clippy::unused_async)] #(#attributes)* #signature #block)
    }

    /// Returns the signature of the outer function, with the same types. In a handler, the first parameter
    /// becomes a pair with the hidden extractor, so that the number of parameters does not change.
    fn outer_signature(&self) -> Signature {
        let private = &self.private;
        let mut signature = self.function.signature.clone();
        let mut inputs: Vec<FnArg> = self
            .parameters
            .iter()
            .map(|parameter| {
                let (pattern, ty) =
                    (self.parameters.outer_pattern(parameter), &parameter.written.ty);
                parse_quote!(#pattern: #ty)
            })
            .collect();
        if self.arguments.manager.is_none() {
            let lock = local("lock");
            let fenced = self.arguments.options.fenced.is_some();
            let locks = if self.arguments.installed.is_some() {
                quote!(InstalledLocks)
            } else {
                quote!(Locks)
            };
            let extractor = quote!(#private::HandlerLock<#private::#locks, #fenced>);
            let fused = match self.parameters.iter().next() {
                Some(first) => {
                    let (pattern, ty) = (self.parameters.outer_pattern(first), &first.written.ty);
                    parse_quote!((#lock, #pattern): (#extractor, #ty))
                }
                None => parse_quote!(#lock: #extractor),
            };
            inputs.splice(..inputs.len().min(1), [fused]);
            let span = signature.output.span();
            signature.output = parse_quote_spanned!(span=> -> #private::Response);
        }
        if let Some(receiver) = signature.receiver() {
            inputs.insert(0, FnArg::Receiver(receiver.clone()));
        }
        signature.inputs = inputs.into_iter().collect();
        signature
    }
}

/// Returns code in braces, with the span of the user's braces, to which some messages point.
pub(crate) fn braced(span: Span, code: TokenStream) -> TokenStream {
    let mut group = Group::new(Delimiter::Brace, code);
    group.set_span(span);
    group.into_token_stream()
}

/// Returns the names to which the arguments refer.
fn names_in(arguments: &Arguments) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    match &arguments.key {
        Key::Expression(expression) | Key::List(expression) => {
            collect_names(expression.to_token_stream(), &mut names);
        }
        Key::Template(template) | Key::EachItem(template) => {
            names.extend(template.captured.iter().cloned());
            for value in &template.values {
                collect_names(value.value.to_token_stream(), &mut names);
            }
        }
    }
    if let Some(manager) = &arguments.manager {
        collect_names(manager.to_token_stream(), &mut names);
    }
    if let Some(Skip::Value(value)) = &arguments.skip {
        collect_names(value.to_token_stream(), &mut names);
    }
    names
}

/// Returns the name of the inner function. It differs from the user's name, so that a recursive call in the
/// body calls the outer function and acquires the lock as any other call does.
fn inner_name(name: &Ident) -> Ident {
    let text = name.unraw().to_string();
    let bare = text.trim_start_matches('_');
    // Leading underscores move to the end. After the prefix they would make a double underscore, which is
    // not snake case.
    let underscores = &text[..text.len() - bare.len()];
    format_ident!("__redis_lock_{bare}{underscores}", span = name.span())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_inner_function_is_snake_case_and_distinct() {
        for (name, expected) in [
            ("pay", "__redis_lock_pay"),
            ("r#type", "__redis_lock_type"),
            ("_pay", "__redis_lock_pay_"),
            ("__redis_lock_pay", "__redis_lock_redis_lock_pay__"),
        ] {
            let name = syn::parse_str(name).unwrap();
            assert_eq!(inner_name(&name), expected);
        }
    }

    #[test]
    fn a_mistake_leaves_the_item_as_it_is_and_adds_one_error() {
        let item = quote!(
            async fn pay() {}
        );
        let expanded = expand(&quote!(key = ""), &item, Position::Written).to_string();
        assert!(expanded.starts_with(&item.to_string()), "{expanded}");
        assert_eq!(expanded.matches("compile_error").count(), 1);
    }

    /// Messages about the function, or about the function and the arguments together. `redlock-axum/tests/ui` checks
    /// the tokens to which all messages point.
    #[test]
    fn each_mistake_has_its_message() {
        const HANDLER: &str = "key = \"a\"";
        const FUNCTION: &str = "key = \"a\", manager = a";
        const TWO: &str = "key = \"a\", manager = a, installed";
        let future = "fn f() -> impl Future<Output = ()> {}";
        for (arguments, item, start) in [
            (HANDLER, "fn f() {}", "a lock is awaited, so the function must be an `async fn`"),
            (HANDLER, "const fn f() {}", "a `const fn` cannot wait for a lock"),
            (HANDLER, "async unsafe fn f() {}", "an `unsafe fn` cannot be locked"),
            (HANDLER, "async extern \"C\" fn f() {}", "an `extern` function cannot be locked"),
            (HANDLER, "struct F;", "`#[redis_lock]` locks a function with a body"),
            (HANDLER, "async fn f(&self);", "the function has no body; put `#[redis_lock]` on the"),
            (
                HANDLER,
                "async fn f(#[cfg(a)] a: u8) {}",
                "`#[redis_lock]` does not support `#[cfg]`",
            ),
            (
                HANDLER,
                "#[redis_lock()] async fn f() {}",
                "the second `#[redis_lock]` of a function",
            ),
            (HANDLER, "async fn f(&self) {}", "a method cannot be a handler; add `manager = ..`"),
            (HANDLER, future, "a locked handler must be an `async fn`; a function that returns a"),
            (HANDLER, "async fn f(a: Option<Json<A>>, b: B) {}", "`Json` reads the body of the"),
            (FUNCTION, "async fn f() {}", "with `manager = ..` the function must return a"),
            (FUNCTION, "async fn f(b: Option<FencedLock>) -> R {}", "a function with `manager`"),
            (TWO, "async fn f() -> R {}", "`installed` is for handlers, and `manager` is for"),
            (
                "key = \"{b}\"",
                "async fn f(c: u8) {}",
                "no parameter binds `b`: they bind `c`; only",
            ),
            ("key = \"{B:lower}\"", "async fn f() {}", "`B` is a constant, which has no type"),
            ("key = \"'a' + #b\"", "async fn f() {}", "`'a' + #b` is written for Spring"),
        ] {
            let (arguments, code) = (arguments.parse().unwrap(), item.parse().unwrap());
            let error = try_expand(&arguments, code, Position::Written).err().unwrap().to_string();
            assert!(error.starts_with(start), "{item}: {error}");
        }
    }
}
