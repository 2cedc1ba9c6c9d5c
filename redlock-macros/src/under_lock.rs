//! Parameters of the type `UnderLock`, which are extracted when the lock is held. The attribute finds them by this name.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{PathSegment, Type};

use crate::function::{argument, ungrouped};

/// Returns the `T` of the type `UnderLock<T>`.
pub(crate) fn value_type(ty: &Type) -> Option<&Type> {
    argument(outermost(ty)?)
}

/// Checks that a type has the name `UnderLock` only in the outermost place, where the attribute sees it.
pub(crate) fn check(ty: &Type) -> syn::Result<()> {
    let inside = match value_type(ty) {
        Some(value) => value.to_token_stream(),
        None if outermost(ty).is_some() => return Ok(()),
        None => ty.to_token_stream(),
    };
    match find(inside) {
        None => Ok(()),
        Some(name) => Err(syn::Error::new(
            name.span(),
            "`UnderLock` must be the outermost type of a parameter, such as `UnderLock<Option<Order>>` or \
             `UnderLock<(Order, Customer)>`",
        )),
    }
}

/// Returns the last part of the path, if the type is an `UnderLock`.
fn outermost(ty: &Type) -> Option<&PathSegment> {
    let Type::Path(path) = ungrouped(ty) else { return None };
    path.path.segments.last().filter(|last| last.ident == "UnderLock")
}

fn find(tokens: TokenStream) -> Option<Ident> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) if ident == "UnderLock" => Some(ident),
        TokenTree::Group(group) => find(group.stream()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ty(text: &str) -> Type {
        syn::parse_str(text).unwrap()
    }

    #[test]
    fn the_type_is_found_by_its_name() {
        for (written, value) in [
            ("UnderLock<Order>", Some("Order")),
            ("redlock_axum::UnderLock<Option<Order>>", Some("Option < Order >")),
            ("(::redlock_axum::UnderLock<(A, B)>)", Some("(A , B)")),
            ("Order", None),
            ("Path<u64>", None),
            ("UnderLock", None),
            ("&'static UnderLock<u8>", None),
        ] {
            let value_of = |ty: &Type| value_type(ty).map(|ty| ty.to_token_stream().to_string());
            assert_eq!(value_of(&ty(written)).as_deref(), value, "{written}");
        }
    }

    #[test]
    fn the_name_inside_of_another_type_is_a_mistake() {
        for written in ["Path<u64>", "UnderLock", "UnderLock<(A, B)>", "fn() -> u8"] {
            assert!(check(&ty(written)).is_ok(), "{written}");
        }
        for written in [
            "Option<UnderLock<Order>>",
            "(UnderLock<A>, B)",
            "UnderLock<UnderLock<A>>",
            "Result<redlock_axum::UnderLock<A>, B>",
        ] {
            let message = check(&ty(written)).unwrap_err().to_string();
            assert!(message.starts_with("`UnderLock` must be the outermost type"), "{message}");
        }
    }
}
