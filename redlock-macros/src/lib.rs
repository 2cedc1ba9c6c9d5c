//! The attribute `#[redis_lock]`.

mod attr;
mod attributes;
mod bindings;
mod duration;
mod expand;
mod function;
mod key;

use proc_macro::TokenStream;

/// Locks.
#[proc_macro_attribute]
pub fn redis_lock(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(arguments.into(), &item.into()).into()
}
