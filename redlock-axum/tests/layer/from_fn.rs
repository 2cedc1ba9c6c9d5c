//! A layer whose key is made by a function.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::request::Parts;
use http::{Method, Request};
use redlock_axum::{
    FencedLock, HeldLock, HoldUntil, KeyError, KeyPart, KeyTemplate, LockKey, LockManager,
    LockPolicy, OnLost,
};
use redlock_logs::Logs;

use crate::support::{answer, hold, layer, memory, post, request, send, text};

fn app(policy: LockPolicy, locks: &LockManager) -> Router {
    let key = async |lock: HeldLock| lock.keys()[0].to_string();
    Router::new().route("/", get(key).post(key).route_layer(layer(locks, policy)))
}

fn with_user(user: &str) -> Request<Body> {
    Request::post("/").header("x-user", user).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn the_function_makes_the_key_from_the_request() {
    fn user_key(parts: &Parts) -> Result<LockKey, KeyError> {
        let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok());
        LockKey::new(format!("user:{}", KeyPart(user.unwrap_or_default())))
    }

    let (locks, node) = memory().await;
    let app = app(LockPolicy::from_fn(user_key), &locks);
    let _guard = hold(&locks, "user:ann").await;
    assert_eq!(answer(&app, with_user("ann")).await.status, 409);
    for (user, key) in [("bob", "user:bob"), ("ann:x", "user:ann%3Ax"), ("%", "user:%25")] {
        let answer = answer(&app, with_user(user)).await;
        assert_eq!((answer.status.as_u16(), &*answer.body), (200, key));
    }
    let without = answer(&app, request(Method::POST, "/")).await;
    assert_eq!(without.status, 400);
    assert!(without.body.contains("a value that identifies the resource is empty"));
    assert_eq!(node.len(), 1);
}

#[tokio::test]
async fn an_error_of_the_function_refuses_the_request() {
    let (locks, node) = memory().await;
    for (key, status) in [("", 400), ("4711\n", 400), ("redlock:4711", 500)] {
        let logs = Logs::collect();
        let refusing = app(LockPolicy::from_fn(move |_| LockKey::new(key)), &locks);
        let response = send(&refusing, Method::POST, "/").await;
        assert_eq!(response.status(), status, "{key}");
        assert!(!text(response).await.contains("4711"), "{key}");
        assert_eq!(logs.count("ERROR", "begins with `redlock:`"), usize::from(status == 500));
    }
    let template = KeyTemplate::new("import:{n:u64}").unwrap();
    let policy = LockPolicy::from_fn(move |_| template.render([("n", "x")]));
    let response = send(&app(policy, &locks), Method::POST, "/").await;
    assert_eq!(response.status(), 400);
    assert!(text(response).await.contains("the parameter n is not a whole number"));
    assert!(node.is_empty());
}

#[tokio::test]
async fn the_options_of_a_policy_apply() {
    let (locks, node) = memory().await;
    let policy = || LockPolicy::from_fn(|parts| LockKey::new(format!("by:{}", parts.method)));

    let only_post = app(policy().methods([Method::POST]), &locks);
    let _guards = [hold(&locks, "by:POST").await, hold(&locks, "by:HEAD").await];
    assert_eq!(post(&only_post, "/").await, 409);
    assert_eq!(send(&only_post, Method::GET, "/").await.status(), 500, "HeldLock without a lock");
    assert_eq!(send(&app(policy(), &locks), Method::HEAD, "/").await.status(), 409);

    let streaming = policy().hold_until(HoldUntil::EndOfBody).fenced(true);
    let body = async |_: FencedLock| Body::from("streamed");
    let streaming = Router::new().route("/", get(body)).layer(layer(&locks, streaming));
    let response = send(&streaming, Method::GET, "/").await;
    assert!(node.time_to_live("by:GET").is_some());
    assert_eq!(text(response).await, "streamed");
    assert!(node.time_to_live("by:GET").is_none());

    let aborting = policy().expire(Duration::from_millis(400)).on_lost(OnLost::Abort);
    let aborting =
        Router::new().route("/", get(std::future::pending::<()>)).layer(layer(&locks, aborting));
    let response = send(&aborting, Method::GET, "/").await;
    assert_eq!(response.status(), 503);
}
