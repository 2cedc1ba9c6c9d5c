//! The databases of a cluster.

use redlock_core::ConnectError;
use redlock_tests::RedisCluster;

use super::SOON;

/// Only Valkey 9 has more databases than one, with `cluster-databases`.
#[tokio::test]
async fn a_cluster_with_one_database_refuses_another_one_with_its_words() {
    let cluster = RedisCluster::start().await;
    let connect = |database: &str| {
        let builder = redlock_tests::builder([format!("{}/{database}", cluster.url())]);
        builder.connect_timeout(SOON).connect()
    };
    connect("0").await.unwrap();
    let error = connect("1").await.unwrap_err();
    assert!(matches!(error, ConnectError::Unavailable { .. }), "{error}");
    let error = error.to_string();
    let words = ["SELECT is not allowed in cluster mode", "DB index is out of range"];
    assert!(words.iter().any(|words| error.contains(words)), "{error}");
}
