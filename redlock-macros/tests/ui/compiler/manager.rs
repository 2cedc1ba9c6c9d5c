use redlock_axum::{LockError, LockManager, redis_lock};

struct Shop {
    locks: LockManager,
}

#[redis_lock(key = "a", manager = shop.name)]
async fn no_such_field(shop: &Shop) -> Result<(), LockError> {
    let _ = &shop.locks;
    Ok(())
}

#[redis_lock(key = "a", manager = shop.locks)]
async fn no_result(shop: &Shop) -> u8 {
    0
}

fn main() {}
