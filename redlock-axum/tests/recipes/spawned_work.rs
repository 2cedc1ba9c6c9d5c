use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use redlock_axum::{LockManager, LockRejection};

/// Responds with 409 if an export runs already, and otherwise starts one.
async fn start_export(State(locks): State<LockManager>) -> Result<StatusCode, LockRejection> {
    let guard = locks.lock("export").try_acquire().await?;
    tokio::spawn(async move {
        tokio::select! {
            () = export() => {}
            () = guard.lost() => tracing::error!("the export was stopped, because its lock is lost"),
        }
        if let Err(error) = guard.release().await {
            tracing::warn!("{}", error.diagnostics());
        }
    });
    Ok(StatusCode::ACCEPTED)
}

/// Takes five minutes.
async fn export() {
    tokio::time::sleep(Duration::from_secs(300)).await; // the work
}

#[cfg(test)]
mod tests {
    use redlock_axum::test_util::TestLocks;
    use redlock_logs::Logs;

    use super::*;

    #[tokio::test]
    async fn a_spawned_export_holds_its_lock_until_it_ends_or_the_lock_is_lost() {
        let logs = Logs::collect();
        let test = TestLocks::new(1);
        let start = || start_export(State(test.manager()));
        assert_eq!(start().await.unwrap(), StatusCode::ACCEPTED);
        test.clock().advance(Duration::from_secs(290)).await;
        assert_eq!(start().await.unwrap_err().status(), 409);
        test.clock().advance(Duration::from_secs(20)).await;
        assert_eq!(start().await.unwrap(), StatusCode::ACCEPTED);

        assert_eq!(logs.count("ERROR", "the export was stopped"), 0, "{:?}", logs.lines());
        test.nodes()[0].forget();
        test.clock().advance(Duration::from_secs(20)).await;
        assert_eq!(logs.count("ERROR", "the export was stopped"), 1, "{:?}", logs.lines());
    }
}
