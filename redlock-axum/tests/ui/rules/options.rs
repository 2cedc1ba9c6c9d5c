use redlock_axum::{LockError, LockManager, redis_lock};

#[redis_lock(key = "a", expire = 0)]
async fn no_lease() {}

#[redis_lock(key = "a", expire = "9ms")]
async fn too_short() {}

#[redis_lock(key = "a", expire = "8d")]
async fn too_long() {}

#[redis_lock(key = "a", wait_time = "8d")]
async fn too_patient() {}

#[redis_lock(key = "a", max_hold = "1m")]
async fn bound_without_renewal() {}

#[redis_lock(key = "a", renew = false, max_hold = 60)]
async fn bound_of_no_renewal() {}

#[redis_lock(key = "a", renew, max_hold = 0)]
async fn bound_of_zero() {}

#[redis_lock(key = "a", keep, min_hold = 2)]
async fn keep_and_min_hold() {}

#[redis_lock(key = "a", min_hold = 6)]
async fn longer_than_the_default_lease() {}

#[redis_lock(key = "a", expire = 2, min_hold = "2001ms", manager = locks)]
async fn longer_than_the_lease(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", permits = 0)]
async fn no_permits() {}

#[redis_lock(key = "a", permits = 1001)]
async fn too_many_permits() {}

#[redis_lock(key = "a", permits = 99999999999999999999)]
async fn more_permits_than_any_number() {}

#[redis_lock(key = "a", shared, permits = 3)]
async fn readers_with_permits() {}

#[redis_lock(key = "a", shared, dialect = redisson)]
async fn readers_of_redisson() {}

#[redis_lock(key = "a", permits = 3, dialect = redisson)]
async fn permits_of_redisson() {}

fn main() {}
