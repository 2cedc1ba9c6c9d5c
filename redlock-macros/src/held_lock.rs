//! Parameters of a handler that are its lock. The attribute finds them by the names of their types.

use syn::Type;

use crate::function::{argument, ungrouped};

/// Returns whether a type is `HeldLock`, `FencedLock`, or an `Option` of one of them.
pub(crate) fn is_lock(ty: &Type) -> bool {
    let Type::Path(path) = ungrouped(ty) else { return false };
    path.path.segments.last().is_some_and(|last| {
        if last.ident == "Option" {
            argument(last).is_some_and(is_lock)
        } else {
            last.arguments.is_none() && (last.ident == "HeldLock" || last.ident == "FencedLock")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_of_a_handler_is_found_by_its_name() {
        for (written, expected) in [
            ("HeldLock", true),
            ("(::redlock_axum::FencedLock)", true),
            ("Option<HeldLock>", true),
            ("core::option::Option<redlock_axum::FencedLock>", true),
            ("Extension<HeldLock>", false),
            ("UnderLock<HeldLock>", false),
            ("Result<HeldLock, LockRejection>", false),
            ("HeldLock<u8>", false),
            ("&HeldLock", false),
            ("Option", false),
        ] {
            assert_eq!(is_lock(&syn::parse_str(written).unwrap()), expected, "{written}");
        }
    }
}
