use redlock_axum::{LockError, LockManager, RunError, redis_lock};

#[redis_lock]
async fn no_arguments() {}

#[redis_lock(expire = 5)]
async fn no_key() {}

#[redis_lock("order")]
async fn bare_text() {}

#[redis_lock(key)]
async fn no_value() {}

#[redis_lock(key = "a", waitTime = 2)]
async fn the_name_in_java() {}

#[redis_lock(key = "a", fast = true)]
async fn unknown() {}

#[redis_lock(key = "a", expire = 5, expire = 6)]
async fn twice() {}

#[redis_lock(key = "a" expire = 5)]
async fn no_comma() {}

#[redis_lock(key = "a", time_unit = "seconds", expire = "5s")]
async fn unit_without_number() {}

#[redis_lock(key = "a", expire = 5, time_unit = "fortnights")]
async fn unknown_unit() {}

#[redis_lock(key = "a", expire = 5, time_unit = "microseconds")]
async fn too_fine() {}

#[redis_lock(key = "a", manager = _locks, error = |e| e)]
async fn error_without_path(_locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", manager = _locks, error = |e| e, on_lost = abort)]
async fn error_without_path_of_stopped_work(_locks: &LockManager) -> Result<(), RunError> {
    Ok(())
}

// The functions still exist, so these calls cause no further errors.
fn main() {
    let _ = (no_arguments(), no_key(), bare_text(), no_value(), the_name_in_java(), unknown());
    let _ = (twice(), no_comma(), unit_without_number(), unknown_unit(), too_fine());
    let locks = LockManager::in_memory();
    let _ = (error_without_path(&locks), error_without_path_of_stopped_work(&locks));
}
