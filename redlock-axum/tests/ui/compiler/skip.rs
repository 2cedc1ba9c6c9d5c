use redlock_axum::{LockError, LockManager, redis_lock};

#[redis_lock(key = "a", manager = locks, skip)]
async fn without_option(locks: &LockManager) -> Result<u32, LockError> {
    Ok(1)
}

#[redis_lock(key = "a", manager = locks, skip = "none")]
async fn of_another_type(locks: &LockManager) -> Result<u32, LockError> {
    Ok(1)
}

struct Jobs {
    locks: LockManager,
}

impl Jobs {
    #[redis_lock(key = "a", manager = self.locks, skip)]
    async fn run(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
