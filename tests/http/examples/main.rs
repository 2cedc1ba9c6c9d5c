//! Each example does what examples/README.md says: a test runs the commands of its section, and compares the
//! output with the text. More tests of `index` are in `http/services.rs`, of `fencing` in `interop/postgres.rs`,
//! and of Redisson itself in `interop/redisson.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod renewal;
mod shared;
mod shop;
mod walkthrough;

use std::process::{Command, Output};

use redlock_tests::{RedisServer, Service, find_secret};
use walkthrough::Walkthrough;

const FIRST: &str = "127.0.0.1:3000";
const OTHER: &str = "127.0.0.1:3001";

#[tokio::test]
async fn the_example_index_answers_as_its_readme_says() {
    let mut walkthrough = Walkthrough::run("index", env!("CARGO_BIN_EXE_index")).await.unwrap();
    assert_eq!(walkthrough.background().await, "index\n");
    assert_eq!(walkthrough.background().await, r#"{"order":42,"paid":true}"#);
    walkthrough.stop(FIRST).await;
}

#[tokio::test]
async fn the_example_policies_answers_as_its_readme_says() {
    let program = env!("CARGO_BIN_EXE_policies");
    let mut walkthrough = Walkthrough::run("policies", program).await.unwrap();
    assert_eq!(walkthrough.background().await, "order 42 is paid\n");
    assert_eq!(walkthrough.background().await, "the stock of shoe is changed\n");
    walkthrough.stop(FIRST).await;
}

#[tokio::test]
async fn the_example_cart_answers_as_its_readme_says() {
    let mut walkthrough = Walkthrough::run("cart", env!("CARGO_BIN_EXE_cart")).await.unwrap();
    walkthrough.promises("5 articles are ordered");
    assert_eq!(walkthrough.background().await, "5 articles are ordered\n");
    let mut probe = walkthrough.redis.probe().await;
    assert_eq!(probe.keys().await, [""; 0], "a lock was not released");
    walkthrough.stop(FIRST).await;
    walkthrough.stop(OTHER).await;
}

/// Runs the example `policies` with a changed copy of its file, and returns its output.
fn with_changed_policies(from: &str, to: &str) -> Output {
    let policies = include_str!("../../../examples/policies.toml");
    assert!(policies.contains(from), "{from}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shop.toml");
    std::fs::write(&file, policies.replace(from, to)).unwrap();
    // Another process may have the port, so that the program ends even if it accepts the file.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    Command::new(env!("CARGO_BIN_EXE_policies"))
        .env("POLICIES", file)
        .env_remove("REDIS_URLS")
        .env("LISTEN", taken.local_addr().unwrap().to_string())
        .output()
        .unwrap()
}

#[test]
fn the_example_policies_prints_the_mistake_in_its_file() {
    for (from, to, message) in [
        (
            "/orders/{id}/pay",
            "/order/{id}/pay",
            "shop.toml: lock policy 1 (/order/{id}/pay): the application has no such route",
        ),
        ("wait_time", "wait_tme", "unknown field `wait_tme`"),
        ("{id:u64}", "{number}", "the key has the placeholder {number}, but the route has {id}"),
    ] {
        let output = with_changed_policies(from, to);
        assert!(!output.status.success(), "{from}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(message), "{error}");
    }
    let unchanged = with_changed_policies("30s", "30s");
    let error = String::from_utf8(unchanged.stderr).unwrap();
    assert!(error.contains("in use"), "a file without a mistake is accepted: {error}");
}

#[tokio::test]
async fn the_example_fencing_answers_as_its_readme_says() {
    let mut walkthrough = match Walkthrough::run("fencing", env!("CARGO_BIN_EXE_fencing")).await {
        Ok(walkthrough) => walkthrough,
        Err(why) => return redlock_tests::skip(&why),
    };
    walkthrough.promises("somebody else was faster");
    assert_eq!(walkthrough.background().await, "somebody else was faster\n");
    walkthrough.stop(FIRST).await;
}

/// The section itself shows that a hash at the key refuses a request, and that a request writes one.
#[tokio::test]
async fn the_example_redisson_answers_as_its_readme_says() {
    let program = env!("CARGO_BIN_EXE_redisson");
    let mut walkthrough = Walkthrough::run("redisson", program).await.unwrap();
    let mut probe = walkthrough.redis.probe().await;
    let owners: Vec<String> = probe.command(["HKEYS", "account:42"]).await;
    let [owner] = &*owners else { panic!("{owners:?}") };
    // A UUID and a thread number, as Redisson writes it.
    assert!(owner.len() == 38 && owner.ends_with(":1"), "an owner of {} bytes", owner.len());
    assert_eq!(walkthrough.background().await, "withdrawn from account 42\n");
    assert_eq!(probe.keys().await, [""; 0], "a lock was not released");
    walkthrough.stop(FIRST).await;
}

#[test]
fn the_examples_print_which_server_they_need() {
    for (program, variable) in [
        (env!("CARGO_BIN_EXE_redisson"), "REDIS_URLS is not set"),
        (env!("CARGO_BIN_EXE_fencing"), "DATABASE_URL is not set"),
    ] {
        let mut command = Command::new(program);
        let output = command.env_remove("REDIS_URLS").env_remove("DATABASE_URL").output().unwrap();
        assert!(!output.status.success(), "{program}");
        let error = String::from_utf8(output.stderr).unwrap();
        // Without the quotes that `Debug` adds.
        assert!(error.starts_with(variable), "{error}");
        assert!(find_secret(&error).is_none(), "{error}");
    }
}

/// `fencing` reads its URLs in the same way, but needs a database.
#[tokio::test]
async fn the_examples_accept_a_password_with_a_comma() {
    let redis = RedisServer::options().password("half,other-half").start().await;
    let environment = [
        ("REDIS_URLS", format!("redis://:half,other-half@127.0.0.1:{}", redis.port())),
        ("POLICIES", concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/policies.toml").to_owned()),
    ];
    for program in [
        env!("CARGO_BIN_EXE_index"),
        env!("CARGO_BIN_EXE_policies"),
        env!("CARGO_BIN_EXE_cart"),
        env!("CARGO_BIN_EXE_catalogue"),
        env!("CARGO_BIN_EXE_exports"),
        env!("CARGO_BIN_EXE_renewal"),
        env!("CARGO_BIN_EXE_redisson"),
    ] {
        // Ends with a panic if the program does not connect.
        Service::start(program, &environment).await;
    }
}

#[tokio::test]
async fn the_example_testing_answers_as_its_readme_says() {
    let program = env!("CARGO_BIN_EXE_testing");
    let mut walkthrough = Walkthrough::run("testing", program).await.unwrap();
    assert_eq!(walkthrough.background().await, "the report is sent\n");
    walkthrough.stop(FIRST).await;
}
