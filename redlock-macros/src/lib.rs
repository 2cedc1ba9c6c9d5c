//! The attribute [`#[redis_lock]`](macro@redis_lock), which runs an axum handler, or any other async function, under a
//! distributed lock on Redis, PostgreSQL or ZooKeeper.
//!
//! Depend on `redlock-axum`, not on this crate: the generated code calls functions of `redlock-axum`. The
//! attribute is documented there and [here](macro@redis_lock).

#![cfg_attr(docsrs, feature(doc_cfg))]

mod arguments;
mod expand;
mod function;
mod held_lock;
mod hygiene;
mod key;
mod parameters;
mod template;
#[cfg(test)]
mod template_tests;
mod under_lock;

use proc_macro::TokenStream;

#[doc = include_str!("../docs/redis_lock.md")]
#[proc_macro_attribute]
pub fn redis_lock(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(&arguments.into(), &item.into()).into()
}
