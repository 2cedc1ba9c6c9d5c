//! Answers on servers: rights, rows that a transaction has, connections that break, and records whose time is over.

use std::sync::Arc;
use std::time::Duration;

use redlock_axum::{
    AnswerClaim, AnswerId, Answers, ClaimResult, IdempotencyLayer, LockManager, StoredAnswer,
};
use redlock_tests::{Direction, PostgresServer, Proxy, Traffic, eventually, skip};

use super::{Counted, postgres_answers, request, route, send};
use crate::SOON;

const KEEP: Duration = Duration::from_secs(300);

/// Starts a server. Returns `None`, which skips the test, if PostgreSQL is missing.
async fn start() -> Option<PostgresServer> {
    PostgresServer::start().await.inspect_err(|reason| skip(reason)).ok()
}

fn claim(number: i64) -> AnswerClaim {
    AnswerClaim::new(number, [1; 32].into(), KEEP)
}

/// The grants of the schema, and no others. Without one of them, its operation fails.
#[tokio::test]
async fn the_granted_rights_suffice_for_answers_in_postgres_and_none_is_too_much() {
    let Some(server) = start().await else { return };
    let admin = server.admin().await;
    let only = "revoke all on all tables in schema locks from app; \
                grant select, insert, update, delete on locks.redlock_answer to app";
    admin.batch_execute(only).await.unwrap();
    let store = postgres_answers(&server.url()).await;
    let operations = async |id: &AnswerId| {
        let claimed = store.claim(id, claim(1)).await.is_ok();
        let forgotten = store.forget(id, 1).await.is_ok();
        let claimed = store.claim(id, claim(2)).await.is_ok() && claimed;
        let stored = store.store(id, 2, "x".into(), KEEP).await.is_ok();
        (store.load(id).await.is_ok(), claimed, forgotten, stored)
    };
    assert_eq!(operations(&AnswerId::new("", "all")).await, (true, true, true, true));
    for (right, possible) in [
        ("select", (false, false, false, false)),
        ("insert", (true, false, true, true)),
        ("update", (true, false, true, false)),
        ("delete", (true, true, false, true)),
    ] {
        let id = AnswerId::new("", right);
        admin
            .batch_execute(&format!("revoke {right} on locks.redlock_answer from app"))
            .await
            .unwrap();
        assert_eq!(operations(&id).await, possible, "{right}");
        admin
            .batch_execute(&format!("grant {right} on locks.redlock_answer to app"))
            .await
            .unwrap();
    }
}

/// The transaction of a handler that has lost its lock may still store its answer.
#[tokio::test]
async fn a_row_that_a_transaction_is_changing_is_in_flight_until_its_end() {
    let Some(server) = start().await else { return };
    let (locks, counted) = (LockManager::in_memory(), Counted::default());
    let store = Arc::new(postgres_answers(&server.url()).await);
    let app = route(counted.handler(), IdempotencyLayer::new(&locks, Arc::clone(&store)));
    // The fingerprint of the request.
    let fingerprint = {
        assert_eq!(send(&app, request("seen", "")).await.status, 201);
        store.load(&AnswerId::new("7", "seen")).await.unwrap().unwrap().fingerprint
    };
    let mut admin = server.admin().await;
    for commits in [false, true] {
        let key = if commits { "commits" } else { "rolls-back" };
        let id = AnswerId::new("7", key);
        let claimed = store.claim(&id, AnswerClaim::new(1, fingerprint, KEEP)).await.unwrap();
        assert_eq!(claimed, ClaimResult::Claimed);
        let transaction = admin.transaction().await.unwrap();
        let update = "update locks.redlock_answer set answer = $1 where key = $2";
        let answer = StoredAnswer::new(axum::http::StatusCode::CREATED, "of the transaction");
        transaction.execute(update, &[&&answer.to_bytes()[..], &key]).await.unwrap();
        let refused = send(&app, request(key, "")).await;
        refused.is(409, "in_flight");
        assert_eq!(refused.headers["retry-after"], "1");
        assert_eq!(counted.runs(), 1);
        if commits {
            transaction.commit().await.unwrap();
            let replay = send(&app, request(key, "")).await;
            assert!(replay.is_replayed() && replay.body == "of the transaction", "{replay:?}");
            assert_eq!(counted.runs(), 1);
        } else {
            transaction.rollback().await.unwrap();
            assert_eq!(send(&app, request(key, "")).await.body, "payment 2");
            counted.0.store(1, std::sync::atomic::Ordering::SeqCst);
        }
    }
}

