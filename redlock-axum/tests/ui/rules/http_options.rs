use axum::http::StatusCode;
use redlock_axum::redis_lock;

#[redis_lock(key = "a", contended_status = 200)]
async fn success() {}

#[redis_lock(key = "a", contended_status = StatusCode::OK)]
async fn constant() {}

#[redis_lock(key = "a", retry_after_max = "900ms")]
async fn too_short() {}

fn main() {}
