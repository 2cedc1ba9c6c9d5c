//! The attribute [`#[redis_lock]`](macro@redis_lock), which `redlock-axum` re-exports.
//!
//! Depend on `redlock-axum`, not on this crate: the generated code calls functions of `redlock-axum`. The
//! attribute is documented there and [here](macro@redis_lock).

#![cfg_attr(docsrs, feature(doc_cfg))]

mod arguments;
mod bindings;
mod body;
mod count;
mod duration;
mod duration_text;
mod evaluated;
mod expand;
mod forwarding;
mod function;
mod http;
mod hygiene;
mod in_place;
mod key;
mod key_code;
mod key_text;
mod options;
mod returned_future;
mod rules;
mod spring;
#[cfg(test)]
mod spring_tests;
mod value;

use expand::Position;
use proc_macro::TokenStream;

#[doc = include_str!("../docs/redis_lock.md")]
#[proc_macro_attribute]
pub fn redis_lock(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(&arguments.into(), &item.into(), Position::Written).into()
}

/// [`redis_lock`](macro@redis_lock), which has moved itself below the other attributes of its function. Not a
/// public API.
#[doc(hidden)]
#[proc_macro_attribute]
pub fn redis_lock_last(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(&arguments.into(), &item.into(), Position::Last).into()
}
