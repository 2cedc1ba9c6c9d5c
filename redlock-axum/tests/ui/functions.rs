use axum::extract::Path;
use redlock_axum::{HeldLock, LockError, LockManager, redis_lock};

#[redis_lock(key = "a")]
fn not_async() {}

#[redis_lock(key = "a")]
const fn constant() {}

#[redis_lock(key = "a")]
async unsafe fn not_safe() {}

#[redis_lock(key = "a")]
async extern "C" fn foreign() {}

#[redis_lock(key = "a")]
struct NotAFunction;

#[redis_lock(key = "a", manager = _locks)]
async fn no_result(_locks: &LockManager) {}

#[redis_lock(key = "a", manager = _locks)]
async fn held(_locks: &LockManager, _lock: HeldLock) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", manager = _locks)]
async fn perhaps(
    _locks: &LockManager,
    _lock: Option<redlock_axum::FencedLock>,
) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a")]
#[redis_lock(key = "b")]
async fn two_handlers() {}

#[redis_lock(key = "a")]
async fn parameter_under_cfg(#[cfg(unix)] _id: u8) {}

#[redis_lock(key = "order:{_id}")]
async fn body_first(_order: Option<axum::Json<String>>, Path(_id): Path<u64>) {}

#[redis_lock(key = "a")]
fn handler_that_returns_a_future() -> impl Future<Output = ()> {
    async {}
}

struct Shop {
    locks: LockManager,
}

impl Shop {
    #[redis_lock(key = "a")]
    async fn method(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "{self}", manager = self.locks)]
    async fn self_in_key(&self) -> Result<(), LockError> {
        Ok(())
    }
}

trait Reserve {
    #[redis_lock(key = "a", manager = self.locks())]
    async fn reserve(&self) -> Result<(), LockError>;
}

fn main() {
    let _ = (not_async(), constant(), NotAFunction);
    let _ = |shop: Shop, locks: LockManager| {
        let _ = (no_result(&locks), shop.method(), shop.self_in_key(), shop.locks);
    };
}
