use std::collections::BTreeSet;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use redlock_axum::{KeyTemplate, LockManager, LockRejection};

/// Reserves all articles of a cart, or none.
async fn reserve(
    State(locks): State<LockManager>,
    Json(skus): Json<Vec<String>>,
) -> Result<String, LockRejection> {
    // The template that all other locks of articles have: one article must have one key.
    let template = KeyTemplate::new("stock:{sku:lower}")?;
    let keys = skus.iter().map(|sku| template.render([("sku", sku.as_str())]));
    // The set is sorted, and has each key once.
    let keys: BTreeSet<_> = keys.collect::<Result<_, _>>()?;
    let mut guards = Vec::new();
    for key in keys {
        // If a lock is refused, the guards of the others are dropped, which releases their locks.
        guards.push(locks.lock(key).wait_time(Duration::from_secs(1)).acquire().await?);
    }

    // ... the work ...

    let count = guards.len();
    for guard in guards {
        if let Err(error) = guard.release().await {
            tracing::warn!("{}", error.diagnostics());
        }
    }
    Ok(format!("{count} articles are reserved"))
}

#[cfg(test)]
mod tests {
    use redlock_axum::test_util::TestLocks;

    use super::*;

    /// Both carts acquire their first lock before one of them asks for its second lock.
    #[tokio::test]
    async fn carts_in_opposite_orders_do_not_wait_for_each_other_forever() {
        let test = TestLocks::new(1);
        test.nodes()[0].delay(Duration::from_millis(10));
        let cart = |skus: [&str; 2]| {
            let skus = serde_json::from_value(serde_json::json!(skus)).unwrap();
            reserve(State(test.manager()), Json(skus))
        };
        let (one, two) = tokio::join!(cart(["shoe", "boot"]), cart(["boot", "shoe"]));
        assert_eq!(one.unwrap(), "2 articles are reserved");
        assert_eq!(two.unwrap(), "2 articles are reserved");
        assert_eq!(cart(["hat", "HAT"]).await.unwrap(), "1 articles are reserved");
        assert!(test.nodes()[0].is_empty());
    }

    #[tokio::test]
    async fn a_refused_article_releases_the_others() {
        let test = TestLocks::new(1);
        let _held = test.manager().lock("stock:shoe").try_acquire().await.unwrap();
        let cart = Json(["boot", "shoe"].map(ToOwned::to_owned).into());
        let refused = reserve(State(test.manager()), cart).await.unwrap_err();
        assert_eq!(refused.status(), 409);
        let boot = test.manager().lock("stock:boot").wait_time(Duration::from_secs(1));
        boot.acquire().await.unwrap().release().await.unwrap();
    }
}
