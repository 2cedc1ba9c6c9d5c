//! `redlock status` and `redlock break`.

use redlock_tests::{Nodes, on_each_kind_of_nodes, redlock};
use serde_json::Value;

use super::{Done, KEY, done, finish, held, labelled};

const LABEL: &str = "shop-7f9c";

fn id(status: &Value) -> &str {
    status["holders"][0]["id"].as_str().expect("a holder")
}

async fn status(urls: &[String]) -> Value {
    done(urls, &["status", KEY, "--json"]).await.json()
}

async fn a_status_shows_the_holder_and_says_by_its_exit_status_whether_there_is_one(nodes: Nodes) {
    let urls = nodes.urls();
    let free = done(&urls, &["status", KEY]).await;
    assert_eq!((free.status, &*free.err), (0, ""), "{free:?}");
    assert!(free.out.starts_with("order:42  free: no holder\n"), "{free:?}");
    let json = status(&urls).await;
    assert_eq!(json["state"], "free");
    assert_eq!(json["holders"], serde_json::json!([]));
    assert_eq!(json["nodes"].as_array().map(Vec::len), Some(urls.len()));

    let locks = labelled(&urls, LABEL).await;
    let guard = held(&locks, KEY).await;
    nodes.all_hold(KEY).await;
    let shown = done(&urls, &["status", KEY]).await;
    assert_eq!((shown.status, &*shown.err), (1, ""), "{shown:?}");
    // The nodes have the time to the second.
    let age = shown.out.split_once(" (").and_then(|(_, rest)| rest.split_once("s ago)"));
    let (age, _) = age.expect("an age in seconds");
    assert!(age.parse::<u64>().is_ok(), "{age}: {shown:?}");
    let json = status(&urls).await;
    assert_eq!((&json["key"], &json["state"]), (&KEY.into(), &"exclusive".into()));
    let [holder] = &json["holders"].as_array().unwrap()[..] else { panic!("{json}") };
    assert_eq!((&holder["owner"], &holder["nodes"]), (&LABEL.into(), &urls.len().into()));
    assert!(holder["remaining_ms"].as_u64() > Some(0), "{json}");
    assert!(holder["since"].as_u64() > Some(1_700_000_000), "{json}");
    for node in json["nodes"].as_array().unwrap() {
        assert_eq!((&node["state"], &node["error"]), (&"exclusive".into(), &Value::Null));
    }
    let nodes = format!("{0} of {0}", urls.len());
    for words in ["order:42  exclusive: one holder", LABEL, id(&json), &*nodes] {
        assert!(shown.out.contains(words), "{words}: {shown:?}");
    }
    guard.release().await.unwrap();
}

async fn a_status_shows_the_name_of_the_lock_on_the_nodes(nodes: Nodes) {
    let urls = nodes.urls();
    let with_prefix = async |more: &[&str]| {
        let mut command = redlock(&urls);
        command.args([&["status", KEY], more].concat()).env("LOCKS_PREFIX", "shop:");
        finish(command).await
    };
    let shown = with_prefix(&[]).await;
    assert!(shown.out.contains("\non the nodes: shop:order:42\n"), "{shown:?}");
    let json = with_prefix(&["--json"]).await.json();
    assert_eq!((&json["key"], &json["key_on_nodes"]), (&KEY.into(), &"shop:order:42".into()));
    let without = done(&urls, &["status", KEY]).await;
    assert!(!without.out.contains("on the nodes"), "{without:?}");
    assert_eq!(status(&urls).await["key_on_nodes"], KEY);
}

async fn a_break_ends_the_named_holder_and_no_other(nodes: Nodes) {
    let urls = nodes.urls();
    let locks = labelled(&urls, LABEL).await;
    let guard = held(&locks, KEY).await;
    nodes.all_hold(KEY).await;
    let shown = status(&urls).await;
    let breaking = async |id: &str, more: &[&str]| {
        let arguments = [&["break", KEY, "--holder", id][..], more].concat();
        done(&urls, &arguments).await
    };
    // Nothing asks, because there is no terminal.
    let unasked = breaking(id(&shown), &[]).await;
    assert_eq!(unasked.status, 2);
    assert!(unasked.err.contains("--yes"), "{unasked:?}");
    let other = breaking("0123456789abcdef", &["--yes"]).await;
    assert_eq!((other.status, &*other.out), (1, ""));
    assert!(
        other.err.contains(id(&shown)) && other.err.contains("Nothing was changed"),
        "{other:?}"
    );
    assert!(guard.is_valid());
    assert_eq!(id(&status(&urls).await), id(&shown));

    let Done { status: code, out, err } =
        breaking(id(&shown), &["--yes", "--reason", "the pod is lost"]).await;
    assert_eq!(code, 0, "{err}");
    assert!(
        out.starts_with("order:42: broken. Its former holder may believe in its lock for "),
        "{out}"
    );
    for words in [" WARN an operator breaks a lock", LABEL, id(&shown), "the pod is lost"] {
        assert!(err.contains(words), "{words}: {err}");
    }
    assert_eq!(status(&urls).await["state"], "free");
    let again = breaking(id(&shown), &["--yes"]).await;
    assert_eq!(again.status, 1);
    assert!(again.err.contains("no other holder was seen"), "{again:?}");
    assert!(guard.release().await.is_err());

    let guard = held(&locks, KEY).await;
    let json = breaking(id(&status(&urls).await), &["--yes", "--json"]).await.json();
    assert_eq!((&json["key"], &json["broken"]["owner"]), (&KEY.into(), &LABEL.into()));
    assert!(json["may_be_valid_for_ms"].as_u64() > Some(0), "{json}");
    assert_eq!(json["votes"].as_object().map(serde_json::Map::len), Some(urls.len()));
    drop(guard);
}

on_each_kind_of_nodes! {
    [
        redis_x5: Nodes::redis(5).await,
        postgres: Nodes::postgres(1, 0).await,
        zookeeper: Nodes::zookeeper().await,
    ]
    if_all_kinds [
        redis: Nodes::redis(1).await,
        sentinel: Nodes::sentinel(1).await,
        cluster: Nodes::cluster().await,
    ]
    [
        a_status_shows_the_holder_and_says_by_its_exit_status_whether_there_is_one,
        a_status_shows_the_name_of_the_lock_on_the_nodes,
        a_break_ends_the_named_holder_and_no_other,
    ]
}
