//! The size of the future of a locked function. A future that contains the user's future or the parameters once more
//! is about twice as large, and every request and every task allocates it.

use std::convert::Infallible;
use std::hint::black_box;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Method, Request};
use axum::response::{IntoResponse, Response};
use redlock_axum::{LockError, LockManager, redis_lock};
use tokio::task::yield_now;
use tower::{Layer, Service, service_fn};

use crate::support::layer;

/// The size of the buffer, and of the parameter.
const KIBIBYTE: usize = 1024;

struct Large([u8; KIBIBYTE]);

impl<S: Sync> FromRequestParts<S> for Large {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self([1; KIBIBYTE]))
    }
}

/// Holds a buffer of 1 KiB across an await.
async fn use_buffer() {
    let buffer = black_box([1_u8; KIBIBYTE]);
    yield_now().await;
    black_box(&buffer);
}

#[redis_lock(key = "a")]
async fn handler_with_buffer(_method: Method) -> &'static str {
    let buffer = black_box([1_u8; KIBIBYTE]);
    yield_now().await;
    black_box(&buffer);
    "done"
}

#[redis_lock(key = "a")]
async fn handler_with_parameter(large: Large) -> &'static str {
    yield_now().await;
    black_box(&large.0);
    "done"
}

#[redis_lock(key("a:{}", large.0[0]))]
async fn handler_with_parameter_in_key(large: Large) -> &'static str {
    yield_now().await;
    black_box(&large.0);
    "done"
}

#[redis_lock(key = "a", on_lost = abort)]
async fn abortable_handler(_method: Method) -> &'static str {
    let buffer = black_box([1_u8; KIBIBYTE]);
    yield_now().await;
    black_box(&buffer);
    "done"
}

#[redis_lock(key = "a", manager = locks)]
async fn function_with_buffer(locks: &LockManager) -> Result<(), LockError> {
    let buffer = black_box([1_u8; KIBIBYTE]);
    yield_now().await;
    black_box(&buffer);
    Ok(())
}

#[redis_lock(key = "a", manager = locks)]
async fn function_with_parameter(locks: &LockManager, large: Large) -> Result<(), LockError> {
    yield_now().await;
    black_box(&large.0);
    Ok(())
}

struct Shop(LockManager);

impl Shop {
    #[redis_lock(key = "a", manager = self.0)]
    async fn method_with_buffer(&self) -> Result<(), LockError> {
        let buffer = black_box([1_u8; KIBIBYTE]);
        yield_now().await;
        black_box(&buffer);
        Ok(())
    }

    #[redis_lock(key = "a", manager = self.0)]
    async fn method_with_parameter(&self, large: Large) -> Result<(), LockError> {
        yield_now().await;
        black_box(&large.0);
        Ok(())
    }
}

/// Returns the size of the future that a handler with one parameter returns. The parameter contains the hidden
/// extractor, so a test cannot make it.
fn size_of_handler<P, F: Future>(_: impl FnOnce(P) -> F) -> usize {
    size_of::<F>()
}

/// Compares a size with the size of the same future at the time when this test was written.
fn assert_at_most(name: &str, size: usize, measured: usize) {
    println!("{name}: {size} bytes");
    assert!(size * 10 <= measured * 11, "{name}: {size} bytes, not at most 1.1 times {measured}");
}

#[test]
fn the_future_of_a_handler_contains_its_buffer_and_parameter_no_more_often() {
    assert_at_most("a handler with a buffer", size_of_handler(handler_with_buffer), 1712);
    assert_at_most("a handler with a parameter", size_of_handler(handler_with_parameter), 4272);
    // The future does not store a parameter again because the key borrows it.
    let size = size_of_handler(handler_with_parameter_in_key);
    assert_at_most("a handler with a parameter in the key", size, 4272);
    assert_at_most("a handler with on_lost", size_of_handler(abortable_handler), 1712);
}

#[test]
fn the_future_of_a_function_contains_its_buffer_and_parameter_no_more_often() {
    let locks = LockManager::in_memory();
    let large = || Large([1; KIBIBYTE]);
    let size = size_of_val(&function_with_buffer(&locks));
    assert_at_most("a function with a buffer", size, 504);
    let size = size_of_val(&function_with_parameter(&locks, large()));
    assert_at_most("a function with a parameter", size, 3576);
    let shop = Shop(locks);
    assert_at_most("a method with a buffer", size_of_val(&shop.method_with_buffer()), 504);
    let size = size_of_val(&shop.method_with_parameter(large()));
    assert_at_most("a method with a parameter", size, 3576);
}

/// The layer allocates the future of a locked request. Its own future has the size of the inner one, for requests that
/// it does not lock.
#[tokio::test]
async fn the_future_of_a_layer_contains_the_inner_future_no_more_often() {
    let inner = service_fn(async |_: Request<Body>| {
        use_buffer().await;
        Ok::<Response, Infallible>("done".into_response())
    });
    let mut service = layer(&LockManager::in_memory(), "a").layer(inner);
    let size = size_of_val(&service.call(Request::new(Body::empty())));
    assert_at_most("a layer", size, 1544);
}
