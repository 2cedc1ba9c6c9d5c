use axum::extract::Path;
use redlock_axum::{LockManager, redis_lock};

#[redis_lock(key = "order:{id}")]
async fn wrong_type(Path(id): Path<u64>) -> String {
    let id: u32 = "text";
    id.to_string()
}

#[redis_lock(key = "order")]
async fn wrong_return(Path(_id): Path<u64>) -> String {
    Other
}

struct Other;

struct Shop {
    locks: LockManager,
}

impl Shop {
    #[redis_lock(key = "a", manager = self.locks)]
    async fn wrong_name(&self) -> Result<(), redlock_axum::LockError> {
        missing();
        Ok(())
    }

    #[redis_lock(key = "a", manager = self.locks)]
    async fn wrong_result(&self) -> Result<(), redlock_axum::LockError> {
        5
    }

    #[redis_lock(key = "a", manager = self.locks)]
    async fn no_value(&self) -> Result<(), redlock_axum::LockError> {
        let _ = 1;
    }
}

fn main() {}
