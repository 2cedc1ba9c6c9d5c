//! The key that the layer makes from the path of a request.

use axum::Router;
use axum::routing::post as on_post;
use http::Method;
use redlock_logs::Logs;

use super::app;
use crate::support::{hold, layer, memory, post, send, text};

/// One resource, one key: all spellings of a number have the same key.
#[tokio::test]
async fn a_typed_placeholder_gives_one_key_for_one_value() {
    let (locks, node) = memory().await;
    let order = app("order:{id:u64}", &locks, &node);
    let _guard = hold(&locks, "order:42").await;
    for id in ["42", "042", "+42", "%34%32"] {
        assert_eq!(post(&order, &format!("/orders/{id}/pay")).await, 409, "{id}");
    }

    let coupon = app("coupon:{id:lower}", &locks, &node);
    let _guard = hold(&locks, "coupon:sale").await;
    assert_eq!(post(&coupon, "/orders/SaLE/pay").await, 409);

    let session = app("session:{id:uuid}", &locks, &node);
    let _guard = hold(&locks, "session:67e55044-10b1-426f-9247-bb680e5fe0c8").await;
    assert_eq!(post(&session, "/orders/67E5504410B1426F9247BB680E5FE0C8/pay").await, 409);
}

/// Different values, different keys.
#[tokio::test]
async fn a_value_cannot_reach_into_the_next_part_of_the_key() {
    let (locks, _node) = memory().await;
    let app =
        Router::new().route("/{a}/{b}", on_post(|| async {}).route_layer(layer(&locks, "{a}:{b}")));

    let _guard = hold(&locks, "x%3Ay:z").await;
    assert_eq!(post(&app, "/x:y/z").await, 409);
    assert_eq!(post(&app, "/x/y:z").await, 200);
}

#[tokio::test]
async fn a_wildcard_stands_for_the_whole_rest_of_the_path() {
    let (locks, _node) = memory().await;
    let app = Router::new()
        .route("/files/{*path}", on_post(|| async {}).route_layer(layer(&locks, "file:{path}")));

    let _guard = hold(&locks, "file:a%2Fb").await;
    assert_eq!(post(&app, "/files/a/b").await, 409);
    assert_eq!(post(&app, "/files/a").await, 200);
}

#[tokio::test]
async fn a_value_that_gives_no_key_is_a_bad_request() {
    let (locks, node) = memory().await;
    let typed = app("order:{id:u64}", &locks, &node);
    let response = send(&typed, Method::POST, "/orders/forty/pay").await;
    assert_eq!(response.status(), 400);
    assert!(text(response).await.contains("the parameter id is not a whole number"));

    let plain = app("order:{id}", &locks, &node);
    let response = send(&plain, Method::POST, "/orders/%ff/pay").await;
    assert_eq!(response.status(), 400);
    assert!(text(response).await.contains("a path parameter is not valid UTF-8"));
    assert_eq!(node.len(), 0);
}

#[tokio::test]
async fn a_placeholder_that_the_route_lacks_is_a_server_error_with_the_names_in_the_log() {
    let (locks, node) = memory().await;
    let logs = Logs::collect();
    let app = app("order:{idd}", &locks, &node);

    let response = send(&app, Method::POST, "/orders/42/pay").await;
    assert_eq!(response.status(), 500);
    assert!(!text(response).await.contains("idd"));
    assert_eq!(logs.count("ERROR", "{idd}"), 1);
    assert_eq!(logs.count("ERROR", "available: {id}"), 1);
}

#[tokio::test]
async fn a_parameter_name_that_occurs_twice_is_a_server_error() {
    let (locks, _node) = memory().await;
    let inner =
        Router::new().route("/{id}", on_post(|| async {}).route_layer(layer(&locks, "order:{id}")));
    let app = Router::new().nest_service("/{id}", inner);

    let logs = Logs::collect();
    assert_eq!(post(&app, "/1/2").await, 500);
    assert_eq!(logs.count("ERROR", "could be one of several path parameters"), 1);
}
