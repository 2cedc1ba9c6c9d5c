//! The state of the service, and the work that is not part of a request.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::FromRef;
use redlock_axum::{LockManager, redis_lock};
use tracing::{info, warn};

use crate::error::ShopError;
use crate::stock::{FULL, Stock};

/// The state of the service. The attribute takes the manager of a handler's lock from it.
#[derive(Debug, Clone, FromRef)]
pub(crate) struct Shop {
    pub(crate) locks: LockManager,
    pub(crate) stock: Stock,
}

impl Shop {
    /// Fills up an article, and returns how many are left. The key is the key of an order, because
    /// both change the same row.
    #[redis_lock(key = "stock:{sku:lower}", wait_time = 5, manager = self.locks)]
    pub(crate) async fn refill(&self, sku: &str) -> Result<u32, ShopError> {
        let left = self.stock.read(sku).ok_or(ShopError::UnknownArticle)?.max(FULL);
        self.stock.write(sku, left);
        Ok(left)
    }

    /// Fills up all articles, and returns their number. Every copy of the service calls this method
    /// at midnight, and one copy does the work. For the others it returns `None`. The lock is kept
    /// for ten minutes, because the clocks of the copies differ and the work takes no time.
    #[redis_lock(key = "restock", expire = "10m", keep, manager = self.locks, skip)]
    pub(crate) async fn restock(&self) -> Result<Option<usize>, ShopError> {
        let articles = self.stock.articles();
        for sku in &articles {
            self.refill(sku).await?;
        }
        Ok(Some(articles.len()))
    }

    pub(crate) async fn restock_every_night(self) {
        loop {
            tokio::time::sleep(until_midnight(SystemTime::now())).await;
            match self.restock().await {
                Ok(Some(articles)) => info!("restock: {articles} articles are filled up"),
                Ok(None) => info!("restock: another copy does it"),
                // The rejection in the error logs the key and the servers by itself.
                Err(error) => warn!("restock: {error}"),
            }
        }
    }
}

/// Returns the time until the next midnight, UTC.
pub(crate) fn until_midnight(now: SystemTime) -> Duration {
    const DAY: u64 = 24 * 60 * 60;
    let today = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % DAY;
    Duration::from_secs(DAY - today)
}
