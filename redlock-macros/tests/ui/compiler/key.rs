use axum::extract::Path;
use redlock_axum::redis_lock;

#[redis_lock(key = "order:{customer}")]
async fn wrong_name(Path(id): Path<u64>) -> String {
    id.to_string()
}

#[redis_lock(key("order:{}:{}", id))]
async fn too_few_values(Path(id): Path<u64>) -> String {
    id.to_string()
}

#[redis_lock(key = "order:{id")]
async fn never_closed(Path(id): Path<u64>) -> String {
    id.to_string()
}

fn main() {}
