use axum::extract::Path;
use redlock_axum::redis_lock;

#[redis_lock(key = "")]
async fn empty() {}

#[redis_lock(key = "a\n")]
async fn control_character() {}

#[redis_lock(key = 42)]
async fn number() {}

#[redis_lock(key = "order:{id:?}")]
async fn specification(Path(_id): Path<u64>) {}

#[redis_lock(key = "order:{}")]
async fn no_name(Path(_id): Path<u64>) {}

#[redis_lock(key = "order:{order.id}")]
async fn field(Path(_order): Path<u64>) {}

#[redis_lock(key(id))]
async fn no_text(Path(_id): Path<u64>) {}

fn main() {}
