//! However a request ends, its lock is released: under the attribute, the layer and a policy.

mod dropped;
mod gone_clients;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use axum::{Json, Router};
use redlock_axum::{LockLayer, LockManager, LockPolicy, ScopeLayer, redis_lock};
use redlock_tests::{Nodes, eventually, on_each_kind_of_nodes};
use serde::Deserialize;
use tokio::sync::Notify;
use tower::ServiceExt;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;

use crate::{LONG, SOON};

const KEY: &str = "order:42";
const FRONTS: [&str; 3] = ["/attribute/42", "/layer/42", "/policy/42"];
/// The attribute with several keys.
const SEVERAL: &str = "/several/42";

on_each_kind_of_nodes! {
    [redis_x5: Nodes::redis(5).await,]
    [
        no_lock_is_left_however_a_handler_ends,
        sequential_requests_are_not_refused,
        no_lock_is_left_after_a_refusal,
        a_rejection_by_an_extractor_under_the_attribute_takes_no_lock,
    ]
}

mod thorough {
    use super::*;

    on_each_kind_of_nodes! {
        [
            postgres_x1: Nodes::postgres(1, 0).await,
            postgres_x3: Nodes::postgres(3, 0).await,
            zookeeper_x1: Nodes::zookeeper().await,
        ]
        [no_lock_is_left_however_a_handler_ends, no_lock_is_left_after_a_refusal,]
    }
}

fn policy() -> LockPolicy {
    LockPolicy::new("order:{id:u64}").expire(LONG)
}

fn layer(locks: &LockManager, policy: LockPolicy) -> LockLayer {
    LockLayer::new(locks, policy).unwrap()
}

/// The routes of [`FRONTS`].
fn three_fronts<S>(
    attribute: MethodRouter<S>,
    plain: MethodRouter<S>,
    locks: &LockManager,
    policy: &LockPolicy,
) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    Router::new()
        .route("/attribute/{id}", attribute)
        .route("/layer/{id}", plain.clone().route_layer(layer(locks, policy.clone())))
        .route("/policy/{id}", plain)
        .layer(layer(locks, policy.clone().route("/policy/{id}")))
        .layer(ScopeLayer::new(locks))
}

#[derive(Debug, Clone, Default)]
struct Inside {
    entered: Arc<Notify>,
    entries: Arc<AtomicUsize>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum End {
    Success,
    Error,
    Panic,
    Never,
}

struct Failed;

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        StatusCode::IM_A_TEAPOT.into_response()
    }
}

impl Inside {
    async fn work(&self, end: End) -> Result<&'static str, Failed> {
        self.entries.fetch_add(1, Ordering::SeqCst);
        self.entered.notify_one();
        tokio::task::yield_now().await;
        match end {
            End::Success => Ok("done"),
            End::Error => Err(Failed),
            End::Panic => panic!("on purpose"),
            End::Never => std::future::pending().await,
        }
    }
}

#[redis_lock(key = "order:{id}", expire = "5m", installed)]
async fn attribute(
    Path(id): Path<u64>,
    State(inside): State<Inside>,
    Json(end): Json<End>,
) -> Result<&'static str, Failed> {
    inside.work(end).await
}

#[redis_lock(keys("order:{}", [*id, *id + 1]), expire = "5m", installed)]
async fn several(
    Path(id): Path<u64>,
    State(inside): State<Inside>,
    Json(end): Json<End>,
) -> Result<&'static str, Failed> {
    inside.work(end).await
}

async fn plain(State(inside): State<Inside>, Json(end): Json<End>) -> Result<&'static str, Failed> {
    inside.work(end).await
}

struct Service {
    nodes: Nodes,
    locks: LockManager,
    inside: Inside,
    router: Router,
}

impl Service {
    async fn start(nodes: Nodes) -> Self {
        let locks = nodes.manager().await;
        let inside = Inside::default();
        let several = Router::new().route("/several/{id}", post(several));
        let router = three_fronts(post(attribute), post(plain), &locks, &policy())
            .merge(several.layer(ScopeLayer::new(&locks)));
        Self { nodes, locks, router: router.with_state(inside.clone()), inside }
    }

