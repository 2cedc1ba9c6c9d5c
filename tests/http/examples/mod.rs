//! Each example does what examples/README.md says: a test runs the commands of its section, and compares the
//! output with the text. More tests of `index` are in `http/services.rs`, of `fencing` in `interop/postgres.rs`,
//! and of Redisson itself in `interop/redisson.rs`.

mod leader;
mod modes;
mod renewal;
mod shop;
mod walkthrough;

use std::process::{Command, Output};

use redlock_tests::{RedisServer, example, find_secret, skip};
use walkthrough::Walkthrough;

use crate::start;

const FIRST: &str = "127.0.0.1:3000";
const OTHER: &str = "127.0.0.1:3001";

#[tokio::test]
async fn the_example_index_answers_as_its_readme_says() {
    let walkthrough = Walkthrough::run("index").await.unwrap();
    walkthrough.ends_with(&[r#"{"order":42,"paid":true}"#]).await;
}

#[tokio::test]
async fn the_example_board_answers_as_its_readme_says() {
    let walkthrough = Walkthrough::run("board").await.unwrap();
    walkthrough.ends_with(&["order 42 is paid"]).await;
}

#[tokio::test]
async fn the_example_fencing_answers_as_its_readme_says() {
    let walkthrough = match Walkthrough::run("fencing").await {
        Ok(walkthrough) => walkthrough,
        Err(why) => return skip(&why),
    };
    walkthrough.promises("somebody else was faster");
    walkthrough.ends_with(&["somebody else was faster"]).await;
}

#[tokio::test]
async fn the_example_transactions_answers_as_its_readme_says() {
    let walkthrough = match Walkthrough::run("transactions").await {
        Ok(walkthrough) => walkthrough,
        Err(why) => return skip(&why),
    };
    walkthrough.promises("here is your ticket");
    walkthrough.ends_with(&["here is your ticket"]).await;
}

#[tokio::test]
async fn the_example_payments_answers_as_its_readme_says() {
    let walkthrough = Walkthrough::run("payments").await.unwrap();
    walkthrough.ends_with(&["order 1: shoe"]).await;
}

/// The section shows the hash that a request writes. A hash as Redisson writes it refuses a request.
#[tokio::test]
async fn the_example_redisson_answers_as_its_readme_says() {
    let mut walkthrough = Walkthrough::run("redisson").await.unwrap();
    let hash_of_redisson = r#"
```console
$ redis-cli -p 7001 HSET account:43 8743c9c0-0795-4907-87fd-6c719a6b4586:1 1
(integer) 1
$ redis-cli -p 7001 PEXPIRE account:43 60000
(integer) 1
$ curl -X POST 127.0.0.1:3000/accounts/43/withdraw
{..,"status":409,..}
$ redis-cli -p 7001 DEL account:43
(integer) 1
$ curl -X POST 127.0.0.1:3000/accounts/43/withdraw
withdrawn from account 43
```"#;
    walkthrough.follow(hash_of_redisson).await;
    let mut probe = walkthrough.redis.probe().await;
    let fields: Vec<String> = probe.command(["HKEYS", "account:42"]).await;
    let [owner, mode] = &*fields else { panic!("{fields:?}") };
    assert_eq!(mode, "mode");
    // A UUID and a thread number, as Redisson writes it.
    assert!(owner.len() == 38 && owner.ends_with(":1"), "an owner of {} bytes", owner.len());
    walkthrough.ends_with(&["withdrawn from account 42"]).await;
}

/// Runs an example that must end, and returns its output. Another process may have its port, so that it ends even if it
/// accepts its settings.
fn run(name: &str, settings: &[(&str, &str)]) -> Output {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut process = Command::new(example(name));
    process.env_remove("LOCKS_URLS").env_remove("DATABASE_URL");
    process.env("LISTEN", taken.local_addr().unwrap().to_string());
    process.envs(settings.iter().copied()).output().unwrap()
}

/// Runs an example that must end with an error, and returns the error.
fn mistake(name: &str, settings: &[(&str, &str)]) -> String {
    let output = run(name, settings);
    assert!(!output.status.success(), "{name} {settings:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(find_secret(&error).is_none(), "{error}");
    error
}

#[test]
fn the_examples_print_which_server_they_need() {
    for (name, message) in [
        ("redisson", "LOCKS_URLS is not set"),
        ("fencing", "DATABASE_URL is not set"),
        ("transactions", "DATABASE_URL is not set"),
    ] {
        // Without the quotes that `Debug` adds.
        let error = mistake(name, &[]);
        assert!(error.starts_with(message), "{error}");
    }
}

/// `fencing` reads its URLs in the same way, but needs a database.
#[tokio::test]
async fn the_examples_accept_a_password_with_a_comma() {
    let redis = RedisServer::options().password("half,other-half").start().await;
    let environment =
        [("LOCKS_URLS", format!("redis://:half,other-half@127.0.0.1:{}", redis.port()))];
    for name in ["index", "modes", "payments", "renewal", "redisson"] {
        // Ends with a panic if the program does not connect.
        start(name, &environment).await;
    }
}
