use redlock_axum::redis_lock;

const TEXT: &str = "3";

#[redis_lock(key = "a", permits = TEXT)]
async fn text() {}

fn main() {}
