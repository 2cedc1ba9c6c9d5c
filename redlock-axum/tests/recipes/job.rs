use std::collections::BTreeSet;

use redlock_axum::{LockError, LockManager, redis_lock};
use tokio::sync::Mutex;

/// Sends the invoices of a day. Every copy of the service calls this function. One copy works, and the others wait for it:
/// if it dies, its lease ends, and the next copy goes on.
#[redis_lock(key = "invoices:{day}", wait_time = "forever", manager = locks)]
async fn send_invoices(locks: &LockManager, table: &Table, day: u32) -> Result<(), LockError> {
    if table.is_done(day).await {
        return Ok(());
    }
    for customer in table.customers_without_invoice().await {
        // ... send the invoice ...
        table.mark_sent(customer).await;
    }
    table.mark_done(day).await;
    Ok(())
}

/// Stands for the tables of the database.
#[derive(Default)]
struct Table {
    without_invoice: Mutex<BTreeSet<u32>>,
    done: Mutex<BTreeSet<u32>>,
}

impl Table {
    async fn customers_without_invoice(&self) -> Vec<u32> {
        self.without_invoice.lock().await.iter().copied().collect()
    }

    async fn mark_sent(&self, customer: u32) {
        self.without_invoice.lock().await.remove(&customer);
    }

    async fn is_done(&self, day: u32) -> bool {
        self.done.lock().await.contains(&day)
    }

    async fn mark_done(&self, day: u32) {
        self.done.lock().await.insert(day);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redlock_axum::test_util::TestLocks;

    use super::*;

    #[tokio::test]
    async fn the_next_copy_finishes_the_job_of_a_copy_that_died() {
        let test = TestLocks::new(1);
        let dead_copy = test.builder().connect().await.unwrap();
        let guard = dead_copy.lock("invoices:7").try_acquire().await.unwrap();
        guard.keep_until_expiry(); // as a process that is killed
        let table = std::sync::Arc::new(Table::default());
        table.without_invoice.lock().await.extend([2, 3]); // it has sent the first invoice

        let next_copy = tokio::spawn({
            let (locks, table) = (test.manager(), std::sync::Arc::clone(&table));
            async move { send_invoices(&locks, &table, 7).await }
        });
        test.clock().advance(Duration::from_secs(20)).await;
        assert!(!table.is_done(7).await);
        test.clock().advance(Duration::from_secs(15)).await;
        next_copy.await.unwrap().unwrap();
        assert!(table.is_done(7).await);
        assert_eq!(table.customers_without_invoice().await, [0; 0]);
    }

    #[tokio::test]
    async fn a_job_that_is_done_is_not_repeated() {
        let (locks, table) = (LockManager::in_memory(), Table::default());
        send_invoices(&locks, &table, 7).await.unwrap();
        table.without_invoice.lock().await.insert(2); // belongs to the next day
        send_invoices(&locks, &table, 7).await.unwrap();
        assert_eq!(table.customers_without_invoice().await, [2]);
        send_invoices(&locks, &table, 8).await.unwrap();
        assert_eq!(table.customers_without_invoice().await, [0; 0]);
    }
}
