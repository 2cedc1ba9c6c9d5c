//! The generated code: extract first, lock second, run third, release always.
//!
//! The outer function has the user's name and takes its parameters; the inner one has the user's
//! parameters, body and return type as they were written, so that the compiler's messages about
//! them stay as without the attribute. Everything that an ordinary function can do is done in
//! `redlock_axum::__private`.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Expr, ExprMethodCall, ExprReference, FnArg, GenericParam, ReturnType, Signature, Token,
    parse_quote, parse_quote_spanned, token,
};

use crate::attr::Arguments;
use crate::attributes;
use crate::bindings::{Parameter, Parameters};
use crate::function::Function;
use crate::key::{Key, Template, mentioned};

/// Expands the attribute on an item.
pub(crate) fn expand(arguments: TokenStream, item: &TokenStream) -> TokenStream {
    match try_expand(arguments, item.clone()) {
        Ok(expanded) => expanded,
        // The item stays, so that nothing that refers to it is reported besides.
        Err(error) => {
            let error = error.into_compile_error();
            quote!(#item #error)
        }
    }
}

fn try_expand(arguments: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let arguments: Arguments = syn::parse2(arguments)?;
    let function: Function = syn::parse2(item)?;
    check(&arguments, &function)?;
    Ok(Expansion::new(&arguments, &function).tokens())
}

/// What only shows when arguments and function are seen together.
fn check(arguments: &Arguments, function: &Function) -> syn::Result<()> {
    if let Some(second) = attributes::second_handler_lock(&function.attributes) {
        return Err(syn::Error::new_spanned(
            second,
            "the second `#[redis_lock]` of a function needs `manager = ..`",
        ));
    }
    let signature = &function.signature;
    if arguments.manager.is_none() {
        if let Some(receiver) = signature.receiver() {
            return Err(syn::Error::new_spanned(
                receiver,
                "a method is no handler, so its lock needs `manager = ..`, such as \
                 `manager = self.locks`",
            ));
        }
    } else if matches!(signature.output, ReturnType::Default) {
        return Err(syn::Error::new_spanned(
            &signature.ident,
            "with `manager = ..` the function must return a `Result`, whose error says that the \
             lock was refused",
        ));
    }
    Ok(())
}

struct Expansion<'a> {
    arguments: &'a Arguments,
    function: &'a Function,
    parameters: Parameters<'a>,
    /// Whether the inner function stands inside the outer one, rather than beside it in the `impl`.
    nested: bool,
    inner_name: Ident,
    /// `redlock_axum::__private`.
    private: TokenStream,
}

impl<'a> Expansion<'a> {
    fn new(arguments: &'a Arguments, function: &'a Function) -> Self {
        let name = &function.signature.ident;
        let root = arguments
            .crate_path
            .as_ref()
            .map_or_else(|| quote!(::redlock_axum), ToTokens::to_token_stream);
        let nested = function.signature.receiver().is_none() && !function.names_self_type();
        Self {
            parameters: Parameters::new(
                function.parameters(),
                names_in(arguments),
                captured_names(arguments),
            ),
            arguments,
            function,
            nested,
            inner_name: inner_name(name),
            private: quote!(#root::__private),
        }
    }

    fn tokens(&self) -> TokenStream {
        let Function { attributes, visibility, .. } = self.function;
        let attributes = attributes::of_outer(attributes, self.nested);
        let signature = self.outer_signature();
        let inner = self.inner();
        let (inside, beside) = if self.nested { (Some(inner), None) } else { (None, Some(inner)) };
        let body = match &self.arguments.manager {
            None => self.handler_body(),
            Some(manager) => self.function_body(manager),
        };
        quote! {
            #(#attributes)*
            #visibility #signature {
                #inside
                #body
            }
            #beside
        }
    }

