//! The public API as an application sees it.

mod auto_traits;
mod fenced_lock;
mod services;
