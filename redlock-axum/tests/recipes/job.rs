use std::collections::BTreeSet;

use redlock_axum::{LockError, LockManager, redis_lock};
use tokio::sync::Mutex;

/// Sends the invoices of a day. Every copy of the service calls this function.
#[redis_lock(key = "invoices:{day}", wait_time = "forever", manager = locks)]
async fn send_invoices(locks: &LockManager, table: &Table, day: u32) -> Result<(), LockError> {
    if table.done.lock().await.contains(&day) {
        return Ok(());
    }
    let customers = table.without_invoice.lock().await.clone();
    for customer in customers {
        // ... send the invoice ...
        table.without_invoice.lock().await.remove(&customer);
    }
    table.done.lock().await.insert(day);
    Ok(())
}

/// Stands for the tables of the database.
#[derive(Default)]
struct Table {
    without_invoice: Mutex<BTreeSet<u32>>,
    done: Mutex<BTreeSet<u32>>,
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
        assert!(!table.done.lock().await.contains(&7));
        test.clock().advance(Duration::from_secs(15)).await;
        next_copy.await.unwrap().unwrap();
        assert!(table.done.lock().await.contains(&7));
        assert!(table.without_invoice.lock().await.is_empty());
    }

    #[tokio::test]
    async fn a_job_that_is_done_is_not_repeated() {
        let (locks, table) = (LockManager::in_memory(), Table::default());
        send_invoices(&locks, &table, 7).await.unwrap();
        table.without_invoice.lock().await.insert(2); // belongs to the next day
        send_invoices(&locks, &table, 7).await.unwrap();
        assert!(table.without_invoice.lock().await.contains(&2));
        send_invoices(&locks, &table, 8).await.unwrap();
        assert!(table.without_invoice.lock().await.is_empty());
    }
}