    /// The function that holds the user's code.
    fn inner(&self) -> TokenStream {
        let Function { attributes, inner_attributes, body, brace, signature, .. } = self.function;
        let attributes = attributes::of_inner(attributes, self.nested, &signature.ident);
        let hidden = (!self.nested).then(|| quote!(#[doc(hidden)]));
        let signature = Signature { ident: self.inner_name.clone(), ..signature.clone() };
        // What only the key uses is used: no warning. A name with an underscore gives none anyway.
        let mut used = self.parameters.used();
        used.retain(|name| !name.unraw().to_string().starts_with('_'));
        let used = (!used.is_empty()).then(|| quote_spanned!(mixed()=> let _ = (#(&#used,)*);));
        let mut block = Group::new(Delimiter::Brace, quote!(#(#inner_attributes)* #used #body));
        block.set_span(brace.join());
        // It has to be `async`, whether it awaits anything or not.
        quote!(#[allow(clippy::unused_async)] #(#attributes)* #hidden #signature #block)
    }

    /// The signature that callers see: the same types, and in a handler the hidden extractor, fused
    /// into the first parameter so that their number stays.
    fn outer_signature(&self) -> Signature {
        let private = &self.private;
        let mut signature = self.function.signature.clone();
        let mut inputs: Vec<FnArg> = self
            .parameters
            .iter()
            .map(|Parameter { written, outer_name, .. }| {
                let ty = &written.ty;
                parse_quote!(#outer_name: #ty)
            })
            .collect();
        if self.arguments.manager.is_none() {
            let lock = lock();
            let fused = match self.parameters.iter().next() {
                Some(Parameter { written, outer_name, .. }) => {
                    let ty = &written.ty;
                    parse_quote!((#lock, #outer_name): (#private::HandlerLock, #ty))
                }
                None => parse_quote!(#lock: #private::HandlerLock),
            };
            inputs.splice(..inputs.len().min(1), [fused]);
            let span = signature.output.span();
            signature.output = parse_quote_spanned!(span=> -> #private::Response);
        }
        if let Some(receiver) = signature.receiver() {
            let mut receiver = receiver.clone();
            receiver.mutability = None;
            inputs.insert(0, FnArg::Receiver(receiver));
        }
        signature.inputs = inputs.into_iter().collect();
        signature
    }

    fn handler_body(&self) -> TokenStream {
        let Self { private, .. } = self;
        let (references, key, call) = (self.parameters.references(), self.key(), self.call());
        let (lock, expire, wait_time) = (lock(), self.expire(), self.wait_time());
        let response = quote_spanned! {self.output_span()=>
            #private::IntoResponse::into_response(#call.await)
        };
        quote_spanned! {mixed()=>
            #private::scope(async move {
                let key = {
                    #references
                    let key = #key;
                    key
                };
                let guard = match #lock.acquire(key, #expire, #wait_time).await {
                    ::core::result::Result::Ok(guard) => guard,
                    ::core::result::Result::Err(rejection) => {
                        return #private::IntoResponse::into_response(rejection);
                    }
                };
                let response = #response;
                #private::release(guard).await;
                response
            })
            .await
        }
    }

    fn function_body(&self, manager: &Expr) -> TokenStream {
        let Self { private, .. } = self;
        let (references, key, call) = (self.parameters.references(), self.key(), self.call());
        let (expire, wait_time) = (self.expire(), self.wait_time());
        let request = Expr::MethodCall(ExprMethodCall {
            attrs: Vec::new(),
            receiver: Box::new(manager.clone()),
            dot_token: Token![.](located(manager)),
            method: Ident::new("lock_key", located(manager)),
            turbofish: None,
            paren_token: token::Paren(located(manager)),
            args: [Expr::Verbatim(key)].into_iter().collect(),
        });
        let map = self
            .arguments
            .error
            .as_ref()
            .map_or_else(|| quote!(::core::convert::From::from), ToTokens::to_token_stream);
        let refusal = quote_spanned! {self.output_span()=>
            ::core::result::Result::Err(#map(error))
        };
        quote_spanned! {mixed()=>
            let request = {
                #references
                let request = #request;
                request
            };
            let guard = match #private::acquire(request, #expire, #wait_time).await {
                ::core::result::Result::Ok(guard) => guard,
                ::core::result::Result::Err(error) => return #refusal,
            };
            let output = #call.await;
            #private::release(guard).await;
            output
        }
    }

    /// For code that fails to compile where the function's return type is a wrong one.
    fn output_span(&self) -> Span {
        match &self.function.signature.output {
            ReturnType::Type(_, ty) => located(ty),
            ReturnType::Default => mixed(),
        }
    }

    /// An expression of type `Result<LockKey, KeyError>`.
    fn key(&self) -> TokenStream {
        let Self { private, .. } = self;
        match &self.arguments.key {
            Key::Expression(expression) => {
                quote_spanned!(located(expression)=> #private::key(#expression))
            }
            Key::Template(template) => {
                let Template { literal, values, captured } = template;
                let given = values.iter().map(|value| {
                    let name = value.name.as_ref().map(|name| quote!(#name =));
                    let part = self.part(&value.value);
                    quote!(, #name #part)
                });
                let used = self.parameters.used();
                let captured = used
                    .into_iter()
                    .filter(|name| captured.contains(&name.unraw().to_string()))
                    .map(|name| {
                        let part = self.part(&parse_quote!(#name));
                        quote!(, #name = #part)
                    });
                // The literal goes on untouched, so that the compiler can point into it.
                quote_spanned! {mixed()=>
                    #private::key(::std::format!(#literal #(#given)* #(#captured)*))
                }
            }
        }
    }

    /// The value, escaped.
    fn part(&self, value: &Expr) -> TokenStream {
        let Self { private, .. } = self;
        let reference = ExprReference {
            attrs: Vec::new(),
            and_token: Token![&](located(value)),
            mutability: None,
            expr: Box::new(value.clone()),
        };
        quote_spanned!(located(value)=> #private::KeyPart(#reference))
    }

    fn expire(&self) -> TokenStream {
        duration(self.arguments.expire_ms)
    }

    fn wait_time(&self) -> TokenStream {
        self.arguments.wait_time_ms.map(duration).map_or_else(
            || quote!(::core::option::Option::None),
            |duration| quote!(::core::option::Option::Some(#duration)),
        )
    }

    /// The call of the inner function.
    fn call(&self) -> TokenStream {
        let signature = &self.function.signature;
        let scope = (!self.nested).then(|| quote!(Self::));
        let name = &self.inner_name;
        let generics: Vec<_> = signature
            .generics
            .params
            .iter()
            .filter_map(|parameter| match parameter {
                GenericParam::Type(parameter) => Some(&parameter.ident),
                GenericParam::Const(parameter) => Some(&parameter.ident),
                GenericParam::Lifetime(_) => None,
            })
            .collect();
        let turbofish = (!generics.is_empty()).then(|| quote!(::<#(#generics),*>));
        let receiver = signature.receiver().map(|receiver| {
            let this = receiver.self_token;
            quote!(#this,)
        });
        let arguments = self.parameters.iter().map(|parameter| &parameter.outer_name);
        quote_spanned!(mixed()=> #scope #name #turbofish(#receiver #(#arguments),*))
    }
}

/// The names that the arguments refer to.
fn names_in(arguments: &Arguments) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    match &arguments.key {
        Key::Expression(expression) => mentioned(expression.to_token_stream(), &mut names),
        Key::Template(template) => {
            names.extend(template.captured.iter().cloned());
            for value in &template.values {
                mentioned(value.value.to_token_stream(), &mut names);
            }
        }
    }
    if let Some(manager) = &arguments.manager {
        mentioned(manager.to_token_stream(), &mut names);
    }
    names
}

fn captured_names(arguments: &Arguments) -> Option<&BTreeSet<String>> {
    match &arguments.key {
        Key::Template(template) => Some(&template.captured),
        Key::Expression(_) => None,
    }
}

/// Another name than the user's, so that a call of itself in the body takes its lock as any other
/// does.
fn inner_name(name: &Ident) -> Ident {
    let text = name.unraw().to_string();
    let bare = text.trim_start_matches('_');
    // At the end they make no double underscore, which would not be snake case.
    let underscores = &text[..text.len() - bare.len()];
    format_ident!("__redis_lock_{bare}{underscores}", span = name.span())
}

fn duration(milliseconds: u64) -> TokenStream {
    quote!(::core::time::Duration::from_millis(#milliseconds))
}

/// The hidden extractor's name.
fn lock() -> Ident {
    Ident::new("lock", mixed())
}

/// For names that no code of the user can see.
fn mixed() -> Span {
    Span::mixed_site()
}

/// The same, for code whose errors belong to something of the user's.
fn located(tokens: &impl Spanned) -> Span {
    mixed().located_at(tokens.span())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inner_name_is_snake_case_and_distinct() {
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
        let expanded = expand(quote!(key = ""), &item).to_string();
        assert!(expanded.starts_with(&item.to_string()), "{expanded}");
        assert_eq!(expanded.matches("compile_error").count(), 1);
    }
}
