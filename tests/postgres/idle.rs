//! An idle manager sends nothing to its database.

use std::collections::HashMap;
use std::time::SystemTime;

use redlock_core::NodeError;
use redlock_tests::eventually;
use tokio_postgres::Client;

use crate::{KEY, LONG, SOON, connect, connect_patient, failure, impatient, serves, start};

/// How many statements of a guarded manager are counted while another one is idle.
const PINGS: usize = 3;

/// Returns the time of the last statement of each connection of a node.
async fn last_statements(admin: &Client) -> HashMap<i32, SystemTime> {
    let sql = "select pid, query_start from pg_stat_activity where application_name = 'redlock'";
    let rows = admin.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Waits until other connections than these have sent some statements. Returns whether these have sent none.
async fn are_idle(admin: &Client, sessions: &[i32]) -> bool {
    let mut last = last_statements(admin).await;
    let before: Vec<_> = sessions.iter().map(|pid| last[pid]).collect();
    let mut seen = 0;
    eventually("the guarded manager sends statements", SOON, async || {
        let next = last_statements(admin).await;
        let is_new = |(pid, time): &(&i32, &SystemTime)| {
            !sessions.contains(pid) && last.get(pid).is_some_and(|last| *last < **time)
        };
        seen += usize::from(next.iter().any(|one| is_new(&one)));
        last = next;
        (seen >= PINGS).then_some(())
    })
    .await;
    sessions.iter().map(|pid| last[pid]).collect::<Vec<_>>() == before
}

#[tokio::test]
async fn a_manager_without_a_guard_sends_nothing_while_it_is_idle() {
    let Some(server) = start().await else { return };
    let admin = server.admin().await;
    let manager = connect_patient(&server.url()).await;
    let sessions = server.sessions().await;
    let guarded = impatient(&server.url()).restart_guard(LONG);
    let _guarded = guarded.connect().await.unwrap();
    serves(&manager, KEY).await;
    eventually("nothing is sent", SOON, async || are_idle(&admin, &sessions).await.then_some(()))
        .await;
}

/// Otherwise nobody would notice that the connection is silent, and that no notification arrives.
#[tokio::test]
async fn the_connection_for_notifications_is_pinged_while_a_caller_waits() {
    let Some(server) = start().await else { return };
    let admin = server.admin().await;
    let url = format!("{}&connections=1", server.url());
    let manager = connect_patient(&url).await;
    // The waiter polls over one of them, and listens over the other one.
    let sessions = eventually("both connections are there", SOON, async || {
        let sessions = server.sessions().await;
        (sessions.len() == 2).then_some(sessions)
    })
    .await;
    let holder = connect_patient(&url).await;
    let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let waiter = tokio::spawn(manager.lock(KEY).wait_time(LONG).acquire());
    for session in sessions {
        // The subscription, and the ping after this use, are two statements.
        for _ in 0..3 {
            let last = last_statements(&admin).await[&session];
            eventually("another statement", SOON, async || {
                (last < last_statements(&admin).await[&session]).then_some(())
            })
            .await;
        }
    }
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// The kernel of a frozen server answers its probes.
#[tokio::test]
async fn the_first_use_notices_a_server_that_froze_in_an_idle_time() {
    let Some(mut server) = start().await else { return };
    let manager = connect(&server.url()).await;
    server.freeze();
    let error = manager.lock(KEY).try_acquire().await.unwrap_err();
    let reason = failure(&error);
    assert!(matches!(reason, NodeError::NoReply(_) | NodeError::ConnectionBroke(_)), "{reason:?}");
    server.thaw();
    serves(&manager, KEY).await;
}

/// The kernel notices that the machine of a server has disappeared.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_kernel_probes_an_idle_connection() {
    let Some(server) = start().await else { return };
    let _manager = connect(&server.url()).await;
    eventually("the keepalive timer runs", SOON, async || {
        redlock_tests::keepalive_timer(server.port())
    })
    .await;
}
