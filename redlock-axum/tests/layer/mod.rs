//! `LockLayer`: the requests that it locks, their keys, and how long the locks are held.

mod capacity;
mod from_fn;
mod keys;
mod locking;
mod nesting;
mod other_layers;
mod places;
#[cfg(feature = "test-util")]
mod readiness;
mod refusals;
mod request_values;

use axum::Router;
use axum::routing::post as on_post;
use redlock_axum::{LockManager, LockPolicy, MemoryNode};

use crate::support::layer;

/// Returns an application with `/orders/{id}/pay` behind the layer. The handler responds with the
/// number of keys on the node while it runs.
fn app(policy: impl Into<LockPolicy>, locks: &LockManager, node: &MemoryNode) -> Router {
    let node = node.clone();
    let pay = move || async move { node.len().to_string() };
    Router::new()
        .route("/orders/{id}/pay", on_post(pay.clone()).get(pay))
        .route_layer(layer(locks, policy))
}