/// A connection whose packets are dropped is not closed.
#[tokio::test]
async fn a_connection_without_replies_is_given_up() {
    let Some(server) = start().await else { return };
    let proxy = Proxy::to_port(server.port()).await;
    let store = postgres_answers(&server.url_at("127.0.0.1", proxy.port())).await;
    let counted = Counted::default();
    let app = route(counted.handler(), IdempotencyLayer::new(&LockManager::in_memory(), store));
    assert_eq!(send(&app, request("before", "")).await.status, 201);
    for connection in proxy.connections() {
        connection.set(Direction::ToClient, Traffic::Hold);
    }
    send(&app, request("after", "")).await.is(503, "unavailable");
    let answered = async || (send(&app, request("after", "")).await.status == 201).then_some(());
    eventually("another connection is used", SOON, answered).await;
    assert_eq!(counted.runs(), 2);
}

/// A claim removes them, at most once in a minute.
#[tokio::test]
async fn rows_whose_time_is_over_are_removed_and_no_others() {
    let Some(server) = start().await else { return };
    let store = postgres_answers(&server.url()).await;
    for key in ["over", "in use", "kept"] {
        store.claim(&AnswerId::new("", key), claim(1)).await.unwrap();
    }
    let admin = server.admin().await;
    let over =
        "update locks.redlock_answer set expires = now() - interval '1 second' where key <> 'kept'";
    admin.batch_execute(over).await.unwrap();
    // The clean-up does not wait for the transaction of a handler.
    let mut handler = server.admin().await;
    let transaction = handler.transaction().await.unwrap();
    let lock = "select from locks.redlock_answer where key = 'in use' for update";
    transaction.query(lock, &[]).await.unwrap();
    let rows = async || {
        let rows = admin.query("select key from locks.redlock_answer order by key", &[]).await;
        rows.unwrap().iter().map(|row| row.get(0)).collect::<Vec<String>>()
    };
    store.claim(&AnswerId::new("", "early"), claim(1)).await.unwrap();
    assert_eq!(rows().await, ["early", "in use", "kept", "over"]);
    // A minute passes on the clock of this process.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    store.claim(&AnswerId::new("", "late"), claim(1)).await.unwrap();
    assert_eq!(rows().await, ["early", "in use", "kept", "late"]);
}

/// A server that is full, or read-only, refuses every write, and still reads.
#[tokio::test]
async fn a_store_in_postgres_that_refuses_writes_claims_nothing_and_still_replays() {
    let Some(server) = start().await else { return };
    let store = postgres_answers(&server.url()).await;
    let counted = Counted::default();
    let app = route(counted.handler(), IdempotencyLayer::new(&LockManager::in_memory(), store));
    assert_eq!(send(&app, request("before", "")).await.status, 201);
    let admin = server.admin().await;
    let full = "create function locks.no_space() returns trigger language plpgsql as \
                $$ begin raise exception using errcode = 'disk_full', message = 'no space'; end $$; \
                create trigger no_space before insert or update on locks.redlock_answer \
                for each row execute function locks.no_space()";
    admin.batch_execute(full).await.unwrap();
    send(&app, request("after", "")).await.is(503, "unavailable");
    assert!(send(&app, request("before", "")).await.is_replayed());
    assert_eq!(counted.runs(), 1);
    admin.batch_execute("drop trigger no_space on locks.redlock_answer").await.unwrap();
    assert_eq!(send(&app, request("after", "")).await.body, "payment 2");
}
