use std::sync::Arc;
use std::time::Duration;

use redlock_axum::{FencingToken, LockError, LockManager};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// Starts the work of the leader in one copy of the service. The task ends when the process stops, or with an error that
/// the service has to report: without a leader, nobody is reminded.
fn start(locks: &LockManager, table: Arc<Table>) -> JoinHandle<Result<(), LockError>> {
    let lead = locks.lead("reminders").expire(Duration::from_secs(10));
    tokio::spawn(lead.run(async move |leader| {
        loop {
            table.send_reminders(leader.fencing_token()).await;
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }))
}

/// Stands for a table of the database.
#[derive(Default)]
struct Table {
    /// The token of the last leader, and how often it and the others have sent reminders.
    sent: Mutex<(Option<FencingToken>, u32)>,
}

impl Table {
    /// Sends the reminders, unless a later leader has sent some. The example `leader` has the statement for PostgreSQL.
    async fn send_reminders(&self, token: FencingToken) {
        let mut sent = self.sent.lock().await;
        if sent.0 <= Some(token) {
            *sent = (Some(token), sent.1 + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use redlock_axum::test_util::TestLocks;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn one_copy_sends_reminders_and_another_one_after_an_outage_a_loss_and_a_stop() {
        let test = TestLocks::new(1);
        let copies = [test.builder().connect().await.unwrap(), test.manager()];
        let table = Arc::new(Table::default());
        let [first, second] = [0, 1].map(|copy: usize| start(&copies[copy], Arc::clone(&table)));
        let sent = async || *table.sent.lock().await;
        test.clock().advance(10 * MINUTE).await;
        let (token, before) = sent().await;
        assert!((10..=12).contains(&before), "{before}");

        test.nodes()[0].fail();
        test.clock().advance(10 * MINUTE).await;
        let (late, in_outage) = sent().await;
        assert!(in_outage <= before + 1, "nobody leads while the server is away: {in_outage}");
        test.nodes()[0].recover();
        test.clock().advance(10 * MINUTE).await;
        let (next, after) = sent().await;
        assert!(after >= in_outage + 9 && next > token, "{after}");

        table.send_reminders(late.unwrap()).await;
        assert_eq!(sent().await.1, after, "a late step was accepted");

        copies[0].shutdown().await;
        test.clock().advance(10 * MINUTE).await;
        assert!(sent().await.1 >= after + 9);
        assert!(matches!(first.await.unwrap(), Err(LockError::ShutDown)));
        drop(copies[1].drain());
        assert!(matches!(second.await.unwrap(), Err(LockError::Draining)));
    }
}
