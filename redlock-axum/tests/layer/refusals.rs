//! The responses to clients that do not get the lock, and to requests of an application with a
//! wrong configuration.

use std::future::pending;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::post as on_post;
use http::{Method, StatusCode};
use redlock_axum::{LockLayer, LockRejection, OnLost, SetupError};
use redlock_logs::Logs;

use super::app;
use crate::support::{hold, memory, post, send, text, until_logged};

#[tokio::test]
async fn a_contended_request_is_answered_with_the_chosen_status() {
    let (locks, node) = memory().await;
    let layer = LockLayer::new("order:{id}").contended_status(StatusCode::LOCKED);
    let app = app(layer, &locks, &node);

    let _guard = hold(&locks, "order:42").await;
    let response = send(&app, Method::POST, "/orders/42/pay").await;
    assert_eq!(response.status(), 423);
    assert!(text(response).await.contains(r#""title":"Locked","status":423"#));
}

/// A renewed lock has a lease of 30 s, but most holders release it after milliseconds.
#[tokio::test]
async fn retry_after_is_at_most_5_seconds_or_the_chosen_time() {
    let (locks, node) = memory().await;
    let layer = LockLayer::new("order:{id}");
    let _guard = hold(&locks, "order:42").await;
    for (layer, seconds) in
        [(layer.clone(), "5"), (layer.retry_after_max(Duration::from_secs(9)), "9")]
    {
        let response = send(&app(layer, &locks, &node), Method::POST, "/orders/42/pay").await;
        assert_eq!(response.headers()["retry-after"], seconds);
    }
}

#[tokio::test]
async fn the_application_can_build_the_response_to_a_refusal() {
    let (locks, node) = memory().await;
    let logs = Logs::collect();
    let layer = |template| {
        LockLayer::new(template).on_reject(|rejection: LockRejection| {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{:?}", rejection.kind()))
        })
    };
    let _held = hold(&locks, "order:42").await;

    let contended = app(layer("order:{id}"), &locks, &node);
    let response = send(&contended, Method::POST, "/orders/42/pay").await;
    assert_eq!(response.status(), 503);
    assert_eq!(text(response).await, "Contended");

    let wrong = app(layer("order:{idd}"), &locks, &node);
    let response = send(&wrong, Method::POST, "/orders/42/pay").await;
    assert_eq!(text(response).await, "Misconfigured");
    assert_eq!(
        logs.count("ERROR", "{idd}"),
        1,
        "logged although the application builds the response"
    );
}

#[tokio::test]
async fn a_request_without_a_manager_is_refused_and_the_log_names_the_line_to_add() {
    let (locks, node) = memory().await;
    let logs = Logs::collect();
    let bare =
        |layer: LockLayer| Router::new().route("/", on_post(|| async { "ran" }).route_layer(layer));

    until_logged(&logs, "ERROR", ".layer(LocksLayer::new(&locks))", async || {
        let response = send(&bare(LockLayer::new("k")), Method::POST, "/").await;
        assert_eq!(response.status(), 500);
        assert!(!text(response).await.contains("Extension"));
    })
    .await;

    let given = bare(LockLayer::new("k").manager(locks));
    assert_eq!(post(&given, "/").await, 200);
    assert_eq!(node.len(), 0);
}

#[test]
fn checked_returns_mistakes_as_errors() {
    let mistake = |layer: LockLayer| layer.checked().unwrap_err();
    for template in ["order:{id", "redlock:{id}", "{cookie(id)}", "'order:' + #id", "order:#id"] {
        assert!(matches!(mistake(LockLayer::new(template)), SetupError::Template(_)), "{template}");
    }
    assert_eq!(
        mistake(LockLayer::new("k").expire(Duration::ZERO)).to_string(),
        "expire is 0ns, but must be from 10 ms to 7 days"
    );
    let eight_days = Duration::from_secs(8 * 24 * 3600);
    let SetupError::Option(error) = mistake(LockLayer::new("k").wait_time(eight_days)) else {
        panic!("no invalid option");
    };
    assert_eq!(error.option(), "wait_time");
    assert_eq!(
        mistake(LockLayer::new("k").contended_status(StatusCode::OK)),
        SetupError::ContendedStatus(200)
    );
    assert_eq!(mistake(LockLayer::new("k").methods([])), SetupError::NoMethods);
    assert!(LockLayer::new("order:{id:u64}").checked().is_ok());
}

/// No work without the lock: a mistake that the application does not check for must not let
/// handlers run unlocked.
#[tokio::test]
async fn an_unchecked_mistake_is_logged_at_once_and_refuses_every_request() {
    let (locks, node) = memory().await;
    let mistakes: [fn() -> LockLayer; 8] = [
        || LockLayer::new("'order:' + #id").renew(true),
        || LockLayer::new("order:{id").renew(true),
        || LockLayer::new("redlock:{id}").renew(true),
        || LockLayer::new("k").expire(Duration::ZERO).renew(true),
        || LockLayer::new("k").methods([]),
        || LockLayer::new("k").contended_status(StatusCode::OK),
        || LockLayer::new("k").permits(0),
        || LockLayer::new("k").shared_on([]),
    ];
    for mistake in mistakes {
        let logs = Logs::collect();
        let app = app(mistake(), &locks, &node);
        assert_eq!(logs.count("ERROR", "a lock layer is misconfigured"), 1);
        assert_eq!(post(&app, "/orders/42/pay").await, 500);
    }
}

#[tokio::test]
async fn the_application_can_build_the_response_to_a_lost_lock() {
    let layer = LockLayer::new("k")
        .expire(Duration::from_millis(400))
        .on_lost(OnLost::Abort)
        .on_reject(|rejection| format!("{:?}", rejection.kind()).into_response());
    let (locks, _node) = memory().await;
    let app = Router::new().route("/", on_post(pending::<()>)).layer(layer.manager(locks));
    assert_eq!(text(send(&app, Method::POST, "/").await).await, "Lost");
}

/// A layer is built step by step, and only the finished layer is checked.
#[tokio::test]
async fn an_unfinished_layer_is_not_logged_as_wrong() {
    const HOUR: Duration = Duration::from_secs(3600);

    let (locks, node) = memory().await;
    let logs = Logs::collect();
    let good = LockLayer::new("k").max_hold(HOUR).renew(true).min_hold(HOUR / 60).expire(HOUR);
    assert_eq!(logs.lines(), Vec::<String>::new());
    assert_eq!(post(&app(good, &locks, &node), "/orders/42/pay").await, 200);

    for (wrong, mistake) in [
        (LockLayer::new("k").expire(HOUR).max_hold(HOUR), "max_hold requires renew"),
        (LockLayer::new("k").shared(true).fenced(true), "fenced cannot be combined with shared"),
    ] {
        assert_eq!(logs.count("ERROR", mistake), 0);
        assert_eq!(post(&app(wrong, &locks, &node), "/orders/42/pay").await, 500);
        assert_eq!(logs.count("ERROR", mistake), 1);
    }
}
