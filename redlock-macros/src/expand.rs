//! Generates the function: it makes the key and the options, and runs the user's code, which stays in its place, under
//! the lock.
//!
//! Everything that an ordinary function can do is in `redlock_axum::__private`.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, FnArg, GenericArgument, GenericParam, PathArguments, ReturnType, Signature, Type,
    TypeImplTrait, TypeParamBound, parse_quote, parse_quote_spanned,
};

use crate::arguments::{Arguments, OptionArgument, Skip};
use crate::function::{Function, ungrouped};
use crate::hygiene::{braced, local, mixed_span, span_at, with_span};
use crate::key::{Key, collect_names};
use crate::parameters::Parameters;

/// Expands the attribute on an item.
pub(crate) fn expand(written: &TokenStream, item: &TokenStream) -> TokenStream {
    match try_expand(written, item.clone()) {
        Ok(expanded) => expanded,
        // The item is kept, so that code which uses it causes no further errors.
        Err(error) => {
            let error = error.into_compile_error();
            quote!(#item #error)
        }
    }
}

fn try_expand(written: &TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let arguments: Arguments = syn::parse2(written.clone())?;
    let function: Function = syn::parse2(item)?;
    let expansion = Expansion::new(&arguments, &function)?;
    expansion.check()?;
    let expanded = expansion.function()?;
    if arguments.last || function.attributes.is_empty() {
        return Ok(expanded);
    }
    Ok(expansion.after_the_other_attributes(written))
}

/// One use of the attribute.
struct Expansion<'a> {
    arguments: &'a Arguments,
    key: &'a Key,
    function: &'a Function,
    parameters: Parameters<'a>,
    /// `redlock_axum::__private`.
    path: TokenStream,
    /// The name of this path in the generated code.
    private: TokenStream,
}

