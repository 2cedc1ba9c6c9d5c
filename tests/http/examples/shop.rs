//! The example `shop`: two copies of a service with one Redis.

use std::process::Command;
use std::time::Duration;

use redlock_tests::{RedisServer, Service, eventually};
use reqwest::{Client, Response};

use crate::walkthrough::Walkthrough;
use crate::{FIRST, OTHER};

const SHOP: &str = env!("CARGO_BIN_EXE_shop");
const POLICIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/shop/policies.toml");
const SOON: Duration = Duration::from_secs(30);

async fn copy(redis: &RedisServer) -> Service {
    let environment = [("LOCKS_URLS", redis.url()), ("POLICIES", POLICIES.to_owned())];
    Service::start(SHOP, &environment).await
}

async fn post(url: String) -> Response {
    Client::new().post(url).send().await.unwrap()
}

#[tokio::test]
async fn the_example_shop_answers_as_its_readme_says() {
    let mut walkthrough = Walkthrough::run("shop", SHOP).await.unwrap();
    assert_eq!(walkthrough.background().await, r#"{"sku":"shoe","left":9}"#);
    assert_eq!(walkthrough.background().await, r#"{"sku":"hat","left":9}"#);
    let export = walkthrough.background().await;
    assert!(export.starts_with("hat,") && export.ends_with("\nshoe,9\n"), "{export}");
    walkthrough.stop(FIRST).await;

    walkthrough.redis.kill();
    let url = walkthrough.service_at(OTHER).url("/articles/shoe/orders");
    let response = post(url).await;
    assert_eq!(response.status(), 503);
    walkthrough.promises(&response.text().await.unwrap());
    walkthrough.stop(OTHER).await;
}

#[tokio::test]
async fn an_order_of_a_process_that_was_killed_is_free_when_its_lease_is_over() {
    let redis = RedisServer::start().await;
    let (killed, other) = (copy(&redis).await, copy(&redis).await);
    let order =
        tokio::spawn(Client::new().post(killed.url("/articles/shoe/orders?hold_ms=60000")).send());
    eventually("the order has begun", SOON, async || {
        killed.log().contains("order: shoe").then_some(())
    })
    .await;
    killed.kill();
    assert!(order.await.unwrap().is_err());
    let url = other.url("/articles/shoe/orders");
    let response = post(url.clone()).await;
    assert_eq!(response.status(), 409);
    assert!(response.headers().contains_key("retry-after"));
    eventually("the lock is free", SOON, async || {
        (post(url.clone()).await.status() == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_example_shop_starts_without_redis_and_ends_at_sigterm() {
    let mut shop = Service::start(SHOP, &[("POLICIES", POLICIES.to_owned())]).await;
    assert!(shop.log().contains("in the memory of this process"), "{}", shop.log());
    assert_eq!(post(shop.url("/articles/shoe/orders")).await.status(), 200);
    assert!(shop.terminate().await.success(), "{}", shop.log());
}

#[test]
fn the_example_shop_prints_the_mistake_in_its_settings() {
    // Another process may have the port, so that the program ends even if it accepts the settings.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for (name, value, message) in [
        (
            "LOCKS_EXPIRES",
            "5",
            "the environment variable LOCKS_EXPIRES is unknown (did you mean LOCKS_EXPIRE?)",
        ),
        ("LOCKS_URLS", "127.0.0.1", "URL 1 in the environment variable LOCKS_URLS is invalid: "),
        ("POLICIES", "no-such-file.toml", "no-such-file.toml: No such file"),
    ] {
        let output = Command::new(SHOP)
            .env("LISTEN", taken.local_addr().unwrap().to_string())
            .env("POLICIES", POLICIES)
            .env(name, value)
            .output()
            .unwrap();
        assert!(!output.status.success(), "{name}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.starts_with(message), "{error}");
    }
}
