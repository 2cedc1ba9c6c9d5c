// Messages of the attribute itself. Each points at its token, and leaves the function as it is, so that nothing else
// is reported.
#![allow(dead_code, unused_imports)]

use axum::extract::{Json, Path};
use redlock_axum::{FencedLock, HeldLock, LockError, LockManager, RunError, UnderLock, redis_lock};

// Arguments.
#[redis_lock] async fn no_arguments() {}
#[redis_lock(expire = 5)] async fn no_key() {}
#[redis_lock("order")] async fn bare_text() {}
#[redis_lock(key)] async fn no_value() {}
#[redis_lock(key = "a", waitTime = 2)] async fn the_name_in_java() {}
#[redis_lock(key = "a", expire = 5, expire = 6)] async fn twice() {}
#[redis_lock(key = "a" expire = 5)] async fn no_comma() {}
#[redis_lock(key = "a", manager = l, error = |e| e)] async fn error_path(l: LockManager) -> Result<(), LockError> { Ok(()) }
#[redis_lock(key = "a", error = convert)] async fn error_of_a_handler() {}
#[redis_lock(key = "a", skip)] async fn skipped_handler() {}
#[redis_lock(key = "a", manager = m, installed)] async fn two_managers(m: LockManager) {}

// Options.
#[redis_lock(key = "a", expire = 5, time_unit = "fortnights")] async fn unknown_unit() {}
#[redis_lock(key = "a", expire = 5, time_unit = "microseconds")] async fn too_fine() {}
#[redis_lock(key = "a", wait_time = 2 * 3)] async fn expression() {}
#[redis_lock(key = "a", wait_time = 500ms)] async fn time_without_quotes() {}

// Keys.
#[redis_lock(key = "")] async fn empty() {}
#[redis_lock(key = 42)] async fn number() {}
#[redis_lock(key = "order:{id:?}")] async fn specification(Path(_id): Path<u64>) {}
#[redis_lock(key = "pair:{a}-{b}")] async fn not_separated(Path((_a, _b)): Path<(u64, u64)>) {}
#[redis_lock(key = "user:{header(x-user):lower}")] async fn placeholder_of_a_layer() {}
#[redis_lock(key = "order:{customer}")] async fn no_parameter(Path((_id, _shop)): Path<(u64, u64)>) {}
#[redis_lock(key("{}:{order.id}", 1))] async fn field(Path(_order): Path<u64>) {}
#[redis_lock(key = concat!("order:", "{_id}"))] async fn put_together(Path(_id): Path<u64>) {}
#[redis_lock(key = "'order:' + #id")] async fn for_spring(Path(_id): Path<u64>) {}
#[redis_lock(key(id))] async fn no_text(Path(_id): Path<u64>) {}
#[redis_lock(key("order:{}", id, sku))] async fn value_without_placeholder(Path((id, sku)): Path<(u64, u64)>) {}
#[redis_lock(key("a:{:u64}:{}", _id))] async fn missing_value(Path(_id): Path<String>) {}
#[redis_lock(key = "{TENANT:lower}:{_id}")] async fn typed_constant(Path(_id): Path<String>) {}
#[redis_lock(key = "cart", keys = _skus)] async fn key_and_keys(Json(_skus): Json<Vec<String>>) {}
#[redis_lock(keys = "sku:{}")] async fn text_for_a_list(Json(_skus): Json<Vec<String>>) {}
#[redis_lock(keys("sku:{skus}", skus = _skus))] async fn named_iterator(Json(_skus): Json<Vec<String>>) {}
#[redis_lock(key("order:{}:{}", _id))] async fn too_few_values(Path(_id): Path<u64>) {}
#[redis_lock(key = "order:{_id")] async fn never_closed(Path(_id): Path<u64>) {}
#[redis_lock(key = "order:_id}")] async fn never_opened(Path(_id): Path<u64>) {}
#[redis_lock(keys("sku", _skus))] async fn no_placeholder(Json(_skus): Json<Vec<String>>) {}
#[redis_lock(keys("sku:{}:{}", _skus, _sizes))] async fn two_iterators(Json((_skus, _sizes)): Json<(u8, u8)>) {}

// Functions.
#[redis_lock(key = "a")] fn not_async() {}
#[redis_lock(key = "a")] const fn constant() {}
#[redis_lock(key = "a")] async unsafe fn not_safe() {}
#[redis_lock(key = "a")] async extern "C" fn foreign() {}
#[redis_lock(key = "a")] struct NotAFunction;
#[redis_lock(key = "a", manager = m)] async fn no_result(m: LockManager) {}
#[redis_lock(key = "a")] #[redis_lock(key = "b")] async fn two_handlers() {}
#[redis_lock(key = "a")] async fn parameter_under_cfg(#[cfg(unix)] _id: u8) {}
#[redis_lock(key = "a")] fn handler_that_returns_a_future() -> impl Future<Output = ()> { async {} }

// Parameters that are extracted under the lock.
#[redis_lock(key = "order:{_id}")] async fn value_in_key(UnderLock(Path(_id)): UnderLock<Path<u64>>) {}
#[redis_lock(key = "a")] async fn value_in_another_type(_id: Option<UnderLock<Path<u64>>>) {}
#[redis_lock(key = "a", manager = _m)] async fn value_of_a_function(_m: LockManager, _id: UnderLock<u8>) -> Result<(), LockError> { Ok(()) }

trait Reserve {
    #[redis_lock(key = "a", manager = self.locks())] async fn reserve(&self) -> Result<(), LockError>;
    #[redis_lock(key = "a")] async fn method(&self) {}
    #[redis_lock(key = "{self}", manager = self.locks)] async fn self_in_key(&self) -> Result<(), LockError> { Ok(()) }
}

fn main() {
    let _ = (no_arguments(), not_async(), constant(), NotAFunction);
}
