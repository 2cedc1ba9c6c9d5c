//! Generates the body of the outer function, which makes the key, acquires the lock, calls the inner
//! function and releases the lock.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, ExprReference, GenericParam, ReturnType, Token, parse_quote};

use crate::arguments::Skip;
use crate::bindings::Captured;
use crate::expand::Expansion;
use crate::hygiene::{local, mixed_span, span_at, with_span};
use crate::key::{Key, Template};
use crate::options::OnLostArgument;

impl Expansion<'_> {
    pub(crate) fn handler_body(&self) -> syn::Result<TokenStream> {
        let Self { private, .. } = self;
        let (references, made) = (self.parameters.references(), self.key()?);
        let options = self.options();
        let [lock, key] = ["lock", "key"].map(local);
        let [active_lock, response, error] = ["active_lock", "response", "error"].map(local);
        let refusal = quote_spanned!(mixed_span()=> return #private::refuse(#error));
        // The loss is logged within the limit of the lock's manager, as other front ends do.
        let output =
            self.output(&quote_spanned!(mixed_span()=> return #active_lock.refuse(#error)));
        let answer = quote_spanned! {self.output_span()=>
            #private::IntoResponse::into_response(#output)
        };
        Ok(quote_spanned! {mixed_span()=>
            #private::scope(async move {
                let #key = {
                    #references
                    let #key = #made;
                    #key
                };
                let #active_lock = match #lock.acquire(#key, #options).await {
                    ::core::result::Result::Ok(#active_lock) => #active_lock,
                    ::core::result::Result::Err(#error) => #refusal,
                };
                let #response = #answer;
                #active_lock.release().await;
                #response
            })
            .await
        })
    }

    pub(crate) fn function_body(&self, manager: &Expr) -> syn::Result<TokenStream> {
        let Self { private, .. } = self;
        let (references, key) = (self.parameters.references(), self.key()?);
        let options = self.options();
        let [request, active_lock, result, error] =
            ["request", "active_lock", "output", "error"].map(local);
        let manager = reference(manager);
        let made = quote_spanned!(mixed_span()=> #private::request(#manager, #key));
        let map = self.arguments.error.as_ref().map_or_else(
            || quote_spanned!(self.output_span()=> ::core::convert::From::from),
            ToTokens::to_token_stream,
        );
        let mut reported = error.clone();
        reported.set_span(self.output_span());
        // With `on_lost = abort` one error type covers both causes: not acquired, or lost.
        let cause = match self.arguments.options.on_lost {
            OnLostArgument::KeepGoing => quote!(#reported),
            OnLostArgument::Abort => {
                quote!(<#private::RunError as ::core::convert::From<_>>::from(#reported))
            }
        };
        let result_type = with_span(self.output_span(), quote!(#private::LockedResult));
        let refusal = quote_spanned! {self.output_span()=>
            return #result_type::refused(#map(#cause))
        };
        let output = self.output(&refusal);
        let skip = self.skip();
        Ok(quote_spanned! {mixed_span()=>
            let #request = {
                #references
                let #request = #made;
                #request
            };
            let #active_lock = match #private::acquire_for_function(#request, #options).await {
                ::core::result::Result::Ok(#active_lock) => #active_lock,
                #skip
                ::core::result::Result::Err(#error) => #refusal,
            };
            let #result = #output;
            #active_lock.release().await;
            #result
        })
    }

    /// Returns the match arm of a function with `skip`, for a lock that another holder has.
    fn skip(&self) -> Option<TokenStream> {
        let Self { private, .. } = self;
        let skip = self.arguments.skip.as_ref()?;
        let error = local("error");
        let references = self.parameters.references();
        let (value, span) = match skip {
            Skip::None => (quote!(::core::option::Option::None), self.output_span()),
            Skip::Value(value) => (value.to_token_stream(), span_at(value)),
        };
        let result_type = with_span(span, quote!(#private::LockedResult));
        let skipped = quote_spanned! {span=>
            return #result_type::skipped({ #references #value })
        };
        Some(quote_spanned! {mixed_span()=>
            ::core::result::Result::Err(#error) if #error.is_contended() => #skipped,
        })
    }

    /// Returns the span for code that fails to compile if the function's return type is wrong.
    fn output_span(&self) -> Span {
        match (&self.function.returned_future, &self.function.signature.output) {
            (Some(returned), _) => span_at(&returned.output),
            (None, ReturnType::Type(_, ty)) => span_at(ty),
            (None, ReturnType::Default) => mixed_span(),
        }
    }

    /// Returns an expression of type `Result<LockKey, KeyError>`.
    fn key(&self) -> syn::Result<TokenStream> {
        let Self { private, .. } = self;
        Ok(match &self.arguments.key {
            Key::Expression(expression) => {
                let key = reference(expression);
                quote_spanned!(span_at(expression)=> #private::key(#key))
            }
            Key::Template(template) => {
                let Template { literal, values, captured } = template;
                // If a value of the request makes the key a reserved one, the mistake is the client's.
                let begins_with_constant = template
                    .first_placeholder()
                    .filter(|first| captured.contains(first))
                    .map(|first| self.parameters.captured(&first, literal.span()))
                    .is_some_and(|captured| matches!(captured, Ok(Captured::Constant(_))));
                let key = Ident::new(
                    if begins_with_constant { "key" } else { "key_with_parts" },
                    mixed_span(),
                );
                let given = values.iter().map(|value| {
                    let name = value.name.as_ref().map(|name| quote!(#name =));
                    let part = self.part(&value.value);
                    quote!(, #name #part)
                });
                let captured = captured
                    .iter()
                    .map(|name| self.parameters.captured(name, literal.span()))
                    .map(|captured| {
                        Ok(match captured? {
                            Captured::Parameter(name) => {
                                let part = self.part(&parse_quote!(#name));
                                quote!(, #name = #part)
                            }
                            // In a `const` block only a constant compiles, never a value of the request.
                            Captured::Constant(name) => {
                                quote_spanned!(span_at(literal)=> , #name = const { &#name })
                            }
                        })
                    })
                    .collect::<syn::Result<Vec<_>>>()?;
                // The literal is passed on unchanged, so that the compiler can point into it.
                quote_spanned! {mixed_span()=>
                    #private::#key(::std::format!(#literal #(#given)* #(#captured)*))
                }
            }
        })
    }

    /// Returns an expression that escapes the value.
    fn part(&self, value: &Expr) -> TokenStream {
        let Self { private, .. } = self;
        let reference = reference(value);
        quote_spanned!(span_at(value)=> #private::KeyPart(#reference))
    }

    /// Returns an expression for the options of the lock.
    fn options(&self) -> TokenStream {
        self.arguments.options.expression(&self.private, &self.function.signature)
    }

    /// Returns an expression for the result of the inner function. It runs `refusal` if the function is
    /// stopped.
    fn output(&self, refusal: &TokenStream) -> TokenStream {
        let call = self.call();
        let [active_lock, output, error] = ["active_lock", "output", "error"].map(local);
        match self.arguments.options.on_lost {
            OnLostArgument::KeepGoing => quote_spanned!(mixed_span()=> #call.await),
            OnLostArgument::Abort => quote_spanned! {mixed_span()=>
                match #active_lock.until_lost(#call).await {
                    ::core::result::Result::Ok(#output) => #output,
                    ::core::result::Result::Err(#error) => #refusal,
                }
            },
        }
    }

    /// Returns the future of the user's code: a call of the inner function, or a block.
    fn call(&self) -> TokenStream {
        if !self.nested {
            return self.block();
        }
        let signature = &self.function.signature;
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
        let arguments = self.parameters.iter().map(|parameter| &parameter.outer_name);
        quote_spanned!(mixed_span()=> #name #turbofish(#(#arguments),*))
    }
}

/// Returns a reference to the value, so that an expression such as `order.sku` moves nothing.
fn reference(value: &Expr) -> ExprReference {
    ExprReference {
        attrs: Vec::new(),
        and_token: Token![&](span_at(value)),
        mutability: None,
        expr: Box::new(value.clone()),
    }
}
