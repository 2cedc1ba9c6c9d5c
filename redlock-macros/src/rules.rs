//! Checks the rules that concern both the arguments of the attribute and the function.

use proc_macro2::Ident;
use syn::{GenericArgument, PathArguments, ReturnType, Type};

use crate::arguments::Arguments;
use crate::forwarding;
use crate::function::Function;

/// The extractors of axum and axum-extra that read the body of the request.
const BODY_EXTRACTORS: [&str; 10] = [
    "Body",
    "Bytes",
    "Form",
    "Json",
    "JsonLines",
    "Multipart",
    "Protobuf",
    "RawForm",
    "Request",
    "String",
];

/// Checks the rules that concern both the arguments and the function.
pub(crate) fn check(arguments: &Arguments, function: &Function) -> syn::Result<()> {
    if let Some(second) = forwarding::second_handler_lock(&function.attributes) {
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
                "a method cannot be a handler; add `manager = ..`, such as \
                 `manager = self.locks`",
            ));
        }
        if function.returned_future.is_some() {
            return Err(syn::Error::new_spanned(
                signature.fn_token,
                "a locked handler must be an `async fn`; a function that returns a future needs \
                 `manager = ..`",
            ));
        }
        return check_order(function);
    }
    if matches!(signature.output, ReturnType::Default) {
        return Err(syn::Error::new_spanned(
            &signature.ident,
            "with `manager = ..` the function must return a `Result`, whose error says that the \
             lock was refused",
        ));
    }
    // Under another `#[redis_lock]`, the parameter is that attribute's lock.
    let is_inner = is_inner_name(&signature.ident) || forwarding::is_reversed(&function.attributes);
    if !is_inner
        && let Some(parameter) = function.parameters().find(|written| is_held_lock(&written.ty))
    {
        return Err(syn::Error::new_spanned(
            &parameter.ty,
            "a function with `manager` cannot extract its own lock; remove `manager`, acquire the lock \
             in the body: `locks.lock(..).acquire()`, or take the caller's lock as `&HeldLock`",
        ));
    }
    Ok(())
}

/// Checks that only the last parameter of a handler reads the body. The compiler's message would name the hidden
/// extractor, but not the mistake.
fn check_order(function: &Function) -> syn::Result<()> {
    let parameters: Vec<_> = function.parameters().collect();
    let Some((_, before)) = parameters.split_last() else { return Ok(()) };
    for parameter in before {
        let reads_body = |name: &&Ident| BODY_EXTRACTORS.iter().any(|extractor| *name == extractor);
        if let Some(name) = extractor(&parameter.ty).filter(reads_body) {
            return Err(syn::Error::new_spanned(
                &parameter.ty,
                format!("`{name}` reads the body of the request, so it must be the last parameter"),
            ));
        }
    }
    Ok(())
}

fn is_inner_name(name: &Ident) -> bool {
    name.to_string().starts_with("__redis_lock_")
}

/// Returns whether the type is an extractor for the handler's lock, judged by its name.
fn is_held_lock(ty: &Type) -> bool {
    extractor(ty).is_some_and(|name| name == "HeldLock" || name == "FencedLock")
}

/// Returns the name of the extractor, also of an optional one.
fn extractor(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Group(group) => extractor(&group.elem),
        Type::Paren(inner) => extractor(&inner.elem),
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            match &last.arguments {
                PathArguments::AngleBracketed(of)
                    if last.ident == "Option" || last.ident == "Result" =>
                {
                    of.args.iter().find_map(|argument| match argument {
                        GenericArgument::Type(ty) => extractor(ty),
                        _ => None,
                    })
                }
                _ => Some(&last.ident),
            }
        }
        _ => None,
    }
}