impl<'a> Expansion<'a> {
    fn new(arguments: &'a Arguments, function: &'a Function) -> syn::Result<Self> {
        let root = &arguments.crate_path;
        let root = root.as_ref().map_or_else(|| quote!(::redlock_axum), ToTokens::to_token_stream);
        let mut referenced = BTreeSet::new();
        let key = arguments.key()?;
        key.collect_names(&mut referenced);
        collect_names(&arguments.manager, &mut referenced);
        if let Some(Skip::Value(value)) = &arguments.skip {
            collect_names(value, &mut referenced);
        }
        let is_handler = arguments.manager.is_none();
        let parameters = Parameters::new(function.parameters(), referenced, is_handler);
        let (path, private) = (quote!(#root::__private), quote!(__redis_lock));
        Ok(Self { arguments, key, function, parameters, path, private })
    }

    /// Checks the rules that concern both the function and the arguments.
    fn check(&self) -> syn::Result<()> {
        let Self { arguments, function, .. } = self;
        let signature = &function.signature;
        self.parameters.check()?;
        let is_second = |attribute: &&Attribute| {
            attribute.path().segments.last().is_some_and(|last| last.ident == "redis_lock")
        };
        if let Some(second) = function.attributes.iter().find(is_second) {
            return Err(syn::Error::new_spanned(
                second,
                "a function has one `#[redis_lock]`: `keys` locks several keys at once, and a layer on the route takes \
                 another lock",
            ));
        }
        if arguments.manager.is_some() {
            if let Some(parameter) = self.parameters.under_lock().next() {
                return Err(syn::Error::new_spanned(
                    parameter.ty,
                    "`UnderLock` is for handlers without `manager`; leave out `manager`, or read the value in the body",
                ));
            }
            return match signature.output {
                ReturnType::Type(..) => Ok(()),
                ReturnType::Default => Err(syn::Error::new_spanned(
                    &signature.ident,
                    "with `manager = ..` the function must return a `Result`, whose error says that the lock was refused",
                )),
            };
        }
        if let Some(receiver) = signature.receiver() {
            return Err(syn::Error::new_spanned(
                receiver,
                "a method cannot be a handler; add `manager = ..`, such as `manager = self.locks`",
            ));
        }
        if function.returned_future.is_some() {
            return Err(syn::Error::new_spanned(
                signature.fn_token,
                "a locked handler must be an `async fn`; a function that returns a future needs `manager = ..`",
            ));
        }
        Ok(())
    }

    /// Returns the function as it is, but with this attribute below all others, so that the compiler expands it last and
    /// it contains their code.
    ///
    /// A handler without parameters gets one. Otherwise `#[debug_handler]`, which calls the handler with the number of
    /// parameters that it sees, would call it without the lock.
    fn after_the_other_attributes(&self, written: &TokenStream) -> TokenStream {
        let Self { path, arguments, .. } = self;
        let Function { attributes, visibility, signature, inner_attributes, body, brace, .. } =
            self.function;
        let mut signature = signature.clone();
        if arguments.manager.is_none() && signature.inputs.is_empty() {
            signature.inputs.push(parse_quote!(_: ()));
        }
        let block = braced(brace.join(), quote!(#(#inner_attributes)* #body));
        quote!(#(#attributes)* #[#path::redis_lock(__last, #written)] #visibility #signature #block)
    }

    fn function(&self) -> syn::Result<TokenStream> {
        let Function { attributes, inner_attributes, visibility, returned_future, .. } =
            self.function;
        let signature = self.signature();
        let future = if self.arguments.manager.is_none() {
            self.handler()?
        } else {
            self.function_of_manager()?
        };
        // The block ends before the await, so that the future does not store what only the block borrows.
        let (path, private) = (&self.path, &self.private);
        let body = quote_spanned!(mixed_span()=> { use #path as #private; #future }.await);
        let body = match returned_future {
            None => body,
            Some(returned) => {
                let future = quote_spanned!(mixed_span()=> async move { #body });
                match returned.boxed {
                    Some(_) => quote_spanned!(mixed_span()=> ::std::boxed::Box::pin(#future)),
                    None => future,
                }
            }
        };
        // The compiler does not see that a block drops a captured `mut self`, and so reads its last value.
        let is_mutable = signature.receiver().is_some_and(|receiver| receiver.mutability.is_some());
        let dropped = is_mutable.then(|| quote!(#[allow(unused_assignments)]));
        Ok(quote!(#(#attributes)* #dropped #visibility #signature { #(#inner_attributes)* #body }))
    }

    /// Returns the signature of the generated function, with the same types. In a handler, the first parameter becomes a
    /// pair with the hidden extractor of the lock, so that the number of parameters does not change, and the last one is
    /// inside of the hidden extractor of the unread body.
    fn signature(&self) -> Signature {
        let Self { path, arguments, .. } = self;
        let mut signature = self.function.signature.clone();
        let receiver = signature.receiver().cloned().map(FnArg::Receiver);
        let mut parameters: Vec<(TokenStream, TokenStream)> = self
            .parameters
            .iter()
            .map(|parameter| (parameter.name.to_token_stream(), parameter.extractor(path)))
            .collect();
        if arguments.manager.is_none() {
            let (lock, fenced, installed) =
                (local("lock"), arguments.fenced.is_some(), arguments.installed);
            let extractor =
                if installed.is_some() { quote!(#fenced, true) } else { quote!(#fenced) };
            let extractor = quote!(#path::HandlerLock<#extractor>);
            match &mut *parameters {
                [] => parameters.push((lock.into_token_stream(), extractor)),
                [(_, ty)] => *ty = quote!((#extractor, #ty)),
                [(name, ty), ..] => {
                    *name = quote!((#lock, #name));
                    *ty = quote!((#extractor, #ty));
                }
            }
            if let Some((_, ty)) = parameters.last_mut() {
                *ty = quote_spanned!(ty.span()=> #path::Last<#ty>);
            }
            let span = signature.output.span();
            signature.output = parse_quote_spanned!(span=> -> #path::Response);
        }
        let parameters = parameters.iter().map(|(name, ty)| -> FnArg { parse_quote!(#name: #ty) });
        signature.inputs = receiver.into_iter().chain(parameters).collect();
        signature
    }

    /// Returns a statement that takes the last parameter of a handler, and the lock beside it, out of their hidden
    /// extractors.
    fn unpacked(&self) -> TokenStream {
        let private = &self.private;
        let [lock, unread] = ["lock", "unread"].map(local);
        let mut names = self.parameters.iter().map(|parameter| &parameter.name);
        let (pattern, last) = match (names.next(), names.last()) {
            (None, _) => (lock.to_token_stream(), &lock),
            (Some(only), None) => (quote!((#lock, #only)), only),
            (Some(_), Some(last)) => (last.to_token_stream(), last),
        };
        quote_spanned!(mixed_span()=> let (#pattern, #unread) = #private::Last::into_parts(#last);)
    }

    /// Returns the code whose value is the future of a handler.
    fn handler(&self) -> syn::Result<TokenStream> {
        let Self { private, arguments, .. } = self;
        let [lock, key, unread] = ["lock", "key", "unread"].map(local);
        let (moved, references) = (self.parameters.moved(), self.parameters.references(private));
        let made = self.key.code(private, &self.parameters)?;
        let (output_type, refuse) = (self.output_type(), self.refuse());
        let (statements, options) = self.options();
        let respond = with_span(self.output_span(), quote!(#private::IntoResponse::into_response));
        let (unpacked, extracted) = (self.unpacked(), self.extracted_later());
        let (taken, work) = (self.taken(), self.work());
        let work =
            quote_spanned!(mixed_span()=> move || { #taken ::core::option::Option::Some(#work) });
        let span = arguments
            .detached
            .map_or(self.output_span(), |detached| mixed_span().located_at(detached));
        let serve =
            Ident::new(if arguments.detached.is_some() { "serve_detached" } else { "serve" }, span);
        Ok(quote_spanned! {mixed_span()=>
            #unpacked
            #moved
            #extracted
            #output_type
            let #key = {
                #references
                #made
            };
            #statements
            #lock.#serve(#unread, #key, #options, #refuse, #respond, #work)
        })
    }

    /// Returns statements that leave the extraction of some parameters to the lock. Each then has the value after it.
    fn extracted_later(&self) -> Option<TokenStream> {
        let lock = local("lock");
        let names: Vec<_> = self.parameters.under_lock().map(|parameter| &parameter.name).collect();
        (!names.is_empty()).then(|| {
            quote_spanned!(mixed_span()=>
                let mut #lock = #lock;
                #(let #names = #lock.extract_later(#names);)*
            )
        })
    }

    /// Returns statements that take the lock, and the values which were extracted under it.
    fn taken(&self) -> TokenStream {
        let names = self.parameters.late().map(|parameter| &parameter.name);
        quote_spanned!(mixed_span()=> #(let #names = #names.take()?;)*)
    }

    /// Returns the code whose value is the future of a function with `manager`.
    fn function_of_manager(&self) -> syn::Result<TokenStream> {
        let Self { private, arguments, .. } = self;
        let [request, error] = ["request", "error"].map(local);
        let (moved, references) = (self.parameters.moved(), self.parameters.references(private));
        let (manager, key) = (&arguments.manager, self.key.code(private, &self.parameters)?);
        let made = quote_spanned!(span_at(manager)=> #private::request(&#manager, { #key }));
        let (statements, options) = self.options();
        let convert = match &arguments.error {
            Some(path) => path.to_token_stream(),
            None => with_span(self.output_span(), quote!(::core::convert::From::from)),
        };
        let cause = if arguments.aborts() { quote!(RunError) } else { quote!(LockError) };
        let mut reported = error.clone();
        reported.set_span(self.output_span());
        let refused = with_span(self.output_span(), quote!(#private::LockedResult::refused));
        let refuse = quote_spanned! {self.output_span()=>
            |#error: #private::#cause| #refused(#convert(#reported))
        };
        let (skip, work) = (self.skip(), self.work());
        let span = arguments
            .detached
            .map_or(self.output_span(), |detached| mixed_span().located_at(detached));
        let run = if arguments.detached.is_some() { quote!(run_detached) } else { quote!(run) };
        let run = with_span(span, quote!(#private::#run));
        Ok(quote_spanned! {mixed_span()=>
            #moved
            let #request = {
                #references
                let #request = #made;
                #request
            };
            #statements
            #run(#request, #options, #refuse, #skip, move || #work)
        })
    }

    /// Returns an expression for the function that makes the result while another holder has the lock. Its value is
    /// evaluated before the acquisition.
    fn skip(&self) -> TokenStream {
        let Self { private, arguments, .. } = self;
        let references = self.parameters.references(private);
        let (value, span) = match &arguments.skip {
            None => {
                return quote_spanned!(mixed_span()=> ::core::option::Option::None::<fn() -> _>);
            }
            Some(Skip::None) => (quote!(::core::option::Option::None), self.output_span()),
            Some(Skip::Value(value)) => (value.to_token_stream(), span_at(value)),
        };
        let skipped = local("skipped");
        let result = with_span(span, quote!(#private::SkippedResult::skipped));
        let mut reported = skipped.clone();
        reported.set_span(span);
        quote_spanned! {mixed_span()=> {
            let #skipped = { #references #value };
            ::core::option::Option::Some(move || #result(#reported))
        }}
    }

    /// Returns statements that make the options, and the expression for them. The compiler evaluates the options, and
    /// checks each of them at its place.
    fn options(&self) -> (TokenStream, TokenStream) {
        let Self { private, arguments, .. } = self;
        let form = match (arguments.manager.is_some(), self.key.is_list()) {
            (false, false) => quote!(Handler),
            (false, true) => quote!(HandlerOfKeys),
            (true, false) => quote!(Function),
            (true, true) => quote!(FunctionOfKeys),
        };
        let unit = arguments.time_unit.as_ref().map_or(1000, |unit| unit.milliseconds);
        let options = arguments.options.iter().map(|argument| argument.code(private));
        let (name, function) = (self.lock_name(), self.function_name());
        let function = quote!(::core::concat!(::core::module_path!(), "::", #function));
        let made = quote!(
            #private::options(#private::Form::#form, #unit, #name, #function, &[#(#options),*])
        );
        if arguments.options.is_empty() && arguments.time_unit.is_none() {
            return (TokenStream::new(), made);
        }
        let mut checks: Vec<(Span, TokenStream)> = Vec::new();
        for argument in &arguments.options {
            let name = argument.name.to_string();
            checks.push((argument.span(), quote!(#name)));
        }
        if let Some(unit) = &arguments.time_unit {
            checks.push((unit.span, quote!("time_unit")));
        }
        let constants: Vec<_> =
            arguments.options.iter().filter_map(OptionArgument::constant).collect();
        // A constant item cannot name `Self` or a generic parameter, but a `const` block can. The compiler evaluates a
        // block only when it builds the program, not when it checks it.
        if self.is_generic(&constants) {
            let checks = checks.iter().map(|(span, name)| {
                let check = with_span(*span, quote!(#private::assert_valid));
                quote_spanned!(*span=> const { #check(&#made, #name) };)
            });
            return (quote!(#(#checks)*), quote!(const { #made }));
        }
        let name = Ident::new("__REDIS_LOCK_OPTIONS", mixed_span());
        let checks = checks.iter().map(|(span, option)| {
            let check = with_span(*span, quote!(#private::assert_valid));
            quote_spanned!(*span=> const _: () = #check(&#name, #option);)
        });
        let statements = quote_spanned! {mixed_span()=>
            const #name: #private::Options = #made;
            #(#checks)*
        };
        (statements, name.into_token_stream())
    }

    fn function_name(&self) -> String {
        self.function.signature.ident.unraw().to_string()
    }

    /// Returns the default name of the lock: the template of the key or, for another key, the name of the function; up to
    /// the greatest length of a name.
    fn lock_name(&self) -> String {
        const LONGEST: usize = 100;
        let mut name = self.key.template().unwrap_or_else(|| self.function_name());
        let end = (0..=LONGEST.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
        name.truncate(end.unwrap_or_default());
        name
    }

    fn is_generic(&self, constants: &[&syn::Expr]) -> bool {
        let mut names = BTreeSet::new();
        for constant in constants {
            collect_names(constant, &mut names);
        }
        let generics = &self.function.signature.generics.params;
        let mut generics = generics.iter().filter_map(|parameter| match parameter {
            GenericParam::Type(parameter) => Some(&parameter.ident),
            GenericParam::Const(parameter) => Some(&parameter.ident),
            GenericParam::Lifetime(_) => None,
        });
        names.contains("Self")
            || generics.any(|generic| names.contains(&generic.unraw().to_string()))
    }

    /// Returns the future of the user's code. A closure makes it, because a future as an argument would be stored twice.
    ///
    /// All parameters move into the future, so that they are dropped at its end, before the release.
    fn work(&self) -> TokenStream {
        let function = self.function;
        let this = function.signature.receiver().map(|receiver| {
            let this = receiver.self_token;
            quote_spanned!(mixed_span()=> let _ = &#this;)
        });
        let (bound, body) = (self.parameters.bound(), &function.body);
        let typed = self.typed();
        // The span has the edition of this crate, in which the temporaries of a block's tail end before its variables. So
        // the parameters live longer than the temporaries of the user's tail, as in a function.
        let span = mixed_span().located_at(function.brace.join());
        let code = match &function.returned_future {
            None => quote!(#typed #this #bound #body),
            // The code returns a future. In a closure it can also return from its middle.
            Some(returned) => {
                let closure = braced(span, quote!(#bound #body));
                let output = returned.boxed.as_ref().map(|ty| {
                    let ty = without_impl(ty);
                    quote!(-> #ty)
                });
                quote_spanned!(mixed_span()=> #typed #this (move || #output #closure)().await)
            }
        };
        let block = braced(span, code);
        quote_spanned!(span=> async move #block)
    }

    /// Returns a statement that never returns, but gives the `async` block around it the function's return type.
    /// Otherwise the compiler would have to infer the type, and could not always do so.
    fn typed(&self) -> Option<TokenStream> {
        let ty = without_impl(&self.function.output());
        if matches!(ty, Type::Infer(_)) {
            return None;
        }
        let span = self.output_span();
        let mut output = local("output");
        output.set_span(span);
        Some(quote_spanned! {span=>
            if let ::core::option::Option::Some(#output) = ::core::option::Option::None::<#ty> {
                return #output;
            }
        })
    }

    /// Returns a function that mentions each `impl Trait` in the output of a handler: the generated code does not mention
    /// them elsewhere, so that the compiler would report unused imports.
    fn output_type(&self) -> Option<TokenStream> {
        let mut found = impls(&self.function.output());
        for ty in &mut found {
            WithoutCaptures.visit_type_mut(ty);
        }
        let name = local("output_type");
        let (generics, _, clause) = self.function.signature.generics.split_for_impl();
        let generics = self.function.signature.generics.lt_token.map(|_| generics);
        let function = quote_spanned!(mixed_span()=> fn #name #generics(#(_: #found),*) #clause {});
        let mut names = BTreeSet::new();
        collect_names(&function, &mut names);
        // A function inside of another one has no `Self`.
        (!found.is_empty() && !names.contains("Self")).then_some(function)
    }

    /// Returns an expression for the function that makes the response to a request that was refused or stopped.
    fn refuse(&self) -> TokenStream {
        let Self { private, arguments, .. } = self;
        if let Some(on_reject) = &arguments.on_reject {
            let rejection = local("rejection");
            return quote_spanned!(span_at(on_reject)=> |#rejection| #private::refuse_by(#rejection, #on_reject));
        }
        let output = conversion_type(&self.function.output());
        quote_spanned! {mixed_span()=> {
            use #private::{ByConversion as _, ByDefault as _};
            (&&#private::Output::<#output>::new()).refuse()
        }}
    }

    /// Returns the span for code that fails to compile if the function's return type is wrong.
    fn output_span(&self) -> Span {
        match (&self.function.returned_future, &self.function.signature.output) {
            (Some(returned), _) => span_at(&returned.output),
            (None, ReturnType::Type(_, ty)) => span_at(ty),
            (None, ReturnType::Default) => span_at(&self.function.signature.ident),
        }
    }
}

/// Replaces each `impl Trait` by `_`, because only a signature can contain it.
fn without_impl(ty: &Type) -> Type {
    let mut ty = ty.clone();
    ReplaceImpl::default().visit_type_mut(&mut ty);
    ty
}

/// Returns each `impl Trait` in a type.
fn impls(ty: &Type) -> Vec<Type> {
    let mut replace = ReplaceImpl::default();
    replace.visit_type_mut(&mut ty.clone());
    replace.found
}

#[derive(Default)]
struct ReplaceImpl {
    found: Vec<Type>,
}

impl VisitMut for ReplaceImpl {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        if matches!(ty, Type::ImplTrait(_)) {
            self.found.push(std::mem::replace(ty, parse_quote!(_)));
        }
        visit_mut::visit_type_mut(self, ty);
    }
}

/// Removes each `use<..>`, which only a return type can have.
struct WithoutCaptures;

impl VisitMut for WithoutCaptures {
    fn visit_type_impl_trait_mut(&mut self, ty: &mut TypeImplTrait) {
        let bounds = std::mem::take(&mut ty.bounds);
        let is_bound = |bound: &TypeParamBound| !matches!(bound, TypeParamBound::PreciseCapture(_));
        ty.bounds = bounds.into_iter().filter(is_bound).collect();
        visit_mut::visit_type_impl_trait_mut(self, ty);
    }
}

/// Returns the type that selects the conversion of a refusal. An argument of the type that contains an `impl Trait`
/// becomes `()`, because only the type of the error matters.
fn conversion_type(ty: &Type) -> Type {
    let mut ty = ungrouped(ty).clone();
    if let Type::Path(path) = &mut ty
        && let Some(last) = path.path.segments.last_mut()
        && let PathArguments::AngleBracketed(of) = &mut last.arguments
    {
        for argument in &mut of.args {
            if let GenericArgument::Type(ty) = argument
                && !impls(ty).is_empty()
            {
                *ty = parse_quote!(());
            }
        }
    }
    if impls(&ty).is_empty() { ty } else { parse_quote!(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_leaves_the_item_as_it_is_and_adds_one_error() {
        let item = quote!(
            async fn pay() {}
        );
        let expanded = expand(&quote!(key = ""), &item).to_string();
        assert!(expanded.starts_with(&item.to_string()), "{expanded}");
        assert_eq!(expanded.matches("compile_error").count(), 1);
    }

    #[test]
    fn the_attribute_moves_below_the_others_once() {
        let pay = |last| quote!(#[doc = "Pays."] #[instrument] #last async fn pay() {});
        let once = expand(&quote!(key = "a"), &pay(quote!())).to_string();
        let last = quote!(#[::redlock_axum::__private::redis_lock(__last, key = "a")]);
        let expected = pay(last).to_string().replace("pay ()", "pay (_ : ())");
        assert_eq!(once, expected);
        let function = expand(
            &quote!(key = "a", manager = SHOP),
            &quote!(
                #[inline]
                async fn f() -> R {}
            ),
        );
        assert!(function.to_string().contains("fn f () -> R"), "{function}");
        let twice = expand(&quote!(__last, key = "a"), &pay(quote!())).to_string();
        assert!(twice.contains("HandlerLock"), "{twice}");
    }

    #[test]
    fn an_impl_in_a_type_is_inferred() {
        let print = |ty: Type| ty.to_token_stream().to_string().replace(' ', "");
        for (written, inferred, converted) in [
            ("Result<impl Into<u8>, Error>", "Result<_,Error>", "Result<(),Error>"),
            ("Result<Page<impl Copy>, Error>", "Result<Page<_>,Error>", "Result<(),Error>"),
            ("(u8, &[impl Copy])", "(u8,&[_])", "()"),
            ("impl IntoResponse", "_", "()"),
            ("(Result<impl Into<u8>, Error>)", "(Result<_,Error>)", "Result<(),Error>"),
            ("Box<dyn Fn() -> u8>", "Box<dynFn()->u8>", "Box<dynFn()->u8>"),
        ] {
            let ty: Type = syn::parse_str(written).unwrap();
            assert_eq!(print(without_impl(&ty)), inferred, "{written}");
            assert_eq!(print(conversion_type(&ty)), converted, "{written}");
        }
    }

    /// `redlock-axum/tests/ui` checks the tokens to which all messages point.
    #[test]
    fn each_mistake_has_its_message() {
        const HANDLER: &str = "key = \"a\"";
        const FUNCTION: &str = "key = \"a\", manager = a";
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
                "async fn f(#[cfg_attr(a, b)] a: u8) {}",
                "`#[redis_lock]` does not support `#[cfg]`",
            ),
            (HANDLER, "#[redis_lock()] async fn f() {}", "a function has one `#[redis_lock]`"),
            (FUNCTION, "#[x::redis_lock(a)] async fn f() -> R {}", "a function has one"),
            (HANDLER, "async fn f(&self) {}", "a method cannot be a handler; add `manager = ..`"),
            (HANDLER, future, "a locked handler must be an `async fn`; a function that returns a"),
            (FUNCTION, "async fn f() {}", "with `manager = ..` the function must return a"),
            (
                "key = \"{b}\"",
                "async fn f(c: u8) {}",
                "no parameter binds `b`: they bind `c`; only",
            ),
            ("key = \"{B:lower}\"", "async fn f() {}", "`B` is a constant, which has no type"),
            (
                HANDLER,
                "async fn f(A(b): A, c: C, D((_, b)): D) {}",
                "`b` is bound by two parameters",
            ),
            (
                "key = \"{b}\"",
                "async fn f(UnderLock(b): UnderLock<B>) {}",
                "`b` is extracted under the lock, but the key is made before",
            ),
            (
                "key = \"{b}\"",
                "async fn f(b: redlock_axum::HeldLock) {}",
                "`b` is the held lock, but the key is made before",
            ),
            (
                HANDLER,
                "async fn f(b: Option<UnderLock<B>>) {}",
                "`UnderLock` must be the outermost type of a parameter",
            ),
            (
                FUNCTION,
                "async fn f(b: UnderLock<B>) -> R {}",
                "`UnderLock` is for handlers without `manager`",
            ),
            ("key = \"'a' + #b\"", "async fn f() {}", "`'a' + #b` is an expression of Spring"),
        ] {
            let (arguments, code) = (arguments.parse().unwrap(), item.parse().unwrap());
            let error = try_expand(&arguments, code).err().unwrap().to_string();
            assert!(error.starts_with(start), "{item}: {error}");
        }
    }
}
