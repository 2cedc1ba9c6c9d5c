//! Stores, locks and copies that fail.

use std::sync::Arc;

use axum::routing::any;
use redlock_axum::{AnswerId, Answers, IdempotencyLayer, LockManager, MemoryAnswers, RedisAnswers};
use redlock_core::test_util::TestLocks;
use redlock_core::test_util::node_tests::StoreFault;
use redlock_tests::{
    Logs, Nodes, PostgresServer, RedisServer, Servers, eventually, on_each_kind_of_nodes, skip,
};
use tokio::sync::{Notify, Semaphore};

use super::{Counted, Stage, decided, postgres_answers, request, route, send};
use crate::SOON;

/// The locks and the answers are on the same servers.
async fn without_its_servers_a_request_is_refused(nodes: Nodes) {
    let mut stage = Stage::new(nodes);
    let (copy, counted) = (stage.copy().await, Counted::default());
    let app = copy.app(counted.handler());
    assert_eq!(decided(&app, || request("first", "")).await.body, "payment 1");
    for (down, up) in
        [(StoreFault::Freeze, StoreFault::Thaw), (StoreFault::Kill, StoreFault::Restart)]
    {
        assert!(stage.nodes.fault(down).await);
        for key in ["first", "second"] {
            let refused = send(&app, request(key, "")).await;
            refused.is(503, "unavailable");
            assert_eq!(refused.headers["retry-after"], "1");
        }
        assert_eq!(counted.runs(), 1, "no run without the guard");
        assert!(stage.nodes.fault(up).await);
        let is_up = async || (send(&app, request("up", "")).await.status == 201).then_some(());
        eventually("the servers are used again", SOON, is_up).await;
        let expected = counted.runs();
        send(&app, request("up", "")).await;
        assert_eq!(counted.runs(), expected);
        counted.0.store(1, std::sync::atomic::Ordering::SeqCst);
    }
}

on_each_kind_of_nodes! {
    [redis: Nodes::redis(1).await, postgres: Nodes::postgres(1, 0).await,]
    run_nodes [without_its_servers_a_request_is_refused,]
}

async fn run_nodes(nodes: Nodes, behaviour: impl AsyncFn(Nodes)) {
    behaviour(nodes).await;
}

#[tokio::test]
async fn an_answer_is_replayed_while_no_quorum_answers() {
    let test = TestLocks::new(3);
    let (answers, counted) = (MemoryAnswers::new(), Counted::default());
    let layer = IdempotencyLayer::new(&test.manager(), answers.clone());
    let app = route(counted.handler(), layer);
    assert_eq!(send(&app, request("first", "")).await.status, 201);
    for node in &test.nodes()[..2] {
        node.fail();
    }
    assert!(send(&app, request("first", "")).await.is_replayed());
    send(&app, request("second", "")).await.is(503, "unavailable");
    assert_eq!((counted.runs(), answers.len()), (1, 1));
}

/// A handler that says when it has begun, and waits for a permit.
struct Paused {
    counted: Counted,
    begun: Arc<Notify>,
    permits: Arc<Semaphore>,
}

impl Paused {
    fn new() -> Self {
        let (begun, permits) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
        Self { counted: Counted::default(), begun, permits }
    }

    fn handler(&self) -> axum::routing::MethodRouter {
        let (counted, begun) = (self.counted.clone(), Arc::clone(&self.begun));
        let permits = Arc::clone(&self.permits);
        any(move || async move {
            let run = counted.run();
            begun.notify_one();
            permits.acquire().await.unwrap().forget();
            format!("payment {run}")
        })
    }
}

/// The first holder has lost its lock while it was paused.
async fn late_holder(answers: Arc<dyn Answers>) {
    for (is_claimed, key) in [(false, "late"), (true, "claimed")] {
        let (test, paused) = (TestLocks::new(1), Paused::new());
        // The stores are servers.
        tokio::time::resume();
        let app = |locks: &LockManager| {
            route(paused.handler(), IdempotencyLayer::new(locks, Arc::clone(&answers)))
        };
        let late = app(&test.manager());
        let late = tokio::spawn(async move { send(&late, request(key, "")).await });
        paused.begun.notified().await;
        test.nodes()[0].forget();
        let second = app(&test.builder().connect().await.unwrap());
        let next = is_claimed.then(|| {
            let second = second.clone();
            tokio::spawn(async move { send(&second, request(key, "")).await })
        });
        if is_claimed {
            paused.begun.notified().await;
        }
        paused.permits.add_permits(1);
        let first_answer = late.await.unwrap();
        assert_eq!((first_answer.status, first_answer.body.as_str()), (200, "payment 1"));
        let stored = if let Some(next) = next {
            // The first one has not stored its answer.
            let record = answers.load(&AnswerId::new("7", key)).await;
            assert_eq!(record.unwrap().unwrap().answer, None);
            paused.permits.add_permits(1);
            next.await.unwrap();
            "payment 2"
        } else {
            "payment 1"
        };
        let replay = send(&second, request(key, "")).await;
        assert!(replay.is_replayed() && replay.body == stored, "{replay:?}");
        assert_eq!(paused.counted.runs(), 1 + usize::from(is_claimed));
    }
}

