//! Drops a request after every poll, up to the last piece of its response's body. Nothing is left behind with
//! any front end and any options (an abandoned attempt leaves nothing behind; dropping is always safe).

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Path;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use futures_util::stream;
use redlock_axum::{BodyMode, HoldUntil, LockManager, OnLost, redis_lock};
use redlock_tests::{Moment, Nodes, Traces, drop_after, on_each_kind_of_nodes};
use tower::ServiceExt;

use super::{KEY, layer, policy};
use crate::{LONG, SOON};

const BRIEF: Duration = Duration::from_millis(40);

/// The work of a handler: it yields a few times, and so does its response's body.
async fn work(body: String) -> Response {
    for _ in 0..2 {
        tokio::task::yield_now().await;
    }
    let pieces = stream::unfold(0, |piece| async move {
        tokio::task::yield_now().await;
        (piece < 3).then(|| (Ok::<_, std::io::Error>(Bytes::from_static(b"piece")), piece + 1))
    });
    (StatusCode::OK, [("x-echo", body)], Body::from_stream(pieces)).into_response()
}

async fn handler(body: String) -> Response {
    work(body).await
}

macro_rules! handlers {
    ($($name:ident: [$($options:tt)*],)+) => {
        $(
            #[redis_lock(key = "order:{id}", $($options)*)]
            async fn $name(Path(id): Path<u64>, body: String) -> Response {
                work(format!("{id} {body}")).await
            }
        )+
    };
}

handlers! {
    plain: [expire = "5m"],
    renewed: [expire = "5m", renew, max_hold = "5m", wait_time = "5m"],
    min_held: [expire = "5m", min_hold = "40ms"],
    kept: [expire = "40ms", keep],
    fenced: [expire = "5m", fenced, wait_time = "5m"],
    aborted: [expire = "5m", on_lost = abort],
    shared: [expire = "5m", reentrant],
}

macro_rules! handlers_with_several_keys {
    ($($name:ident: [$($options:tt)*],)+) => {
        $(
            #[redis_lock(keys("order:{}", [*id, *id + 1]), $($options)*)]
            async fn $name(Path(id): Path<u64>, body: String) -> Response {
                work(format!("{id} {body}")).await
            }
        )+
    };
}

handlers_with_several_keys! {
    several: [expire = "5m"],
    several_renewed: [expire = "5m", renew, wait_time = "5m"],
    several_fenced: [expire = "5m", fenced, wait_time = "5m", on_lost = abort],
}

fn routes(locks: &LockManager) -> Vec<(&'static str, MethodRouter<LockManager>)> {
    let around = |inner: MethodRouter<_>, policy| inner.route_layer(layer(locks, policy));
    let by = |policy| around(post(handler), policy);
    let until_end = || policy().hold_until(HoldUntil::EndOfBody);
    vec![
        ("attribute", post(plain)),
        ("attribute, renewed", post(renewed)),
        ("attribute, min held", post(min_held)),
        ("attribute, kept", post(kept)),
        ("attribute, fenced", post(fenced)),
        ("attribute, aborted", post(aborted)),
        ("attribute, inside of a layer", around(post(shared), policy())),
        ("several keys", post(several)),
        ("several keys, renewed", post(several_renewed)),
        ("several keys, fenced", post(several_fenced)),
        ("layer", by(policy())),
        ("layer, renewed", by(policy().renew(true).max_hold(LONG).wait_time(LONG))),
        ("layer, min held", by(policy().min_hold(BRIEF))),
        ("layer, kept", by(policy().expire(BRIEF).keep(true))),
        ("layer, fenced", by(policy().fenced(true).wait_forever())),
        ("layer, aborted", by(policy().on_lost(OnLost::Abort))),
        ("layer, inside of a layer", around(by(policy().reentrant(true)), policy())),
        ("body", by(until_end())),
        ("body, renewed", by(until_end().renew(true))),
        ("body, min held", by(until_end().min_hold(BRIEF))),
        ("body, kept", by(until_end().expire(BRIEF).keep(true))),
        ("body, fenced", by(until_end().fenced(true))),
        ("body, aborted", by(until_end().on_lost(OnLost::Abort))),
        ("layer, streamed", by(policy().body(BodyMode::Stream))),
        ("policy with a route", by(policy().route("/{id}"))),
    ]
}

async fn is_free(locks: &LockManager) {
    let request = locks.lock(KEY).expire(LONG).wait_time(SOON);
    request.acquire().await.unwrap().release().await.unwrap();
}

async fn every_request_at_every_poll(nodes: Nodes) {
    let locks = nodes.builder().max_waiters(1).connect().await.unwrap();
    is_free(&locks).await;
    let has_sets = nodes.hold_several_keys().await;
    let mut traces = Traces::look(&nodes).await;
    for (name, method) in routes(&locks) {
        if name.starts_with("several") && !has_sets {
            continue;
        }
        let app = Router::new().route("/{id}", method).with_state(locks.clone());
        for moment in [Moment::AtOnce, Moment::WhenWoken] {
            for polls in 0.. {
                let request = Request::post("/42").body(Body::from("body")).unwrap();
                let whole = async {
                    let response = app.clone().oneshot(request).await.unwrap();
                    (response.status(), to_bytes(response.into_body(), 1000).await.unwrap())
                };
                let whole = drop_after(polls, moment, whole);
                let done = tokio::time::timeout(SOON, whole).await.unwrap();
                let at = format!("{name}, {polls} polls, dropped {moment:?}");
                traces.are_gone(&at).await;
                is_free(&locks).await;
                traces.are_gone("acquiring the free lock").await;
                if let Some((status, body)) = done {
                    // On a busy machine, a brief lease may be over before the handler begins.
                    if status == StatusCode::SERVICE_UNAVAILABLE && name.ends_with("kept") {
                        continue;
                    }
                    assert_eq!((status, &*body), (StatusCode::OK, &b"piecepiecepiece"[..]), "{at}");
                    assert!(polls > 4, "{at}: ready too soon");
                    break;
                }
            }
        }
    }
}

on_each_kind_of_nodes! {
    [
        memory_x5: Nodes::memory(5),
        server: Nodes::redis(1).await,
    ]
    if_all_kinds [
        memory: Nodes::memory(1),
        servers_x5: Nodes::redis(5).await,
        sentinel_group: Nodes::sentinel(1).await,
        cluster: Nodes::cluster().await,
    ]
    [every_request_at_every_poll,]
}

mod thorough {
    use super::*;

    on_each_kind_of_nodes! {
        [postgres_x1: Nodes::postgres(1, 0).await,]
        [every_request_at_every_poll,]
    }
}
