use std::time::Duration;

use redlock_axum::redis_lock;

const SHORT: Duration = Duration::from_millis(9);
const DAYS: u32 = 8;

#[redis_lock(key = "a", expire = SHORT)]
async fn too_short() {}

#[redis_lock(key = "a", expire = 5, wait_time = DAYS, time_unit = "days")]
async fn too_long() {}

fn main() {}