mod a_late_holder_stores_its_answer_unless_another_one_has_claimed_the_key {
    use super::*;

    #[tokio::test]
    async fn in_memory() {
        late_holder(Arc::new(MemoryAnswers::new())).await;
    }

    #[tokio::test]
    async fn in_redis() {
        let server = RedisServer::start().await;
        late_holder(Arc::new(RedisAnswers::connect(&server.url()).await.unwrap())).await;
    }

    #[tokio::test]
    async fn in_postgres() {
        match PostgresServer::start().await {
            Err(reason) => skip(&reason),
            Ok(server) => {
                late_holder(Arc::new(postgres_answers(&server.url()).await)).await;
            }
        }
    }
}

/// Five nodes and a store of its own.
#[tokio::test]
async fn a_frozen_store_beside_five_nodes_runs_nothing_and_three_frozen_nodes_stop_no_replay() {
    let (mut servers, mut store) = (Servers::start(5).await, RedisServer::start().await);
    let locks = redlock_tests::connect(servers.urls()).await;
    let answers = RedisAnswers::connect(&store.url()).await.unwrap();
    let counted = Counted::default();
    let app = route(counted.handler(), IdempotencyLayer::new(&locks, answers));
    assert_eq!(decided(&app, || request("first", "")).await.body, "payment 1");
    store.freeze();
    for key in ["first", "second"] {
        let refused = send(&app, request(key, "")).await;
        refused.is(503, "unavailable");
        assert_eq!(refused.headers["retry-after"], "1");
    }
    assert_eq!(counted.runs(), 1, "no run without the guard");
    store.thaw();
    let replayed = async || send(&app, request("first", "")).await.is_replayed().then_some(());
    eventually("the store is used again", SOON, replayed).await;
    assert_eq!(decided(&app, || request("second", "")).await.body, "payment 2");
    servers.iter_mut().take(3).for_each(RedisServer::freeze);
    send(&app, request("third", "")).await.is(503, "unavailable");
    assert!(send(&app, request("second", "")).await.is_replayed());
    assert_eq!(counted.runs(), 2);
    servers.iter_mut().take(3).for_each(RedisServer::thaw);
    assert_eq!(decided(&app, || request("third", "")).await.body, "payment 3");
}

/// Redis refuses every write, and still reads and deletes.
#[tokio::test]
async fn a_full_store_claims_nothing_and_says_when_it_stores_nothing() {
    let logs = Logs::collect();
    let (locks, servers) = (LockManager::in_memory(), Servers::start(1).await);
    let answers = RedisAnswers::connect(&servers.urls()[0]).await.unwrap();
    let paused = Paused::new();
    let layer = IdempotencyLayer::new(&locks, answers);
    let app = route(paused.handler(), layer);
    paused.permits.add_permits(1);
    assert_eq!(send(&app, request("before", "")).await.status, 200);
    let begun = {
        paused.begun.notified().await;
        let app = app.clone();
        tokio::spawn(async move { send(&app, request("during", "")).await })
    };
    paused.begun.notified().await;
    let mut probe = servers[0].probe().await;
    probe.command::<()>(["CONFIG", "SET", "maxmemory", "1"]).await;
    send(&app, request("after", "")).await.is(503, "unavailable");
    assert!(send(&app, request("before", "")).await.is_replayed());
    paused.permits.add_permits(1);
    assert_eq!(begun.await.unwrap().body, "payment 2", "the work is done, so its client hears it");
    let logged = async || (logs.count("ERROR", "an answer was not stored") > 0).then_some(());
    eventually("the failure is logged", SOON, logged).await;
    // The store is free again: the claim looks unfinished.
    probe.command::<()>(["CONFIG", "SET", "maxmemory", "0"]).await;
    paused.permits.add_permits(1);
    assert_eq!(send(&app, request("during", "")).await.body, "payment 3");
    // A script that the server has forgotten is loaded again.
    probe.command::<()>(["SCRIPT", "FLUSH"]).await;
    paused.permits.add_permits(1);
    assert_eq!(send(&app, request("flushed", "")).await.body, "payment 4");
}
