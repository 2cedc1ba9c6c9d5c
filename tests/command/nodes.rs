//! `redlock nodes`.

use redlock_tests::{Nodes, RedisServer, Servers, on_each_kind_of_nodes};
use serde_json::Value;

use super::{Done, done, finish};

fn kinds(json: &Value) -> Vec<(&str, &str)> {
    let nodes = json["nodes"].as_array().unwrap().iter();
    let findings = nodes.flat_map(|node| node["findings"].as_array().unwrap());
    findings
        .map(|found| (found["kind"].as_str().unwrap(), found["effect"].as_str().unwrap()))
        .collect()
}

async fn sound_nodes_are_shown_with_product_version_and_round_trip(nodes: Nodes) {
    let urls = nodes.urls();
    let checked = done(&urls, &["nodes", "--json"]).await;
    let json = checked.json();
    assert_eq!((checked.status, &json["sound"]), (0, &true.into()), "{checked:?}");
    assert_eq!(json["nodes"].as_array().map(Vec::len), Some(urls.len()));
    for node in json["nodes"].as_array().unwrap() {
        assert_eq!(node["status"], "up");
        assert!(node["round_trip_us"].as_u64() > Some(0), "{node}");
        for server in node["servers"].as_array().unwrap() {
            let product = server["product"].as_str().unwrap();
            if node["kind"] == "zookeeper" {
                // Its protocol has neither version nor time.
                assert!(server["session_timeout_ms"].as_u64() > Some(0), "{node}");
                assert_eq!((product, &server["version"]), ("ZooKeeper", &Value::Null));
            } else {
                let digits = |c: char| c.is_ascii_digit();
                assert!(server["version"].as_str().unwrap().starts_with(digits), "{node}");
                // One machine has one clock. The time of a round trip may be in the offset.
                let offset = server["clock_offset_ms"].as_i64().unwrap();
                assert!(offset.abs() < 10_000, "{node}");
            }
        }
    }
    let Done { status, out, err } = done(&urls, &["nodes"]).await;
    assert_eq!((status, &*err), (0, ""), "{out}");
    assert!(out.contains("sound: nothing that was checked costs a guarantee"), "{out}");
}

on_each_kind_of_nodes! {
    [
        redis_x5: Nodes::redis(5).await,
        postgres: Nodes::postgres(1, 0).await,
        zookeeper: Nodes::zookeeper().await,
    ]
    if_all_kinds [redis: Nodes::redis(1).await,]
    [sound_nodes_are_shown_with_product_version_and_round_trip,]
}

#[tokio::test]
async fn an_eviction_policy_costs_a_guarantee() {
    let server = RedisServer::options().directive("maxmemory-policy", "allkeys-lru").start().await;
    let urls = [server.url()];
    let checked = done(&urls, &["nodes", "--json"]).await;
    let json = checked.json();
    assert_eq!((checked.status, kinds(&json)), (1, vec![("eviction", "guarantee")]), "{json}");
    let shown = done(&urls, &["nodes"]).await;
    assert_eq!(shown.status, 1);
    assert!(shown.out.contains("allkeys-lru") && shown.out.contains("noeviction"), "{shown:?}");
}

/// A right that is missing to read a fact is said. A right that is missing to have locks is a problem.
#[tokio::test]
async fn missing_rights_are_said() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    for (rights, found, code) in [
        ("+@all -info", vec![("info", "unknown")], 0),
        ("+@all -time", vec![("time", "unknown")], 0),
        ("+@all -zrem", vec![("right", "guarantee")], 1),
        ("+@all -publish", vec![("right", "convenience")], 0),
    ] {
        let words = ["ACL", "SETUSER", "app", "reset", "on", ">open-sesame", "~*", "&*"];
        let words = [&words[..], &rights.split(' ').collect::<Vec<_>>()].concat();
        probe.command::<()>(&words[..]).await;
        let urls = [format!("redis://app:open-sesame@127.0.0.1:{}", server.port())];
        let checked = done(&urls, &["nodes", "--json"]).await;
        assert!(!format!("{checked:?}").contains("open-sesame"));
        let json = checked.json();
        assert_eq!((checked.status, kinds(&json)), (code, found), "{rights}: {json}");
    }
    // Without this right there is no connection.
    probe.command::<()>(["ACL", "SETUSER", "app", "-del"]).await;
    let urls = [format!("redis://app:open-sesame@127.0.0.1:{}", server.port())];
    let refused = done(&urls, &["nodes"]).await;
    assert_eq!(refused.status, 1);
    assert!(refused.out.contains("no right to DEL"), "{refused:?}");
    assert!(!format!("{refused:?}").contains("open-sesame"));
}

#[tokio::test]
async fn nodes_that_are_down_and_nodes_without_votes_are_problems() {
    let mut servers = Servers::start(3).await;
    let urls = servers.urls();
    servers[2].kill();
    let checked = done(&urls, &["nodes", "--json"]).await;
    let json = checked.json();
    assert_eq!((checked.status, &json["sound"]), (1, &false.into()));
    let statuses: Vec<_> = json["nodes"].as_array().unwrap().iter().map(|n| &n["status"]).collect();
    assert_eq!(statuses, ["up", "up", "down"]);
    // The two that are left were started a moment ago, and the guard waits.
    let mut command = redlock_tests::redlock(&urls[..2]);
    command.args(["nodes"]).env("LOCKS_RESTART_GUARD", "1d");
    let quarantined = finish(command).await;
    assert_eq!(quarantined.status, 1);
    assert!(quarantined.out.contains("no votes"), "{quarantined:?}");
    assert!(quarantined.out.contains("2 nodes survive no more losses than 1"), "{quarantined:?}");
    servers[1].kill();
    let without_quorum = done(&urls, &["nodes"]).await;
    assert_eq!(without_quorum.status, 1);
    assert!(without_quorum.out.contains("no quorum of nodes is up"), "{without_quorum:?}");
}

/// A failover of a Sentinel group forgets locks unless the votes of its new master wait.
#[tokio::test]
async fn a_sentinel_group_without_a_guard_is_not_sound() {
    let nodes = Nodes::sentinel(1).await;
    let checked = done(&nodes.urls(), &["nodes", "--json"]).await;
    let json = checked.json();
    assert_eq!(checked.status, 1, "{json}");
    assert!(kinds(&json).contains(&("failover", "guarantee")), "{json}");
}

#[tokio::test]
async fn a_postgresql_server_that_may_forget_is_not_sound() {
    let options = redlock_tests::PostgresServer::options().setting("synchronous_commit", "off");
    let server = match options.start().await {
        Ok(server) => server,
        Err(why) => return redlock_tests::skip(&why),
    };
    let checked = done(&[server.url()], &["nodes", "--json"]).await;
    let json = checked.json();
    let found = vec![("synchronous_commit", "guarantee")];
    assert_eq!((checked.status, kinds(&json)), (1, found), "{json}");
}
