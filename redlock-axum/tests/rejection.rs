//! `LockRejection`: the response to the client, the lines of the log, and the errors for the application.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post as on_post;
use http::{Method, StatusCode, header};
use redlock_axum::{
    ForeignKind, KeyPart, KeyTemplate, LockError, LockKey, LockManager, LockRejection, LossCause,
    LostError, MemoryNode, NodeError, RejectionKind, ScopeLayer, Vote, Votes, scope,
};
use redlock_logs::Logs;
use serde_json::{Value, json};

use crate::support::voting_node::VotingNode;
use crate::support::{hold, layer, memory, post, send, text, until_logged};

fn contended(remaining: Option<Duration>) -> LockError {
    LockError::contended(key(), remaining, Votes::default())
}

fn unavailable() -> LockError {
    unavailable_on("10.0.0.1:6379")
}

fn unavailable_on(node: &str) -> LockError {
    let error = NodeError::NotConnected("refused".into());
    let votes = [(Arc::from(node), Some(Vote::Failed(error)))];
    LockError::unavailable(key(), votes.into_iter().collect())
}

/// Makes two callers wait behind a holder, although only one may wait, and returns the error of the refused one.
async fn too_many_waiters() -> LockError {
    let locks = LockManager::builder().memory_node(&MemoryNode::new()).max_waiters(1);
    let locks = locks.connect().await.unwrap();
    let _guard = hold(&locks, "k").await;
    let wait = || locks.lock("k").wait_forever().acquire();
    let refused = tokio::select! { refused = wait() => refused, refused = wait() => refused };
    let error = refused.unwrap_err();
    assert!(matches!(error, LockError::TooManyWaiters { limit: 1, .. }), "{error}");
    error
}

fn key() -> LockKey {
    LockKey::new("order:4711").unwrap()
}

fn retry_after(response: &Response) -> Option<&str> {
    Some(response.headers().get(header::RETRY_AFTER)?.to_str().unwrap())
}

async fn problem(rejection: LockRejection) -> Value {
    let response = rejection.into_response();
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
    serde_json::from_str(&text(response).await).unwrap()
}

fn internal_server_error(code: &str) -> Value {
    json!({
        "type": "about:blank",
        "title": "Internal Server Error",
        "status": 500,
    "code": code,
        "detail": "the server is not set up correctly",
    })
}

#[tokio::test]
async fn a_contended_lock_is_a_conflict_with_the_time_to_wait() {
    let rejection = LockRejection::from(contended(Some(Duration::from_millis(2100))));
    assert_eq!(rejection.kind(), RejectionKind::Contended);
    assert_eq!(rejection.retry_after(), Some(Duration::from_secs(3)));
    assert_eq!(retry_after(&rejection.clone().into_response()), Some("3"));
    assert_eq!(
        problem(rejection).await,
        json!({
            "type": "about:blank",
            "title": "Conflict",
            "status": 409,
        "code": "contended",
            "detail": "another request is being processed for this resource; try again later",
            "retry_after": 3,
        })
    );
}

/// The codes of bodies are in `bodies`, whose requests have bodies.
#[tokio::test]
async fn each_kind_has_its_code_in_the_response_of_a_layer_and_of_a_handler() {
    async fn lost() -> Result<(), LockRejection> {
        Err(LostError::new(key(), LossCause::LeaseEnded, Votes::default()).into())
    }

    let (locks, _node) = memory().await;
    let (stopped, _) = memory().await;
    stopped.shutdown().await;
    let served = || on_post(|| async {});
    let app = Router::new()
        .route("/contended", served().route_layer(layer(&locks, "k")))
        .route("/unavailable", served().route_layer(layer(&stopped, "k")))
        .route("/lost", on_post(lost))
        .route(
            "/invalid_key",
            served().route_layer(layer(&locks, "order:{header(idempotency-key)}")),
        )
        .route(
            "/already_held",
            served().route_layer(layer(&locks, "a")).route_layer(layer(&locks, "a")),
        )
        .route("/misconfigured", served().route_layer(layer(&locks, "order:{id}")))
        .layer(ScopeLayer::new(&locks));
    let _guard = hold(&locks, "k").await;
    for (code, kind) in [
        ("contended", RejectionKind::Contended),
        ("unavailable", RejectionKind::Unavailable),
        ("lost", RejectionKind::Lost),
        ("invalid_key", RejectionKind::InvalidKey),
        ("already_held", RejectionKind::AlreadyHeld),
        ("misconfigured", RejectionKind::Misconfigured),
    ] {
        let response = send(&app, Method::POST, &format!("/{code}")).await;
        let rejection = response.extensions().get::<LockRejection>().unwrap();
        assert_eq!((rejection.code(), rejection.kind()), (code, kind));
        let body: Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!(body["code"], code, "{body}");
    }
}

#[tokio::test]
async fn contention_without_a_holder_asks_for_one_second() {
    let rejection = LockRejection::from(contended(None));
    assert_eq!(problem(rejection).await["retry_after"], 1);
}

