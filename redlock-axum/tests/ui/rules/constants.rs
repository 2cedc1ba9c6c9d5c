use std::time::Duration;

use redlock_axum::redis_lock;

const SHORT: Duration = Duration::from_millis(9);
const DAYS: u32 = 8;
const NONE: usize = 0;
const DEBT: i64 = -1;
const MANY: u64 = (1 << 32) + 3;

#[redis_lock(key = "a", expire = SHORT)]
async fn too_short() {}

#[redis_lock(key = "a", expire = 5, wait_time = DAYS, time_unit = "days")]
async fn too_long() {}

#[redis_lock(key = "a", permits = NONE)]
async fn no_permits() {}

#[redis_lock(key = "a", permits = DEBT)]
async fn negative_permits() {}

#[redis_lock(key = "a", permits = MANY)]
async fn permits_beyond_32_bits() {}

fn main() {}
