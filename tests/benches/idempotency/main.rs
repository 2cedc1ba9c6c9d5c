//! Measures requests with idempotency keys, with Redis on loopback.
//!
//! ```text
//! cargo bench -p redlock-tests --bench idempotency
//! ```

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a benchmark that cannot continue must stop"
)]
#![allow(clippy::cast_precision_loss, reason = "figures for a reader")]

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Request;
use axum::routing::post;
use futures_util::future::join_all;
use redlock_axum::{IdempotencyLayer, LockManager, RedisAnswers, redis_lock};
use redlock_tests::Servers;
use tower::ServiceExt;

const ROUNDS: usize = 15;
const REQUESTS: usize = 200;
const CLIENTS: usize = 64;
const MEBIBYTE: usize = 1 << 20;

async fn pay() -> &'static str {
    "paid"
}

#[redis_lock(key = "order:{id}")]
async fn locked(axum::extract::Path(id): axum::extract::Path<u64>) -> &'static str {
    "paid"
}

struct Apps {
    locked: Router,
    once: Router,
}

fn request(path: &str, key: &str, body: Body) -> Request<Body> {
    Request::post(path).header("idempotency-key", key).body(body).unwrap()
}

async fn send(app: &Router, request: Request<Body>) {
    let response = app.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
}

/// Returns the median of the times of requests, one after another.
async fn p50(mut work: impl AsyncFnMut(usize)) -> f64 {
    let mut times = Vec::with_capacity(REQUESTS);
    for number in 0..REQUESTS {
        let begun = Instant::now();
        work(number).await;
        times.push(begun.elapsed());
    }
    median(times.into_iter().map(|time| time.as_secs_f64() * 1e6).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print(row: &str, pairs: &[(f64, f64)], target: f64) {
    let ratios: Vec<_> = pairs.iter().map(|(reference, this)| this / reference).collect();
    let (least, most) = ratios.iter().fold((f64::MAX, 0_f64), |(a, b), r| (a.min(*r), b.max(*r)));
    let reference = median(pairs.iter().map(|pair| pair.0).collect());
    let this = median(pairs.iter().map(|pair| pair.1).collect());
    let ratio = median(ratios);
    println!(
        "| {row} | {reference:.0} | {this:.0} | {ratio:.2} ({least:.2}-{most:.2}) | {target} |"
    );
}

async fn measure(servers: &Servers) {
    let url = &servers.urls()[0];
    let locks = LockManager::builder()
        .urls([url])
        .node_timeout(Duration::from_secs(2))
        .connect()
        .await
        .expect("a manager");
    let answers = RedisAnswers::connect(url).await.expect("a store");
    let layer = IdempotencyLayer::new(&locks, answers).shared_scope().expect("a layer");
    let apps = Apps {
        locked: Router::new().route("/orders/{id}", post(locked)).with_state(locks.clone()),
        once: Router::new().route("/orders/{id}", post(pay)).route_layer(layer),
    };
    let client = redis::Client::open(url.as_str()).expect("a client");
    let mut redis = client.get_multiplexed_async_connection().await.expect("a connection");
    redis::cmd("SET").arg("x").arg("paid").exec_async(&mut redis).await.expect("a value");
    send(&apps.once, request("/orders/0", "replay", Body::empty())).await;

    let (mut first, mut replay, mut many) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let lock = p50(async |number| {
            send(&apps.locked, request(&format!("/orders/{number}"), "x", Body::empty())).await;
        })
        .await;
        let once = p50(async |number| {
            let key = format!("first-{round}-{number}");
            send(&apps.once, request(&format!("/orders/{number}"), &key, Body::empty())).await;
        })
        .await;
        first.push((lock, once));
        let get = p50(async |_| {
            let value: String = redis::cmd("GET").arg("x").query_async(&mut redis).await.unwrap();
            assert_eq!(value, "paid");
        })
        .await;
        let once =
            p50(async |_| send(&apps.once, request("/orders/0", "replay", Body::empty())).await)
                .await;
        replay.push((get, once));
        let many_of = async |app: &Router, name: &str| {
            let begun = Instant::now();
            join_all((0..CLIENTS).map(async |client| {
                for number in 0..20 {
                    let key = format!("{name}-{round}-{client}-{number}");
                    let path = format!("/orders/{}", client * 20 + number);
                    send(app, request(&path, &key, Body::empty())).await;
                }
            }))
            .await;
            (CLIENTS * 20) as f64 / begun.elapsed().as_secs_f64()
        };
        many.push((many_of(&apps.locked, "l").await, many_of(&apps.once, "o").await));
    }
    println!("| row | reference | this library | ratio | target |\n|---|---|---|---|---|");
    print("first request, p50 in us (`#[redis_lock]`)", &first, 2.7);
    print("replay, p50 in us (`GET` by redis-rs)", &replay, 1.5);
    print("64 clients, keys of their own, requests a second (`#[redis_lock]`)", &many, 0.0);
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let servers = runtime.block_on(Servers::start(1));
    runtime.block_on(measure(&servers));
    // In memory, so that the client of Redis adds nothing.
    let locks = LockManager::in_memory();
    let layer = IdempotencyLayer::new(&locks, redlock_axum::MemoryAnswers::new());
    let layer = layer.shared_scope().unwrap();
    let read = post(async |body: Bytes| body.len().to_string());
    let app: Router = Router::new().route("/orders/{id}", read).route_layer(layer);
    runtime.block_on(send(&app, request("/orders/1", "warm", Body::empty())));
    let chunk = Bytes::from(vec![b'x'; 16 << 10]);
    let measured = allocation_counter::measure(|| {
        let chunks = vec![Ok::<_, std::convert::Infallible>(chunk.clone()); MEBIBYTE / chunk.len()];
        let body = Body::from_stream(futures_util::stream::iter(chunks));
        runtime.block_on(send(&app, request("/orders/1", "body", body)));
    });
    let mebibytes = measured.bytes_max as f64 / MEBIBYTE as f64;
    println!("a body of 1 MiB in flight: {mebibytes:.2} MiB (at most 2.2)");
}
