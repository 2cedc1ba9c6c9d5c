use redlock_axum::redis_lock;

#[redis_lock(key = "a", renew = "yes")]
async fn text_for_a_flag() {}

#[redis_lock(key = "a", reentrant = 1)]
async fn number_for_a_flag() {}

#[redis_lock(key = "a", keep =)]
async fn no_flag() {}

#[redis_lock(key = "a", on_lost = panic)]
async fn unknown_end() {}

#[redis_lock(key = "a", on_lost = "abort")]
async fn quoted_end() {}

#[redis_lock(key = "a", on_lost)]
async fn no_end() {}

#[redis_lock(key = "a", min_hold)]
async fn no_time() {}

#[redis_lock(key = "a", renew, renew = false)]
async fn twice() {}

#[redis_lock(key = "a", expire = "forever")]
async fn endless_lease() {}

#[redis_lock(key = "a", wait_time = forever)]
async fn unquoted_wait() {}

#[redis_lock(key = "a", lockAtLeastFor = "5s")]
async fn the_name_in_shedlock() {}

#[redis_lock(key = "a", dialect = "redisson")]
async fn quoted_dialect() {}

#[redis_lock(key = "a", shared = 1)]
async fn number_for_shared() {}

#[redis_lock(key = "a", permits)]
async fn no_permits() {}

#[redis_lock(key = "a", permits = "3")]
async fn quoted_permits() {}

#[redis_lock(key = "a", permits = -1)]
async fn negative_permits() {}

#[redis_lock(key = "a", shared, fenced)]
async fn numbered_readers() {}

#[redis_lock(key = "a", permits = 3, fenced = true)]
async fn numbered_permits() {}

#[redis_lock(key = "a", shared_on = [GET])]
async fn the_name_in_a_layer() {}

fn main() {
    let _ = (text_for_a_flag(), number_for_a_flag(), no_flag(), unknown_end(), quoted_end());
    let _ = (no_end(), twice(), no_time(), endless_lease(), unquoted_wait());
    let _ = (the_name_in_shedlock(), quoted_dialect(), number_for_shared(), no_permits());
    let _ = (quoted_permits(), negative_permits(), numbered_readers(), numbered_permits());
    let _ = the_name_in_a_layer();
}
