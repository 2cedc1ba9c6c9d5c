//! Compares requests with idempotency keys with `axum-idempotent` 0.2, whose store keeps the answers in sessions on the same Redis.
//! That layer has no guard: two requests with one key at the same time both run.
//!
//! Prints one Markdown table. Both sides run in the same process and runtime. Each round measures both, and begins with the other
//! one than the round before. A ratio compares figures of the same round.
//!
//! ```text
//! REDIS_SERVER=valkey-server cargo run --release
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use axum::routing::post;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use fred::interfaces::ClientLike;
use fred::types::config::Config;
use futures_util::future::join_all;
use redlock_axum::{IdempotencyLayer, LockManager, RedisAnswers};
use redlock_tests::Servers;
use ruts::store::redis::RedisStore;
use ruts::{CookieOptions, Session, SessionLayer};
use tower::ServiceExt;
use tower_cookies::CookieManagerLayer;

type Store = RedisStore<fred::clients::Client>;

const ROUNDS: usize = 21;
const CLIENTS: usize = 64;
/// The requests of a client in a round.
const REQUESTS: usize = 50;

fn main() {
    redlock_logs::do_not_watch();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(measure());
}

async fn pay() -> &'static str {
    "paid"
}

/// Returns the service with the layer of this library.
async fn ours(url: &str) -> Router {
    let builder = LockManager::builder().urls([url]).node_timeout(Duration::from_secs(2));
    let locks = builder.connect().await.expect("a manager");
    let answers = RedisAnswers::connect(url).await.expect("a store");
    let layer = IdempotencyLayer::new(&locks, answers).shared_scope().expect("a layer");
    Router::new().route("/pay", post(pay)).route_layer(layer)
}

/// Returns the service with the layer of `axum-idempotent`. It finds the key in the session of its client.
async fn theirs(url: &str) -> Router {
    async fn login(session: Session<Store>) {
        session.set("user", &1, Some(300), None).await.expect("a session");
    }

    let config = Config::from_url(url).expect("a URL");
    let client = fred::types::Builder::from_config(config).build().expect("a client");
    client.init().await.expect("a connection");
    let store = Arc::new(RedisStore::new(Arc::new(client)).await.expect("scripts"));
    let options = IdempotentOptions::default().use_idempotency_key_header(None);
    Router::new()
        .route("/pay", post(pay))
        .layer(IdempotentLayer::<Store>::new(options))
        .route("/login", post(login))
        .layer(SessionLayer::new(store).with_cookie_options(CookieOptions::build().name("id")))
        .layer(CookieManagerLayer::new())
}

/// Returns the cookie of a new session.
async fn login(app: &Router) -> String {
    let request = Request::post("/login").body(Body::empty()).expect("a request");
    let response = app.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
    let cookie = response.headers()[header::SET_COOKIE].to_str().expect("a cookie");
    cookie.split(';').next().unwrap_or_default().to_owned()
}

/// Sends a request. Both sides get the cookie, and only one reads it.
async fn send(app: &Router, cookie: &str, key: &str, replayed: bool) {
    let request =
        Request::post("/pay").header(header::COOKIE, cookie).header("idempotency-key", key);
    let request = request.body(Body::empty()).expect("a request");
    let response = app.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers().contains_key("idempotency-replayed"), replayed);
    axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
}

/// Returns the requests a second of all clients.
async fn rate(app: &Router, cookies: &[String], round: usize, replayed: bool) -> f64 {
    let begun = Instant::now();
    join_all(cookies.iter().enumerate().map(async |(client, cookie)| {
        for number in 0..REQUESTS {
            send(app, cookie, &format!("{round}-{client}-{number}"), replayed).await;
        }
    }))
    .await;
    let requests = u32::try_from(cookies.len() * REQUESTS).expect("a small number");
    f64::from(requests) / begun.elapsed().as_secs_f64()
}

async fn measure() {
    let servers = Servers::start(1).await;
    let url = &servers.urls()[0];
    let (ours, theirs) = (ours(url).await, theirs(url).await);
    let cookies = join_all((0..CLIENTS).map(|_| login(&theirs))).await;
    println!("| work | axum-idempotent | this library | ratio |\n|---|---|---|---|");
    for (clients, name) in [(CLIENTS, "64 clients"), (1, "1 client")] {
        let cookies = &cookies[..clients];
        let (mut first, mut again) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            // A number that no other row uses.
            let key = clients * 1000 + round;
            let mut pairs = [(0.0, 0.0); 2];
            for (pair, replayed) in pairs.iter_mut().zip([false, true]) {
                if round % 2 == 0 {
                    pair.0 = rate(&theirs, cookies, key, replayed).await;
                    pair.1 = rate(&ours, cookies, key, replayed).await;
                } else {
                    pair.1 = rate(&ours, cookies, key, replayed).await;
                    pair.0 = rate(&theirs, cookies, key, replayed).await;
                }
            }
            first.push(pairs[0]);
            again.push(pairs[1]);
        }
        print(&format!("{name}, keys of their own, requests a second"), &first);
        print(&format!("{name}, replays a second"), &again);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print(row: &str, pairs: &[(f64, f64)]) {
    let ratios: Vec<_> = pairs.iter().map(|(theirs, ours)| ours / theirs).collect();
    let (least, most) = ratios.iter().fold((f64::MAX, 0_f64), |(a, b), r| (a.min(*r), b.max(*r)));
    let theirs = median(pairs.iter().map(|pair| pair.0).collect());
    let ours = median(pairs.iter().map(|pair| pair.1).collect());
    println!(
        "| {row} | {theirs:.0} | {ours:.0} | {:.2} ({least:.2} to {most:.2}) |",
        median(ratios)
    );
}
