//! The metrics of the example `shop`, and the files that read them: `examples/monitoring`.

use std::collections::{BTreeMap, BTreeSet};

use redlock_tests::{Prometheus, RedisServer, Service, eventually};

use crate::{SOON, post, start};

const POLICIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/shop/policies.toml");
/// The page with the table of the metrics.
const PAGE: &str = include_str!("../../redlock-core/src/lib.rs");

/// The metric of layers for idempotency keys. The shop has none, so that a query of it would return nothing.
const OF_A_LAYER: &str = "replayed_total";

/// Starts the example with one server.
pub(crate) async fn shop(redis: &RedisServer) -> Service {
    start("shop", &[("LOCKS_URLS", redis.url()), ("POLICIES", POLICIES.to_owned())]).await
}

/// Returns the metrics of the table that each service has, with their kinds.
fn documented() -> BTreeMap<&'static str, &'static str> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("//! | `redlock_"));
    let metrics = rows.map(|row| {
        let (name, rest) = row.split_once("` | ").unwrap();
        (name, rest.split(':').next().unwrap())
    });
    let mut metrics: BTreeMap<_, _> = metrics.collect();
    assert!(metrics.remove(OF_A_LAYER).is_some());
    metrics
}

/// Returns the metrics that a service shows, with their kinds.
fn shown(metrics: &str) -> BTreeMap<&str, &str> {
    let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE redlock_"));
    types.filter_map(|line| line.split_once(' ')).collect()
}

/// Returns the metrics that a file names.
fn named(file: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(Prometheus::folder().join(file)).unwrap();
    let of_name = |character: char| character.is_ascii_lowercase() || character == '_';
    let rests = text.split("redlock_").skip(1);
    let names = rests.map(|rest| {
        let name: String = rest.chars().take_while(|character| of_name(*character)).collect();
        let parts = ["_bucket", "_count", "_sum"];
        parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(&name).to_owned()
    });
    names.collect()
}

/// A key may have a value of a request that nobody else should see.
#[tokio::test]
async fn the_shop_shows_the_metrics_of_the_table_by_name_and_without_a_key() {
    let redis = RedisServer::start().await;
    let shop = shop(&redis).await;
    let secret = "s3cret-4711";
    // The lock is acquired before the article is looked for.
    assert_eq!(post(shop.url(&format!("/articles/{secret}/orders"))).await.status(), 404);
    assert_eq!(post(shop.url("/reports/daily")).await.status(), 200);
    let metrics = eventually("the state of the nodes", SOON, async || {
        let metrics = reqwest::get(shop.url("/metrics")).await.ok()?.text().await.ok()?;
        let is_granting = |line: &str| line.starts_with("redlock_quorum{") && line.ends_with(" 1");
        metrics.lines().any(is_granting).then_some(metrics)
    })
    .await;
    assert_eq!(shown(&metrics), documented());
    for (metric, lock) in
        [("redlock_held", "stock:{sku:lower}"), ("redlock_waiting", "report:{name}")]
    {
        let line = format!("\n{metric}{{lock=\"{lock}\"}} 0\n");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
    assert!(metrics.contains("redlock_acquire_seconds_bucket{") && metrics.contains("le=\"60\""));
    assert!(!metrics.contains(secret), "{metrics}");
    assert!(!shop.log().contains(secret), "{}", shop.log());
}

#[test]
fn the_dashboard_shows_every_metric_and_the_alerts_name_no_other() {
    let documented: BTreeSet<String> = documented().into_keys().map(str::to_owned).collect();
    assert_eq!(named("grafana.json"), documented);
    let alerts = named("alerts.yml");
    assert!(!alerts.is_empty() && alerts.is_subset(&documented), "{alerts:?}");
}

#[test]
fn each_panel_reads_the_data_source_that_the_viewer_chooses() {
    let text = std::fs::read_to_string(Prometheus::folder().join("grafana.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert!(variables.iter().any(|variable| variable["type"] == "datasource"));
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    for place in panels.iter().chain(targets) {
        assert_eq!(place["datasource"]["uid"], "${datasource}", "{place}");
    }
}

/// Otherwise promtool would not test it.
#[test]
fn each_alert_has_a_test_in_which_it_fires_and_one_in_which_it_is_silent() {
    let read = |file| std::fs::read_to_string(Prometheus::folder().join(file)).unwrap();
    let (alerts, tests) = (read("alerts.yml"), read("alerts_test.yml"));
    let names: Vec<_> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(names.len(), 6);
    for name in names {
        let cases = tests.split("- alertname: ").skip(1);
        let cases = cases.filter(|case| case.lines().next() == Some(name));
        let (firing, silent): (Vec<_>, Vec<_>) = cases
            .partition(|case| case.split("- interval:").next().unwrap().contains("exp_alerts:"));
        assert!(!firing.is_empty() && !silent.is_empty(), "{name}");
    }
}
