//! Many requests with one key at the same time, to two copies.

use std::time::Duration;

use axum::Router;
use axum::routing::any;
use futures_util::future::join_all;
use redlock_tests::{Nodes, on_each_kind_of_nodes};

use super::{Answer, Counted, Stage, request, route, send};

/// The number of requests.
const REQUESTS: usize = 50;

/// Sends the requests at once, half of them to each copy.
async fn at_once(copies: &[Router; 2], key: &'static str) -> Vec<Answer> {
    let requests = (0..REQUESTS).map(|number| {
        let app = copies[number % 2].clone();
        tokio::spawn(async move { send(&app, request(key, "100")).await })
    });
    join_all(requests).await.into_iter().map(Result::unwrap).collect()
}

async fn one_of_fifty_requests_has_an_effect(nodes: Nodes) {
    let stage = Stage::new(nodes);
    let copies = [stage.copy().await, stage.copy().await];
    for wait in [None, Some(Duration::from_secs(60))] {
        let counted = Counted::default();
        let runs = counted.clone();
        let handler = any(move || async move {
            let run = runs.run();
            tokio::time::sleep(Duration::from_millis(50)).await;
            format!("payment {run}")
        });
        let apps = copies.each_ref().map(|copy| {
            let layer = copy.layer();
            route(handler.clone(), if let Some(wait) = wait { layer.wait(wait) } else { layer })
        });
        let key = if wait.is_some() { "wait" } else { "refuse" };
        let answers = at_once(&apps, key).await;
        let paid = answers.iter().filter(|answer| answer.status == 200);
        let (replayed, first): (Vec<_>, Vec<_>) = paid.partition(|answer| answer.is_replayed());
        let unavailable = answers.iter().filter(|answer| answer.status == 503).count();
        // On a busy machine, a node may seem to be late to the first request, too.
        assert!(first.len() == 1 || unavailable > 0, "{answers:?}");
        assert_eq!(counted.runs(), first.len(), "{answers:?}");
        let refused = answers.iter().filter(|answer| answer.status == 409);
        let refused = refused.inspect(|answer| assert_eq!(answer.code(), "in_flight")).count();
        assert_eq!(first.len() + replayed.len() + refused + unavailable, REQUESTS);
        assert!(replayed.iter().all(|answer| answer.body == "payment 1"), "{replayed:?}");
        assert!(wait.is_none() || refused == 0, "{answers:?}");
    }
    stage.nodes.become_empty().await;
}

on_each_kind_of_nodes! {
    [
        memory: Nodes::memory(1),
        redis: Nodes::redis(1).await,
        redis_x5: Nodes::redis(5).await,
        postgres: Nodes::postgres(1, 0).await,
    ]
    run_nodes [one_of_fifty_requests_has_an_effect,]
}

async fn run_nodes(nodes: Nodes, behaviour: impl AsyncFn(Nodes)) {
    behaviour(nodes).await;
}
