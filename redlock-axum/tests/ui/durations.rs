use redlock_axum::redis_lock;

#[redis_lock(key = "a", wait_time = 18446744073709551615)]
async fn too_large() {}

#[redis_lock(key = "a", expire = -5)]
async fn negative() {}

#[redis_lock(key = "a", expire = 0.5)]
async fn fraction() {}

#[redis_lock(key = "a", expire = "5 parsecs")]
async fn words() {}

#[redis_lock(key = "a", wait_time = 2 * 3)]
async fn expression() {}

fn main() {}
