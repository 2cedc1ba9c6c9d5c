//! Steps of the clock of a server.

use redlock_core::NodeError;
use redlock_tests::eventually;
use tokio_postgres::Client;

use crate::{KEY, LONG, SOON, failure, impatient, serves, start};

/// Replaces the clock of all sessions by a clock with an offset, which is an expression.
pub(crate) async fn set_clock(admin: &Client, offset: &str) {
    let has_true_clock = "select from pg_proc where proname = 'true_clock_timestamp'";
    if admin.query(has_true_clock, &[]).await.unwrap().is_empty() {
        let rename = "alter function clock_timestamp() rename to true_clock_timestamp";
        admin.batch_execute(rename).await.unwrap();
    }
    let clock = format!(
        "create or replace function pg_catalog.clock_timestamp() returns timestamptz volatile language sql
            as $$ select pg_catalog.true_clock_timestamp() + {offset} $$"
    );
    admin.batch_execute(&clock).await.unwrap();
}

/// The leases that the server has counted until then have ended early.
#[tokio::test]
async fn a_server_whose_clock_is_stepped_forward_grants_nothing_for_the_time_of_the_guard() {
    let Some(server) = start().await else { return };
    let admin = server.admin().await;
    set_clock(&admin, "interval '0'").await;
    let manager = impatient(&server.url()).restart_guard(LONG).connect().await.unwrap();
    serves(&manager, KEY).await;
    // The first step may come before the node has read the clock.
    let mut hours = 0;
    eventually("a step is noticed", SOON, async || {
        hours += 1;
        set_clock(&admin, &format!("interval '{hours} hours'")).await;
        let error = manager.lock(KEY).expire(LONG).try_acquire().await.err()?;
        matches!(failure(&error), NodeError::ClockStepped { .. }).then_some(())
    })
    .await;
}
