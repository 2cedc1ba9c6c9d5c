use axum::extract::Path;
use redlock_axum::redis_lock;

#[redis_lock(key = "'order:' + #id")]
async fn expression(Path(_id): Path<u64>) {}

#[redis_lock(key = "'stock:' + #item.sku")]
async fn property(Path(_item): Path<u64>) {}

#[redis_lock(key = "order:#id")]
async fn reference(Path(id): Path<u64>) {
    let _ = id;
}

#[redis_lock(key = "order:#order.id")]
async fn property_of_a_parameter_that_is_destructured(Path((id, _)): Path<(u64, u64)>) {
    let _ = id;
}

#[redis_lock(key = "#p0")]
async fn position(Path(_id): Path<u64>) {}

#[redis_lock(key = "'orders'")]
async fn quotes() {}

#[redis_lock(key = "issue#{n}")]
async fn legal(Path(n): Path<u64>) {
    let _ = n;
}

#[redis_lock(key = "issue#tracker")]
async fn also_legal() {}

fn main() {}
