//! The example `shop`: two copies of a service with one Redis.

use redlock_tests::{RedisServer, Service, eventually};
use reqwest::{Client, StatusCode};

use super::walkthrough::Walkthrough;
use super::{OTHER, mistake};
use crate::{SOON, decided, post, start, until_logged};

const POLICIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/shop/policies.toml");

/// Follows the commands of the README, on the same two copies.
const MORE: &str = r#"
```console
$ curl -X POST 127.0.0.1:3001/articles/hat/orders
{"sku":"hat","left":9}
$ curl -X POST 127.0.0.1:3001/articles/boat/orders
{"error":{"code":"unknown_article","message":"there is no such article"}}
$ curl -X POST '127.0.0.1:3000/articles/hat/orders?hold_ms=4000' & sleep 1; curl -X PUT '127.0.0.1:3001/articles/hat?left=3'
{"error":{"code":"busy",..}}
$ curl -X POST 127.0.0.1:3001/articles/hat/refill
{"sku":"hat","left":10}
$ curl '127.0.0.1:3000/export?hold_ms=2000' & sleep 1; curl 127.0.0.1:3001/export
{"error":{"code":"busy",..}}
```"#;

async fn copy(redis: &RedisServer) -> Service {
    start("shop", &[("LOCKS_URLS", redis.url()), ("POLICIES", POLICIES.to_owned())]).await
}

#[tokio::test]
async fn the_example_shop_answers_as_its_readme_says() {
    let mut walkthrough = Walkthrough::run("shop").await.unwrap();
    walkthrough.follow(MORE).await;
    assert_eq!(walkthrough.background().await, r#"{"sku":"shoe","left":9}"#);
    assert_eq!(walkthrough.background().await, r#"{"sku":"hat","left":9}"#);
    let export = walkthrough.background().await;
    assert!(export.starts_with("hat,") && export.ends_with("\nshoe,9"), "{export}");

    walkthrough.redis.kill();
    let url = walkthrough.service_at(OTHER).url("/articles/shoe/orders");
    let response = Client::new().post(url).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    walkthrough.promises(&response.text().await.unwrap());
    walkthrough.stop().await;
}

#[tokio::test]
async fn an_order_of_a_process_that_was_killed_is_free_when_its_lease_is_over() {
    let redis = RedisServer::start().await;
    let (killed, other) = (copy(&redis).await, copy(&redis).await);
    let order = Client::new().post(killed.url("/articles/shoe/orders?hold_ms=60000"));
    let order = tokio::spawn(decided(order));
    until_logged(&killed, "order: shoe").await;
    killed.kill();
    assert!(order.await.unwrap().is_err());
    let url = other.url("/articles/shoe/orders");
    let response = post(url.clone()).await;
    assert_eq!(response.status(), StatusCode::CONFLICT);
    assert!(response.headers().contains_key("retry-after"));
    eventually("the lock is free", SOON, async || {
        (post(url.clone()).await.status() == StatusCode::OK).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_example_shop_starts_without_redis_and_ends_at_sigterm() {
    let mut shop = start("shop", &[("POLICIES", POLICIES.to_owned())]).await;
    assert!(shop.log().contains("in the memory of this process"), "{}", shop.log());
    assert_eq!(post(shop.url("/articles/shoe/orders")).await.status(), StatusCode::OK);
    assert!(shop.terminate().await.success(), "{}", shop.log());
}

#[test]
fn the_example_shop_prints_the_mistake_in_its_settings() {
    for (name, value, message) in [
        (
            "LOCKS_EXPIRES",
            "5",
            "the environment variable LOCKS_EXPIRES is unknown; known are LOCKS_URLS, LOCKS_PREFIX",
        ),
        ("LOCKS_URLS", "127.0.0.1", "URL 1 in the environment variable LOCKS_URLS is invalid: "),
        ("POLICIES", "no-such-file.toml", "no-such-file.toml: No such file"),
    ] {
        let error = mistake("shop", &[("POLICIES", POLICIES), (name, value)]);
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn the_example_shop_prints_the_mistake_in_its_policies() {
    let policies = include_str!("../../../examples/shop/policies.toml");
    for (from, to, message) in [
        (
            "/articles/{sku}",
            "/article/{sku}",
            "lock policy 1 (/article/{sku}): the application has no such route",
        ),
        ("wait_time", "wait_tme", "unknown field `wait_tme`"),
        (
            "{sku:lower}",
            "{number}",
            "the key has the placeholder {number}, but the route has {sku}",
        ),
        // A file without a mistake is accepted.
        ("10m", "10m", "in use"),
    ] {
        assert!(policies.contains(from), "{from}");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("shop.toml");
        std::fs::write(&file, policies.replace(from, to)).unwrap();
        let error = mistake("shop", &[("POLICIES", file.to_str().unwrap())]);
        assert!(error.contains(message), "{error}");
    }
}