    async fn send(&self, front: &str, body: &'static str) -> StatusCode {
        self.router.clone().oneshot(request(front, body)).await.unwrap().status()
    }

    /// Returns the front ends, with several keys if the nodes hold them.
    async fn fronts(&self) -> Vec<&'static str> {
        let several = self.nodes.hold_several_keys().await.then_some(SEVERAL);
        self.nodes.become_empty().await;
        FRONTS.into_iter().chain(several).collect()
    }

    fn entries(&self) -> usize {
        self.inside.entries.load(Ordering::SeqCst)
    }

    /// Checks that no lock is left, and that the next caller and the next request get the lock.
    async fn is_clean(&self, front: &str) {
        eventually(&format!("{front}: no lock is left on any node"), SOON, async || {
            (self.nodes.locks().await == 0).then_some(())
        })
        .await;
        let guard = self.locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        guard.release().await.unwrap();
        self.nodes.become_empty().await;
        assert_eq!(self.send(front, r#""success""#).await, StatusCode::OK, "{front}");
        self.nodes.become_empty().await;
    }
}

fn request(front: &str, body: &'static str) -> Request<Body> {
    Request::post(front)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))
        .unwrap()
}

/// A handler succeeds, fails, panics, exceeds a timeout, or does not begin because an extractor rejects.
async fn no_lock_is_left_however_a_handler_ends(nodes: Nodes) {
    let service = Service::start(nodes).await;
    let with_catch_panic = service.router.clone().layer(CatchPanicLayer::new());
    let timeout = Duration::from_millis(200);
    let with_timeout = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, timeout);
    let with_timeout = service.router.clone().layer(with_timeout);
    for (router, body, status, entries) in [
        (&service.router, r#""success""#, StatusCode::OK, 1),
        (&service.router, r#""error""#, StatusCode::IM_A_TEAPOT, 1),
        (&with_catch_panic, r#""panic""#, StatusCode::INTERNAL_SERVER_ERROR, 1),
        (&with_timeout, r#""never""#, StatusCode::GATEWAY_TIMEOUT, 1),
        (&service.router, "an extractor rejects it", StatusCode::BAD_REQUEST, 0),
    ] {
        for front in service.fronts().await {
            let before = service.entries();
            eventually("the handler begins, or must not", SOON, async || {
                let response = router.clone().oneshot(request(front, body)).await.unwrap();
                assert_eq!(response.status(), status, "{front}: {body}");
                // On a busy machine, a timeout ends the request before it has its lock.
                (service.entries() == before + entries).then_some(())
            })
            .await;
            service.is_clean(front).await;
        }
    }
}

/// The lock is released before the response is sent, so the client's next request finds it free.
async fn sequential_requests_are_not_refused(nodes: Nodes) {
    let service = Service::start(nodes).await;
    for _ in 0..50 {
        for front in service.fronts().await {
            assert_eq!(service.send(front, r#""success""#).await, StatusCode::OK, "{front}");
        }
    }
}

async fn no_lock_is_left_after_a_refusal(nodes: Nodes) {
    let service = Service::start(nodes).await;
    for front in service.fronts().await {
        let before = service.entries();
        let guard = service.locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        assert_eq!(service.send(front, r#""success""#).await, StatusCode::CONFLICT, "{front}");
        assert_eq!(service.entries(), before, "{front} ran without its lock");
        assert!(guard.is_valid());
        guard.release().await.unwrap();
        service.is_clean(front).await;
    }
}

/// The attribute runs the extractors before it locks, so an invalid request takes no lock. The layer locks
/// first.
async fn a_rejection_by_an_extractor_under_the_attribute_takes_no_lock(nodes: Nodes) {
    let service = Service::start(nodes).await;
    let guard = service.locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    assert_eq!(service.send("/attribute/42", "no json").await, StatusCode::BAD_REQUEST);
    assert_eq!(service.send("/layer/42", "no json").await, StatusCode::CONFLICT);
    drop(guard);
}
