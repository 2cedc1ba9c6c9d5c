//! The stock of the shop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many of each article there are at the beginning of a sale.
pub(crate) const FULL: u32 = 10;

/// How many of each article are left. Stands in for a table of a database, which all copies share:
/// reading and writing are two steps, between which another copy could write.
#[derive(Debug, Clone)]
pub(crate) struct Stock {
    left: Arc<BTreeMap<&'static str, AtomicU32>>,
}

impl Stock {
    pub(crate) fn new() -> Self {
        let articles = ["hat", "shoe"].map(|sku| (sku, AtomicU32::new(FULL)));
        Self { left: Arc::new(articles.into()) }
    }

    /// Returns how many are left. `None` for an unknown article. `Shoe` and `SHOE` are one article.
    pub(crate) fn read(&self, sku: &str) -> Option<u32> {
        self.left.get(&*sku.to_lowercase()).map(|left| left.load(Ordering::SeqCst))
    }

    /// Changes how many are left. Does nothing for an unknown article.
    pub(crate) fn write(&self, sku: &str, left: u32) {
        if let Some(entry) = self.left.get(&*sku.to_lowercase()) {
            entry.store(left, Ordering::SeqCst);
        }
    }

    pub(crate) fn articles(&self) -> Vec<&'static str> {
        self.left.keys().copied().collect()
    }
}