/// Nobody holds the lock, and the client may try again at once.
#[tokio::test]
async fn split_votes_are_a_conflict() {
    let key = LockKey::new("order:42").unwrap();
    let rejection = LockRejection::from(LockError::split(key, Votes::default()));
    assert_eq!(rejection.kind(), RejectionKind::Contended);
    let expected = json!({
        "type": "about:blank",
        "title": "Conflict",
        "status": 409,
    "code": "contended",
        "detail": "several requests for this resource came at once; try again later",
        "retry_after": 1,
    });
    assert_eq!(problem(rejection).await, expected);
}

#[tokio::test]
async fn the_status_for_contention_changes_no_other() {
    let locked = |error| LockRejection::from(error).with_contended_status(StatusCode::LOCKED);
    let problem_423 = problem(locked(contended(None))).await;
    assert_eq!(problem_423["status"], 423);
    assert_eq!(problem_423["title"], "Locked");
    assert_eq!(locked(unavailable()).status(), 503);
}

#[tokio::test]
async fn too_few_nodes_and_too_many_waiters_are_a_503() {
    // The grant comes after the end of the lease.
    let late = VotingNode::new(|| {
        std::thread::sleep(Duration::from_millis(20));
        Vote::Agreed
    });
    let timed_out = late.refusal(Duration::from_millis(10)).await;
    assert!(matches!(timed_out, LockError::TimedOut { .. }), "{timed_out}");
    let stopping = [LockError::Draining, LockError::ShutDown];
    for error in [unavailable(), timed_out, too_many_waiters().await].into_iter().chain(stopping) {
        let rejection = LockRejection::from(error);
        assert_eq!(rejection.kind(), RejectionKind::Unavailable);
        assert_eq!(retry_after(&rejection.clone().into_response()), Some("1"));
        assert_eq!(problem(rejection).await["status"], 503);
    }
}

#[tokio::test]
async fn the_response_names_the_parameter_with_an_invalid_value() {
    let render = |template: &str, id| KeyTemplate::new(template).unwrap().render([("id", id)]);
    for (key, detail) in [
        (render("order:{id}", ""), "the parameter id is empty"),
        (
            LockKey::new(format!("order:{}", KeyPart(""))),
            "a value that identifies the resource is empty",
        ),
        (LockKey::new(""), "a value that identifies the resource is empty"),
        (render("order:{id:uuid}", "4711"), "the parameter id is not a UUID"),
        (render("{id}:orders", "redlock"), "the parameter id has a reserved value"),
        (
            LockKey::new("order\n"),
            "a value that identifies the resource contains a control character",
        ),
    ] {
        let rejection = LockRejection::from(key.unwrap_err());
        assert_eq!(rejection.kind(), RejectionKind::InvalidKey);
        assert_eq!(rejection.retry_after(), None);
        assert_eq!(retry_after(&rejection.clone().into_response()), None);
        let problem = problem(rejection).await;
        assert_eq!(problem["status"], 400);
        assert_eq!(problem["detail"], detail);
        assert_eq!(problem.get("retry_after"), None);
    }
}

#[tokio::test]
async fn a_misconfiguration_is_logged_and_hidden_from_the_client() {
    let foreign = VotingNode::new(|| Vote::foreign(ForeignKind::WrongType));
    let foreign = foreign.refusal(Duration::from_secs(5)).await;
    assert!(matches!(foreign, LockError::ForeignKey { .. }), "{foreign}");
    let out_of_range =
        LockManager::in_memory().lock("k").expire(Duration::ZERO).try_acquire().await.unwrap_err();
    let unknown = KeyTemplate::new("{id}").unwrap().render([]).unwrap_err();
    let reserved = LockKey::new("redlock:orders").unwrap_err();
    let mistakes: [&dyn Fn() -> LockRejection; 5] = [
        &LockRejection::missing_manager,
        &|| foreign.clone().into(),
        &|| out_of_range.clone().into(),
        &|| unknown.clone().into(),
        &|| reserved.clone().into(),
    ];
    for rejection in mistakes {
        let logs = Logs::collect();
        assert_eq!(rejection().kind(), RejectionKind::Misconfigured);
        assert_eq!(rejection().retry_after(), None);
        let reason = rejection().diagnostics().to_string();
        until_logged(&logs, "ERROR", &reason, async || {
            assert_eq!(problem(rejection()).await, internal_server_error("misconfigured"));
        })
        .await;
    }
}

/// The diagnostics of the error name the key and the nodes. The response does not.
#[tokio::test]
async fn neither_key_nor_nodes_are_in_a_response() {
    for error in [contended(Some(Duration::from_secs(1))), unavailable()] {
        assert!(error.diagnostics().to_string().contains("order:4711"));
        let response = LockRejection::from(error).into_response();
        let headers = format!("{:?}", response.headers());
        let body = text(response).await;
        for secret in ["order", "4711", "10.0.0.1", "refused"] {
            assert!(!body.contains(secret) && !headers.contains(secret), "{secret}: {body}");
        }
    }
}

