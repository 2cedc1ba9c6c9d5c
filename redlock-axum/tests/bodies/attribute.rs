//! The attribute: axum extracts the arguments, so the body arrives before the lock is requested.

use axum::body::{Body, Bytes};
use axum::routing::{MethodRouter, post as on_post};
use axum::{Form, Json, Router};
use http::Request;
use redlock_axum::{HeldLock, LockManager, redis_lock};
use serde::Deserialize;

use super::slow_body;
use crate::support::{answer, app, memory};

#[derive(Deserialize)]
struct Order {
    id: u64,
}

#[redis_lock(key = "order")]
async fn bytes(lock: HeldLock, body: Bytes) -> String {
    format!("{} {}", body.len(), lock.is_valid())
}

#[redis_lock(key = "order", wait_time = 5)]
async fn string(lock: HeldLock, body: String) -> String {
    format!("{} {}", body.len(), lock.is_valid())
}

#[redis_lock(key("order:{}", order.id), detached)]
async fn json(lock: HeldLock, Json(order): Json<Order>) -> String {
    format!("{} {}", order.id, lock.is_valid())
}

#[redis_lock(keys("order:{}", [order.id]), on_lost = abort)]
async fn form(lock: HeldLock, Form(order): Form<Order>) -> String {
    format!("{} {}", order.id, lock.is_valid())
}

#[tokio::test]
async fn a_slow_upload_to_a_handler_with_the_attribute_holds_no_lock() {
    let (locks, node) = memory().await;
    let rows: [(MethodRouter<LockManager>, &str, [&'static str; 2], &str); 4] = [
        (on_post(bytes), "text/plain", ["on", "e"], "3 true"),
        (on_post(string), "text/plain", ["tw", "o"], "3 true"),
        (on_post(json), "application/json", ["{\"id\":", "3}"], "3 true"),
        (on_post(form), "application/x-www-form-urlencoded", ["id=", "4"], "4 true"),
    ];
    for (method, content_type, pieces, expected) in rows {
        let app = app(Router::new().route("/", method), &locks);
        let (mut client, body) = slow_body(None);
        let request = Request::post("/").header("content-type", content_type);
        let request: Request<Body> = request.body(body).unwrap();
        let task = tokio::spawn(async move { answer(&app, request).await });
        client.send(pieces[0]);
        client.until_polled(2).await;
        assert!(node.is_empty(), "{content_type}: the upload holds the lock");
        client.send(pieces[1]);
        drop(client);
        assert_eq!(task.await.unwrap().body, expected, "{content_type}");
    }
}
