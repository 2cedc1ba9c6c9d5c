use redlock_axum::{LockError, LockManager, redis_lock};

struct Pool;

struct Shop {
    locks: LockManager,
    pool: Pool,
    mutex: std::sync::Mutex<u8>,
}

impl Shop {
    #[redis_lock(key = "a", manager = self.pool)]
    async fn other_type(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "a", manager = self.mutex)]
    async fn other_type_with_a_method_lock(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "a", manager = self.locks)]
    async fn error_without_from(&self) -> Result<(), std::fmt::Error> {
        Ok(())
    }

    #[redis_lock(key = "a", manager = self.locks)]
    async fn option(&self) -> Option<u8> {
        None
    }
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