#[test]
fn a_rejection_gives_access_to_its_error() {
    let rejection = LockRejection::from(unavailable());
    let error = rejection.lock_error().unwrap();
    assert_eq!(error.votes().unwrap().len(), 1);
    assert_eq!(rejection.to_string(), rejection.detail());
    assert_eq!(rejection.source().unwrap().to_string(), error.to_string());
    assert!(
        LockRejection::from(LostError::new(
            LockKey::new("k").unwrap(),
            LossCause::LeaseEnded,
            Votes::default()
        ))
        .lock_error()
        .is_none()
    );
}

/// Two layers with one key, or a layer and the attribute with one key, are a mistake in the program.
#[tokio::test]
async fn a_second_acquisition_by_the_same_request_is_a_500_and_the_log_says_what_to_do() {
    let logs = Logs::collect();
    let locks = LockManager::in_memory();
    let second_acquisition = scope(async {
        let _guard = hold(&locks, "order:4711").await;
        locks.lock("order:4711").wait_forever().acquire().await.unwrap_err()
    });
    let error = second_acquisition.await;
    let rejection = LockRejection::from(error.clone());
    assert_eq!(rejection.kind(), RejectionKind::AlreadyHeld);
    assert_eq!(rejection.retry_after(), None);
    let line = "the lock is already held by the same request; lock order:4711; set `reentrant` on the inner";
    until_logged(&logs, "ERROR", line, async || {
        assert_eq!(problem(error.clone().into()).await, internal_server_error("already_held"));
    })
    .await;
    // For logs in JSON.
    assert!(logs.count("ERROR", " lock=\"order:4711\"") > 0, "{:?}", logs.lines());
}

#[tokio::test]
async fn a_lost_lock_is_a_503_that_says_that_the_handler_was_stopped() {
    let logs = Logs::collect();
    let votes: Votes = [("10.0.0.1:6379".into(), Some(Vote::Agreed))].into_iter().collect();
    let error = LostError::new(key(), LossCause::LeaseEnded, votes);
    let rejection = LockRejection::from(error.clone());
    assert_eq!(rejection.kind(), RejectionKind::Lost);
    assert_eq!(rejection.retry_after(), Some(Duration::from_secs(1)));
    let line = "a request was stopped: the lock was lost: its lease ended; lock order:4711; 10.0.0.1:6379 agreed";
    until_logged(&logs, "WARN", line, async || {
        assert_eq!(
            problem(error.clone().into()).await,
            json!({
                "type": "about:blank",
                "title": "Service Unavailable",
                "status": 503,
"code": "lost",
                "detail": "the request was stopped, because its lock for this resource was lost; a part of \
                           it may be done",
                "retry_after": 1,
            })
        );
    })
    .await;
}

#[test]
fn missing_nodes_are_logged_as_a_warning_and_contention_is_not() {
    let logs = Logs::collect();
    let _ = LockRejection::from(contended(None)).into_response();
    assert_eq!((logs.count("WARN", ""), logs.count("ERROR", "")), (0, 0));
    // No other test names this node, because only one refusal per second and node is logged as a warning.
    let _ = LockRejection::from(unavailable_on("10.0.0.2:6379")).into_response();
    assert_eq!(logs.count("WARN", "10.0.0.2:6379 failed"), 1);
}

#[tokio::test]
async fn a_handler_can_return_a_rejection() {
    async fn settle(State(locks): State<LockManager>) -> Result<(), LockRejection> {
        let guard = locks.lock("settlement").try_acquire().await?;
        let _ = guard.release().await;
        Ok(())
    }

    let (locks, _node) = memory().await;
    let app = Router::new().route("/", on_post(settle)).with_state(locks.clone());
    assert_eq!(post(&app, "/").await, 200);
    let _guard = hold(&locks, "settlement").await;
    assert_eq!(post(&app, "/").await, 409);
}

#[tokio::test]
async fn a_middleware_around_the_router_finds_the_rejection_in_the_response() {
    async fn in_our_words(response: Response) -> Response {
        let rejection = response.extensions().get::<LockRejection>();
        match rejection.and_then(LockRejection::lock_error) {
            Some(LockError::Contended { key, .. }) => format!("wait for {key}").into_response(),
            _ => response,
        }
    }

    let (locks, _node) = memory().await;
    let app = Router::new()
        .route("/", on_post(|| async { "served" }).route_layer(layer(&locks, "k")))
        .layer(ScopeLayer::new(&locks))
        .layer(axum::middleware::map_response(in_our_words));
    assert_eq!(text(send(&app, Method::POST, "/").await).await, "served");
    let _guard = hold(&locks, "k").await;
    assert_eq!(text(send(&app, Method::POST, "/").await).await, "wait for k");
}
