use std::time::Duration;

use redlock_axum::{LockError, LockGuard, LockManager};

const PLACES: u32 = 3;

/// Acquires one of three places.
async fn enter(locks: &LockManager) -> Result<LockGuard, LockError> {
    for place in 1..PLACES {
        match locks.lock(format!("export:{place}")).try_acquire().await {
            Err(error) if error.is_contended() => {}
            decided => return decided,
        }
    }
    locks.lock(format!("export:{PLACES}")).wait_time(Duration::from_millis(100)).acquire().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_is_free_again_after_its_holder_has_left() {
        let locks = LockManager::in_memory();
        let mut guards = Vec::new();
        for _ in 0..PLACES {
            guards.push(enter(&locks).await.unwrap());
        }
        assert!(enter(&locks).await.unwrap_err().is_contended());
        guards.remove(1).release().await.unwrap();
        guards.push(enter(&locks).await.unwrap());
        assert!(enter(&locks).await.unwrap_err().is_contended());
    }
}
