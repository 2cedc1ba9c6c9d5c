//! Generates the body of the outer function, which makes the key, acquires the lock, calls the inner
//! function and releases the lock.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, GenericParam, ReturnType, parse_quote};

use crate::arguments::Skip;
use crate::expand::Expansion;
use crate::hygiene::{local, mixed_span, span_at, with_span};
use crate::in_place::without_impl;
use crate::key_code::reference;
use crate::options::OnLostArgument;

impl Expansion<'_> {
    pub(crate) fn handler_body(&self) -> syn::Result<TokenStream> {
        let Self { private, .. } = self;
        let (references, made) = (self.parameters.references(), self.key()?);
        let options = self.options();
        let http = self.arguments.http.expression(private, &self.function.signature);
        let [lock, key] = ["lock", "key"].map(local);
        let (conversion, refuse, call) = (self.conversion(), self.refuse(), self.call());
        let respond = quote_spanned!(self.output_span()=> #private::IntoResponse::into_response);
        let work = quote_spanned!(mixed_span()=> move || #call);
        // The block ends before the await, so that the future does not store what only the block borrows.
        Ok(quote_spanned! {mixed_span()=>
            {
                #conversion
                let #key = {
                    #references
                    let #key = #made;
                    #key
                };
                #lock.serve(#key, #options, #http, #refuse, #respond, #work)
            }
            .await
        })
    }

    /// Returns statements that tell the compiler the type of the handler's output, if the response to a refused
    /// request depends on it.
    fn conversion(&self) -> Option<TokenStream> {
        let Self { private, arguments, .. } = self;
        if arguments.http.on_reject.is_some() {
            return None;
        }
        let output_type = local("output_type");
        if !self.nested {
            // A call would repeat the user's code. An `impl Trait` has no conversion.
            let output = without_impl(&self.function.output(), &parse_quote!(()));
            return Some(quote_spanned! {mixed_span()=>
                let #output_type = #private::HandlerOutput::<#output>::new();
            });
        }
        let call = self.call();
        Some(quote_spanned! {mixed_span()=>
            let #output_type = #private::HandlerOutput::new();
            // The call infers the type, and never runs.
            if false {
                #output_type.of(&#call);
                ::core::unreachable!();
            }
        })
    }

    /// Returns a closure that makes the response to a request that was refused or stopped.
    fn refuse(&self) -> TokenStream {
        let Self { private, arguments, .. } = self;
        let rejection = local("rejection");
        if let Some(on_reject) = &arguments.http.on_reject {
            let span = span_at(on_reject);
            return quote_spanned!(span=> move |#rejection| #private::refuse_by(#rejection, #on_reject));
        }
        let output_type = local("output_type");
        quote_spanned! {mixed_span()=> {
            use #private::{ByConversion as _, ByDefault as _};
            move |#rejection| (&&#output_type).refuse(#rejection)
        }}
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
        let typed = self.typed_block();
        Ok(quote_spanned! {mixed_span()=>
            #private::scope(async move {
                #typed
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
            .await
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
        let result_type = with_span(span, quote!(#private::SkippedResult));
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
