use axum::extract::Path;
use redlock_axum::{LockError, LockManager, redis_lock};

#[redis_lock(key = "a", contended_status = "423")]
async fn quoted_status() {}

#[redis_lock(key = "a", hold_until = "end_of_body")]
async fn quoted_end() {}

#[redis_lock(key = "a", on_reject)]
async fn no_function() {}

#[redis_lock(key = "a", manager = _locks, contended_status = 423)]
async fn function(_locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", error = convert, on_reject = convert)]
async fn both() {}

#[redis_lock(key = "a", error = convert, contended_status = 423)]
async fn status_without_effect() {}

#[redis_lock(key = "a:{_id:u32}")]
async fn unknown_type(Path(_id): Path<String>) {}

#[redis_lock(key("a:{:u64}:{}", _id))]
async fn missing_value(Path(_id): Path<String>) {}

#[redis_lock(key("a:{:u64}", _id, _id))]
async fn extra_value(Path(_id): Path<String>) {}

#[redis_lock(key = "{TENANT:lower}:{_id}")]
async fn typed_constant(Path(_id): Path<String>) {}

fn main() {}
