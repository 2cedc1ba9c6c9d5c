//! Counts the allocations that the attribute, the layer and the policies add to a handler that calls the manager
//! itself, and the size of the future that the layer allocates. A test of its own, because it replaces the allocator.

#[path = "../benches/overhead/variants.rs"]
mod variants;

use std::convert::Infallible;
use std::hint::black_box;

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use redlock_axum::{LockLayer, LockManager};
use tokio::runtime::Builder;
use tower::{Layer, Service, service_fn};
use variants::variants;

/// The most allocations beyond the lock.
const MOST: u64 = 9;
const REQUESTS: u32 = 100;

#[test]
fn each_way_to_lock_a_route_needs_few_allocations_beyond_the_lock() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let [_, hand, ways @ .., _] = variants().map(|mut variant| {
        // The first requests allocate what later ones use again.
        variant.serve(&runtime, REQUESTS);
        let counted = allocation_counter::measure(|| variant.serve(&runtime, REQUESTS));
        (variant.name, counted.count_total / u64::from(REQUESTS))
    });
    for (name, allocations) in ways {
        let beyond = allocations - hand.1;
        println!("{name}: {beyond} allocations beyond the {} of the {}", hand.1, hand.0);
        assert!(beyond <= MOST, "{name}: {beyond} allocations beyond the lock");
    }
}

const KIBIBYTE: usize = 1024;

/// The layer allocates the key and the future of a locked request. A future that contains the inner future once more is
/// half as large again.
#[test]
fn the_future_that_a_layer_allocates_contains_the_inner_future_no_more_often() {
    let locks = LockManager::in_memory();
    let layer = LockLayer::new(&locks, "a").unwrap();
    let mut with_buffer = layer.layer(service_fn(async |_: Request<Body>| {
        let buffer = black_box([1_u8; KIBIBYTE]);
        tokio::task::yield_now().await;
        black_box(&buffer);
        Ok::<Response, Infallible>(Response::default())
    }));
    // The first request registers the metrics of the name.
    drop(with_buffer.call(Request::new(Body::empty())));
    assert_allocates("a buffer", 2756, || drop(with_buffer.call(Request::new(Body::empty()))));
}

/// Compares the allocated bytes with those at the time when this test was written.
fn assert_allocates(name: &str, measured: u64, call: impl FnOnce()) {
    let counted = allocation_counter::measure(call);
    let (count, bytes) = (counted.count_total, counted.bytes_total);
    println!("{name}: {bytes} bytes in {count} allocations");
    assert!(bytes * 10 <= measured * 11, "{name}: {bytes} bytes, not at most 1.1 times {measured}");
}
