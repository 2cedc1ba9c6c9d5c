use redlock_axum::redis_lock;

#[redis_lock(key = "user:{header(x-user):lower}")]
async fn header() {}

#[redis_lock(key("{}:{query(tenant)}", 1))]
async fn query() {}

#[redis_lock(key = "export:{ext(claims)}")]
async fn extension() {}

fn main() {}
