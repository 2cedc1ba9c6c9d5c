//! The contract of a store of answers.

use std::time::Duration;

use redlock_axum::{AnswerClaim, AnswerId, Answers, MemoryAnswers, PostgresAnswers, RedisAnswers};
use redlock_tests::{PostgresServer, Servers, skip};

use super::postgres_answers;

async fn memory_store() -> Option<(MemoryAnswers, ())> {
    Some((MemoryAnswers::new(), ()))
}

async fn redis_store() -> Option<(RedisAnswers, Servers)> {
    let servers = Servers::start(1).await;
    let url = servers.urls().remove(0);
    Some((RedisAnswers::connect(&url).await.unwrap().prefix("shop:"), servers))
}

async fn postgres_store() -> Option<(PostgresAnswers, PostgresServer)> {
    match PostgresServer::start().await {
        Ok(server) => Some((postgres_answers(&server.url()).await, server)),
        Err(reason) => {
            skip(&reason);
            None
        }
    }
}

mod memory {
    redlock_axum::answers_tests!(super::memory_store);
}

mod redis {
    redlock_axum::answers_tests!(super::redis_store);
}

mod postgres {
    redlock_axum::answers_tests!(super::postgres_store);
}

/// The names on the server, and nothing else.
#[tokio::test]
async fn an_answer_in_redis_is_one_string_with_a_time_to_live() {
    let (store, servers) = redis_store().await.unwrap();
    let id = AnswerId::new("customer:7", "a b");
    let keep = Duration::from_secs(60);
    let claim = AnswerClaim::new(7, [1; 32].into(), keep);
    store.claim(&id, claim).await.unwrap();
    assert!(store.store(&id, 7, "x".into(), keep).await.unwrap());
    let mut probe = servers[0].probe().await;
    assert_eq!(probe.keys().await, ["shop:redlock:answer:customer%3A7:a%20b"]);
    let ttl: i64 = probe.command(["PTTL", "shop:redlock:answer:customer%3A7:a%20b"]).await;
    assert!((1..=60_000).contains(&ttl), "{ttl}");
    // As the page of the names says.
    let page = include_str!("../../redlock-core/src/wire.md");
    assert!(page.contains("`<prefix>redlock:answer:<scope>:<key>`"));
    let value: Vec<u8> = probe.command(["GET", "shop:redlock:answer:customer%3A7:a%20b"]).await;
    assert_eq!(value, [b"0000000000000007", &[1; 32][..], b"x"].concat());
    let shared = AnswerId::new("", "a");
    store.claim(&shared, claim).await.unwrap();
    assert!(probe.keys().await.contains(&"shop:redlock:answer:a".to_owned()));
}

/// The rights that the page `production` names, and no others: without one of them, the store cannot be used.
#[tokio::test]
async fn the_rights_of_the_page_suffice_for_answers_in_redis_and_none_is_too_much() {
    let page = include_str!("../../redlock-axum/docs/production.md");
    let rights = page.lines().find(|line| line.contains("redlock:answer:")).unwrap();
    let rights: Vec<_> =
        rights.split_whitespace().skip("ACL SETUSER app".split(' ').count()).collect();
    let servers = Servers::start(1).await;
    let mut probe = servers[0].probe().await;
    let url = format!("redis://app:answers-password@127.0.0.1:{}", servers[0].port());
    let without = rights.iter().filter(|right| right.starts_with(['+', '~'])).map(Some);
    for without in std::iter::once(None).chain(without) {
        let kept = rights.iter().filter(|right| Some(*right) != without);
        let kept = kept.map(|right| if *right == ">secret" { ">answers-password" } else { right });
        let user = ["ACL", "SETUSER", "app", "reset"].into_iter().chain(kept);
        probe.command::<()>(user.collect::<Vec<_>>()).await;
        assert_eq!(is_usable(&url).await, without.is_none(), "{without:?}");
    }
}

/// Returns whether a store with the prefix of the page can do everything.
async fn is_usable(url: &str) -> bool {
    let (id, keep) = (AnswerId::new("7", "a"), Duration::from_secs(60));
    let Ok(store) = RedisAnswers::connect(url).await else { return false };
    let store = store.prefix("lock:");
    let claim = |number| store.claim(&id, AnswerClaim::new(number, [1; 32].into(), keep));
    claim(1).await.is_ok()
        && store.forget(&id, 1).await.is_ok()
        && claim(2).await.is_ok()
        && matches!(store.store(&id, 2, "x".into(), Duration::from_millis(1)).await, Ok(true))
        && store.load(&id).await.is_ok()
}

#[tokio::test]
async fn a_store_that_cannot_be_used_says_why_without_the_password() {
    redlock_tests::Logs::collect();
    for (url, words) in [
        ("redis://app:pa55word-of-answers@127.0.0.1:1", "127.0.0.1:1"),
        ("redis+sentinel://app:pa55word-of-answers@127.0.0.1/shop", "one server"),
        ("http://app:pa55word-of-answers@127.0.0.1", "cannot be used"),
    ] {
        let error = RedisAnswers::connect(url).await.unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains("pa55word"), "{url}: {error}");
    }
    let url = "postgres://app:pa55word-of-answers@127.0.0.1:1/shop";
    let error = PostgresAnswers::connect(url).await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1") && !error.contains("pa55word"), "{error}");
    let Ok(server) = PostgresServer::start().await else { return skip("PostgreSQL is missing") };
    let admin = server.admin().await;
    admin.batch_execute("drop table locks.redlock_answer").await.unwrap();
    let error = PostgresAnswers::connect(&server.url()).await.unwrap_err().to_string();
    assert!(error.contains("postgres_answers_schema"), "{error}");
}
