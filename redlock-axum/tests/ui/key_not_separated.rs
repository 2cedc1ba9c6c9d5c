#![allow(unused_variables)]

use redlock_axum::redis_lock;

#[redis_lock(key = "pair:{a}-{b}", manager = locks)]
async fn pair(locks: redlock_axum::LockManager, a: u32, b: u32) -> Result<(), redlock_axum::LockError> {
    Ok(())
}

fn main() {}
