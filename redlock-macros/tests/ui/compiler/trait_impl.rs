use redlock_axum::{LockError, LockManager, redis_lock};

trait Reserve {
    async fn reserve(&self) -> Result<(), LockError>;
}

struct Shop {
    locks: LockManager,
}

impl Reserve for Shop {
    #[redis_lock(key = "a", manager = self.locks)]
    async fn reserve(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
