//! The variants whose handlers read the bodies of their requests.

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::routing::post;
use redlock_axum::{LockLayer, LockManager, LockPolicy};

use crate::variants::{LEASE, ROUTE, Variant, by_hand};

async fn bare(Path(id): Path<u64>, body: Bytes) -> &'static str {
    std::hint::black_box((id, body));
    "paid"
}

async fn locked_by_hand(locks: LockManager, id: u64, body: Bytes) -> &'static str {
    std::hint::black_box(body);
    by_hand(locks, id).await
}

/// Returns the bare route, the lock in the handler, and a layer, which reads the body before it asks for the lock.
pub(crate) fn uploads() -> [Variant; 3] {
    let locks = LockManager::in_memory();
    let route = |handler| Router::new().route(ROUTE, handler);
    let policy = LockPolicy::new("order:{id:u64}").expire(LEASE);
    let layer = LockLayer::new(&locks, policy).expect("a policy");
    let hand = move |Path(id): Path<u64>, body: Bytes| locked_by_hand(locks.clone(), id, body);
    let variants = [
        Variant::new("bare route, a body", route(post(bare))),
        Variant::new("lock in the handler, a body", route(post(hand))),
        Variant::new("layer, a body", route(post(bare).route_layer(layer))),
    ];
    variants.map(|mut variant| {
        variant.body = b"a body that arrives as a whole";
        variant
    })
}
