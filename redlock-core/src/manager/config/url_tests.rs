//! URLs of servers and of memory in a configuration.

use redlock_logs::Logs;

use super::tests::from_variable;
use super::{LockManagerConfig, NodeUrl};
use crate::MemoryNode;
use crate::error::{ConfigError, ConnectError};

#[test]
fn urls_are_split_where_a_url_begins() {
    for (text, urls) in [
        ("", &[] as &[&str]),
        (" \n", &[]),
        ("redis://a", &["redis://a"]),
        ("redis://a,rediss://b:7000/1", &["redis://a", "rediss://b:7000/1"]),
        (" redis://a ,\n  valkey://b ", &["redis://a", "valkey://b"]),
        ("unix:///run/a.sock,unix:/run/b.sock", &["unix:///run/a.sock", "unix:/run/b.sock"]),
        (
            "redis+sentinel://h1:26379,h2:26379/service",
            &["redis+sentinel://h1:26379,h2:26379/service"],
        ),
        ("redis-cluster://h1,h2,redis://a", &["redis-cluster://h1,h2", "redis://a"]),
        (
            "redis+sentinel://a,b/service,redis-cluster://c,d,redis://e",
            &["redis+sentinel://a,b/service", "redis-cluster://c,d", "redis://e"],
        ),
        (
            "rediss-cluster://:p@c,d,unix:/e,valkeys://f",
            &["rediss-cluster://:p@c,d", "unix:/e", "valkeys://f"],
        ),
        ("redis://app:a,b@a,redis://:,@b", &["redis://app:a,b@a", "redis://:,@b"]),
        ("redis://a,memory:", &["redis://a", "memory:"]),
        ("memory: ,redis://a", &["memory:", "redis://a"]),
        ("redis://:a,memory:b@a", &["redis://:a,memory:b@a"]),
        ("redis://a,10.0.0.2", &["redis://a,10.0.0.2"]),
        ("redis://a,", &["redis://a", ""]),
        (",redis://a", &["", "redis://a"]),
        ("redis://a, ,redis://b", &["redis://a", "", "redis://b"]),
        (",", &["", ""]),
    ] {
        assert_eq!(LockManagerConfig::split_urls(text), urls, "{text:?}");
    }
}

#[test]
fn a_wrong_url_is_an_error_with_its_position_and_without_the_url() {
    for (value, position, words) in [
        ("redis://a,redis://:s3cret@h/x,redis://b", 2, "atabase"),
        ("redis://:s3cret@a,", 2, "empty"),
        ("redis://:s3cret@a,b", 1, "comma"),
        ("redis://:s3cret@a,memory:", 2, "only node"),
        ("memory:,memory:", 1, "only node"),
    ] {
        let error = from_variable("LOCKS_URLS", value).unwrap_err();
        if cfg!(feature = "redis") {
            let start =
                format!("URL {position} in the environment variable LOCKS_URLS is invalid: ");
            assert!(error.to_string().starts_with(&start), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(matches!(error, ConfigError::InvalidUrl { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    }
}

#[tokio::test]
async fn the_url_of_memory_is_a_node_of_this_process_with_a_warning() {
    let logs = Logs::collect();
    let locks = from_variable("LOCKS_URLS", "memory:").unwrap().connect().await.unwrap();
    assert_eq!(logs.count("WARN", "in the memory of this process"), 1);
    let guard = locks.lock("order:42").try_acquire().await.unwrap();
    assert!(locks.lock("order:42").try_acquire().await.unwrap_err().is_contended());
    guard.release().await.unwrap();
}

#[test]
fn nothing_may_follow_the_scheme_of_memory() {
    let text = from_variable("LOCKS_URLS", "memory://s3cret").unwrap_err().to_string();
    assert!(text.contains("nothing may follow memory:") && !text.contains("s3cret"), "{text}");
}

/// Two of these nodes would be a quorum of three, which other processes do not see.
#[tokio::test]
async fn the_url_of_memory_must_be_the_only_node() {
    let mut config = LockManagerConfig::new();
    config.urls = ["memory:", "memory:", "redis://127.0.0.1"].map(NodeUrl::from).to_vec();
    let error = config.connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::InvalidUrl { position: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("only node"), "{error}");

    config.urls.truncate(1);
    let error = config.builder().memory_node(&MemoryNode::new()).connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::InvalidUrl { position: 1, .. }), "{error:?}");
}

#[test]
fn the_url_of_a_store_names_the_feature_that_it_needs() {
    for (url, is_there, feature) in [
        ("postgres://app:s3cret@db/shop", cfg!(feature = "postgres"), "`postgres`"),
        ("zookeeper://app:s3cret@zoo", cfg!(feature = "zookeeper"), "`zookeeper`"),
    ] {
        let text = from_variable("LOCKS_URLS", url).err().map(|error| error.to_string());
        let names_it = text.as_ref().is_some_and(|text| text.contains(feature));
        assert_eq!(names_it, !is_there, "{text:?}");
        assert!(!format!("{text:?}").contains("s3cret"), "{text:?}");
    }
}

#[test]
fn an_unknown_scheme_is_answered_by_those_of_all_stores() {
    for (url, words) in [
        ("http://:s3cret@a", "its scheme is unknown"),
        ("redisx://:s3cret@a", "its scheme is unknown"),
        ("mysql://app:s3cret@db/shop", "its scheme is unknown"),
        ("10.0.0.1:6379", "it has no scheme"),
        ("s3cret", "it has no scheme"),
        ("memoryx:s3cret", "it has no scheme"),
    ] {
        let text = from_variable("LOCKS_URLS", url).unwrap_err().to_string();
        assert!(text.contains(words) && !text.contains("s3cret"), "{text}");
        for (scheme, is_there) in [
            (" redis://", cfg!(feature = "redis")),
            (" valkey://", cfg!(feature = "redis")),
            (" postgres://", cfg!(feature = "postgres")),
            (" zookeeper://", cfg!(feature = "zookeeper")),
            (" memory: alone", true),
        ] {
            assert_eq!(text.contains(scheme), is_there, "{scheme}: {text}");
        }
    }
}

#[cfg(not(feature = "redis"))]
#[tokio::test]
async fn the_url_of_a_server_names_the_feature_that_it_needs() {
    let text = from_variable("LOCKS_URLS", "redis://:s3cret@a").unwrap_err().to_string();
    assert!(text.contains("`redis`") && !text.contains("s3cret"), "{text}");
    let mut config = LockManagerConfig::new();
    config.urls.push("redis://:s3cret@a".into());
    assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
    let error = config.connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::InvalidUrl { position: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("`redis`"), "{error}");
}
