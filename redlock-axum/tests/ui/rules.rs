// Broken rules of the options. `redlock-core` defines the rules, and the compiler evaluates them at each option.

use std::time::Duration;

use axum::http::StatusCode;
use redlock_axum::{LockError, LockManager, OnLost, redis_lock};

const SHORT: Duration = Duration::from_millis(9);
const DAYS: u32 = 8;
const DEBT: i64 = -1;
const MANY: u64 = (1 << 32) + 3;

// Values that no option has.
#[redis_lock(key = "a", fast = true)] async fn unknown() {}
#[redis_lock(key = "a", time_unit = "seconds", expire = "5s")] async fn unit_without_number() {}
#[redis_lock(key = "a", wait_time = 18446744073709551615)] async fn too_large() {}
#[redis_lock(key = "a", expire = -5)] async fn negative() {}
#[redis_lock(key = "a", expire = "5 parsecs")] async fn words() {}
#[redis_lock(key = "a", expire = "forever")] async fn endless_lease() {}
#[redis_lock(key = "a", renew = "yes")] async fn text_for_a_flag() {}
#[redis_lock(key = "a", on_lost = "abort")] async fn quoted_end() {}
#[redis_lock(key = "a", dialect = "redisson")] async fn quoted_dialect() {}
#[redis_lock(key = "a", on_lost = OnLost::Abort)] async fn option_of_a_layer() {}
#[redis_lock(key = "a", permits = "3")] async fn quoted_permits() {}
#[redis_lock(key = "a", shared, fenced)] async fn numbered_readers() {}
#[redis_lock(key = "a", contended_status = "423")] async fn quoted_status() {}
#[redis_lock(key = "a", hold_until = "end_of_body")] async fn quoted_end_of_body() {}
#[redis_lock(keys("sku:{}", skus), fair)] async fn queue_of_several(axum::Json(skus): axum::Json<Vec<u64>>) {}
#[redis_lock(key = "a", manager = m, contended_status = 423)]
async fn status_of_a_function(m: &LockManager) -> Result<(), LockError> { Ok(()) }
#[redis_lock(key = "a", manager = m, fenced)]
async fn fenced_function(m: &LockManager) -> Result<(), LockError> { Ok(()) }

// Values that break a rule.
#[redis_lock(key = "a", expire = 0)] async fn no_lease() {}
#[redis_lock(key = "a", expire = "8d")] async fn too_long() {}
#[redis_lock(key = "a", expire = SHORT)] async fn too_short() {}
#[redis_lock(key = "a", wait_time = DAYS, time_unit = "days")] async fn too_patient() {}
#[redis_lock(key = "a", expire = 5, max_hold = "1m")] async fn bound_without_renewal() {}
#[redis_lock(key = "a", renew = false, max_hold = 60)] async fn bound_of_no_renewal() {}
#[redis_lock(key = "a", renew, max_hold = 0)] async fn bound_of_zero() {}
#[redis_lock(key = "a", keep, min_hold = 2)] async fn keep_and_min_hold() {}
#[redis_lock(key = "a", expire = 2, min_hold = "2001ms", manager = locks)]
async fn longer_than_the_lease(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}
#[redis_lock(key = "a", permits = 1001)] async fn too_many_permits() {}
#[redis_lock(key = "a", permits = 99999999999999999999)] async fn more_permits_than_any_number() {}
#[redis_lock(key = "a", permits = DEBT)] async fn negative_permits() {}
#[redis_lock(key = "a", permits = MANY)] async fn permits_beyond_32_bits() {}
#[redis_lock(key = "a", shared, permits = 3)] async fn readers_with_permits() {}
#[redis_lock(key = "a", shared, dialect = redisson)] async fn readers_of_redisson() {}
#[redis_lock(key = "a", contended_status = 200)] async fn success() {}
#[redis_lock(key = "a", contended_status = StatusCode::OK)] async fn constant_success() {}
#[redis_lock(key = "a", retry_after_max = "900ms")] async fn too_soon() {}
#[redis_lock(key = "a", name = "")] async fn no_name() {}
#[redis_lock(key = "a", name = "a\n")] async fn name_of_two_lines() {}
#[redis_lock(key = "a", name = 5)] async fn name_of_a_number() {}

fn main() {}
