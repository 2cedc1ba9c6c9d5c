use redlock_axum::redis_lock;

const TEXT: &str = "5s";

#[redis_lock(key = "a", expire = TEXT)]
async fn text() {}

#[redis_lock(key = "a", expire = seconds)]
async fn parameter(seconds: axum::extract::Path<u64>) {}

fn main() {}
