use redlock_axum::redis_lock;

const TEXT: &str = "423";

#[redis_lock(key = "a", contended_status = TEXT)]
async fn text() {}

fn main() {}
