//! The label of a holder, a look at a lock, and the removal of its holder.

use std::time::{Duration, SystemTime};

use redlock_core::{BreakError, KeyState, LockManager, OwnerLabel};
use redlock_tests::{PostgresServer, eventually};

use crate::{KEY, LONG, SOON, impatient, serves, start};

/// 64 characters that also separate the parts of a stored text.
const LABEL: &str = "#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!#@/!";

async fn labelled(server: &PostgresServer, label: &str) -> LockManager {
    let builder = impatient(&server.url()).node_timeout(SOON).expire(LONG);
    builder.owner_label(label).connect().await.unwrap()
}

/// Returns the label of the row, and its time in seconds since 1970.
async fn row(server: &PostgresServer) -> (Option<String>, Option<i64>) {
    let sql =
        "select label, extract(epoch from since)::bigint from locks.redlock_lease where name = $1";
    let row = server.admin().await.query_one(sql, &[&KEY]).await.unwrap();
    (row.get(0), row.get(1))
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    now.as_secs().try_into().unwrap()
}

/// Returns the label that a refusal has.
async fn refused_by(manager: &LockManager) -> Option<String> {
    let error = manager.lock(KEY).try_acquire().await.unwrap_err();
    assert!(error.is_contended(), "{error:?}");
    error.holder().map(|label| label.as_str().to_owned())
}

#[tokio::test]
async fn a_refusal_and_a_status_name_the_label_of_a_holder_until_its_release() {
    let Some(server) = start().await else { return };
    let (holder, other) = (labelled(&server, LABEL).await, labelled(&server, "other").await);
    let request = || holder.lock(KEY).expire(LONG);
    for request in [request(), request().fenced(true), request().min_hold(Duration::from_millis(1))]
    {
        let before = now();
        let guard = request.try_acquire().await.unwrap();
        for _ in 0..2 {
            assert_eq!(refused_by(&other).await.as_deref(), Some(LABEL));
            let (label, since) = row(&server).await;
            assert_eq!(label.as_deref(), Some(LABEL));
            // The process reads its wall clock once in a second.
            assert!((before - 1..=now()).contains(&since.unwrap()), "{since:?}");
            let status = other.status(KEY).await.unwrap();
            assert_eq!(status.state(), KeyState::Exclusive);
            let [found] = status.holders() else { panic!("{status:?}") };
            assert_eq!(found.label().map(OwnerLabel::as_str), Some(LABEL));
            let found_since = found.since().unwrap().duration_since(SystemTime::UNIX_EPOCH);
            assert_eq!(i64::try_from(found_since.unwrap().as_secs()).ok(), since);
            let rest = found.remaining().unwrap();
            assert!(!found.is_own() && rest <= LONG * 2 && rest > LONG / 2, "{found:?}");
            guard.extend(LONG * 2).await.unwrap();
        }
        guard.release().await.unwrap();
        serves(&other, KEY).await;
        assert_eq!(row(&server).await, (None, None));
        let status = other.status(KEY).await.unwrap();
        assert!(status.state() == KeyState::Free && status.holders().is_empty(), "{status:?}");
    }
    // The lock is kept without a holder.
    request().try_acquire().await.unwrap().keep_until_expiry();
    assert_eq!(refused_by(&other).await.as_deref(), Some(LABEL));
}

/// Nobody else may be named in place of a holder without a label.
#[tokio::test]
async fn a_holder_without_a_label_takes_over_a_row_with_one() {
    let Some(server) = start().await else { return };
    let (labelled, silent) = (labelled(&server, LABEL).await, labelled(&server, "off").await);
    labelled.lock(KEY).expire(LONG).try_acquire().await.unwrap().keep_until_expiry();
    assert_eq!(refused_by(&silent).await.as_deref(), Some(LABEL));
    let admin = server.admin().await;
    let expire = "update locks.redlock_lease set expires = clock_timestamp() - interval '1 s'";
    admin.execute(expire, &[]).await.unwrap();
    let guard = silent.lock(KEY).try_acquire().await.unwrap();
    assert_eq!(row(&server).await, (None, None));
    assert_eq!(refused_by(&labelled).await, None);
    let status = labelled.status(KEY).await.unwrap();
    let [holder] = status.holders() else { panic!("{status:?}") };
    assert_eq!((holder.label(), holder.since()), (None, None));
    // Another program may write anything, of which no part is shown.
    for (label, since) in
        [("'a secret'", "now()"), ("repeat('x', 65)", "'infinity'"), ("''", "'-infinity'")]
    {
        let sql = format!("update locks.redlock_lease set label = {label}, since = {since}");
        admin.execute(&sql, &[]).await.unwrap();
        assert_eq!(refused_by(&labelled).await, None, "{label}");
        let status = labelled.status(KEY).await.unwrap();
        let holder = &status.holders()[0];
        assert_eq!((holder.label(), holder.since()), (None, None), "{label}");
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_row_of_another_program_is_foreign() {
    let Some(server) = start().await else { return };
    let manager = labelled(&server, LABEL).await;
    let sql =
        "insert into locks.redlock_lease values ($1, 'a secret', now() + interval '1 hour', 1)";
    server.admin().await.execute(sql, &[&KEY]).await.unwrap();
    let status = manager.status(KEY).await.unwrap();
    assert!(status.state() == KeyState::Foreign && status.holders().is_empty(), "{status:?}");
    assert!(!format!("{status:?}").contains("secret"));
}

/// The removal waits for the row, and then compares the holder that has it by then.
#[tokio::test]
async fn a_holder_that_changes_during_the_removal_stays() {
    let Some(server) = start().await else { return };
    let manager = labelled(&server, LABEL).await;
    let guard = manager.lock(KEY).try_acquire().await.unwrap();
    let shown = manager.status(KEY).await.unwrap();
    let (admin, watcher) = (server.admin().await, server.admin().await);
    let next = "begin; update locks.redlock_lease set token = '0123456789abcdef'";
    admin.batch_execute(next).await.unwrap();
    let breaking = {
        let manager = manager.clone();
        tokio::spawn(async move { manager.break_lock(KEY, &shown.holders()[0]).await })
    };
    eventually("the removal waits for the row", SOON, async || {
        let sql = "select from pg_stat_activity \
                   where application_name = 'redlock' and wait_event_type = 'Lock'";
        (!watcher.query(sql, &[]).await.unwrap().is_empty()).then_some(())
    })
    .await;
    admin.batch_execute("commit").await.unwrap();
    let broken = breaking.await.unwrap();
    assert!(matches!(broken, Err(BreakError::NotHeld { .. })), "{broken:?}");
    let status = manager.status(KEY).await.unwrap();
    assert_eq!(status.holders()[0].id().to_string(), "0123456789abcdef");
    drop(guard);
}

/// The holder would otherwise notice it at its next renewal.
#[tokio::test]
async fn a_holder_learns_at_once_of_a_break() {
    let Some(server) = start().await else { return };
    let (holder, operator) = (labelled(&server, "shop").await, labelled(&server, "ops").await);
    for waits_before in [true, false] {
        let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        let lost = waits_before.then(|| guard.lost());
        guard.extend(LONG).await.unwrap();
        let status = operator.status(KEY).await.unwrap();
        operator.break_lock(KEY, &status.holders()[0]).await.unwrap();
        tokio::time::timeout(SOON, guard.lost()).await.expect("the holder learns of the break");
        assert!(!guard.is_valid());
        drop(lost);
    }
    // The hint belongs to the lock that was broken.
    let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let _lost = guard.lost();
    guard.extend(LONG).await.unwrap();
    assert!(guard.is_valid());
}
