// Messages of the compiler, which point at the code of the user.
#![allow(non_snake_case, unused)]

use axum::extract::Path;
use redlock_axum::{FencedLock, LockError, LockManager, UnderLock, redis_lock};

const TEXT: &str = "5s";
const OTHER: char = '5';

struct Other;

struct Shop {
    locks: LockManager,
    mutex: std::sync::Mutex<u8>,
}

macro_rules! the {
    ($id:ident) => {
        Path($id)
    };
}

// The body.

#[redis_lock(key = "order:{id}")]
async fn wrong_type(Path(id): Path<u64>) -> String {
    let id: u32 = "text";
    id.to_string()
}

#[redis_lock(key = "order")]
async fn wrong_return(Path(_id): Path<u64>) -> String {
    Other
}

impl Shop {
    #[redis_lock(key = "a", manager = self.locks)]
    async fn wrong_name(&self) -> Result<(), LockError> {
        missing();
        Ok(())
    }

    #[redis_lock(key = "a", manager = self.locks)]
    async fn wrong_result(&self) -> Result<(), LockError> {
        5
    }

    #[redis_lock(key = "a", manager = self.locks)]
    async fn no_value(&self) -> Result<(), LockError> {
        let _ = 1;
    }
}

// The key.

#[redis_lock(key = "order:{ID}")]
async fn no_constant(the!(ID): Path<u64>) {}

#[redis_lock(key("order:{}", other.0.id))]
async fn value_under_the_lock(other: UnderLock<Path<u64>>) {}

#[redis_lock(key("order:{}", id))]
async fn text_under_the_lock(UnderLock(Path(id)): UnderLock<Path<u64>>) {}

#[redis_lock(key("order:{}", lock.fencing_token().number()), fenced)]
async fn number_before_the_lock(lock: FencedLock) {}

// The manager and the result.

impl Shop {
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

    #[redis_lock(key = "a", manager = self.locks, skip)]
    async fn skip_without_option(&self) -> Result<(), LockError> {
        Ok(())
    }
}

#[redis_lock(key = "a", manager = shop.name)]
async fn no_such_field(shop: &Shop) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", manager = locks, skip = "none")]
async fn skip_with_another_type(locks: &LockManager) -> Result<u32, LockError> {
    Ok(1)
}

// Work in a task of its own.

#[redis_lock(key = "a", detached)]
async fn not_send() {
    let count = std::rc::Rc::new(1);
    std::future::ready(()).await;
    drop(count);
}

#[redis_lock(key = "a", manager = self_.locks, detached)]
async fn borrows(self_: &Shop, text: &str) -> Result<usize, LockError> {
    Ok(text.len())
}

// Constants of another type.

#[redis_lock(key = "a", expire = OTHER)]
async fn other_type_for_a_time() {}

#[redis_lock(key = "a", expire = seconds)]
async fn parameter_for_a_time(seconds: Path<u64>) {}

#[redis_lock(key = "a", permits = TEXT)]
async fn text_for_a_count() {}

#[redis_lock(key = "a", contended_status = TEXT)]
async fn text_for_a_status() {}

fn main() {}
