//! A Prometheus that scrapes the example `shop` under load, with the files of `examples/monitoring`.

use std::process::Command;
use std::time::Duration;

use percent_encoding::NON_ALPHANUMERIC;
use redlock_tests::{Prometheus, RedisServer, eventually, skip};
use reqwest::{Client, Method};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::metrics::shop;

/// Deadline for what takes seconds: two scrapes, or an alert that waits for ten of them.
const SOON: Duration = Duration::from_secs(180);

/// Sends a request to each route, again and again, until the set is dropped.
fn load(shop: &str) -> JoinSet<()> {
    let requests = [
        (Method::POST, "/articles/shoe/orders?hold_ms=20"),
        (Method::POST, "/articles/hat/orders?hold_ms=20"),
        (Method::PUT, "/articles/shoe?left=1000"),
        (Method::POST, "/articles/hat/refill"),
        (Method::POST, "/reports/daily"),
        (Method::GET, "/export"),
    ];
    let mut load = JoinSet::new();
    for (number, (method, path)) in requests.iter().cycle().take(12).enumerate() {
        let (client, method, url) = (Client::new(), method.clone(), format!("{shop}{path}"));
        load.spawn(async move {
            let pause = Duration::from_millis(5 + u64::try_from(number).unwrap_or_default());
            loop {
                let _ = client.request(method.clone(), &url).send().await;
                tokio::time::sleep(pause).await;
            }
        });
    }
    load
}

/// Asks the API. Returns `None` if there is no answer yet.
async fn ask(prometheus: &Prometheus, path: &str, query: Option<&str>) -> Option<Value> {
    let path = match query {
        Some(query) => {
            let query = percent_encoding::utf8_percent_encode(query, NON_ALPHANUMERIC);
            format!("{path}?query={query}")
        }
        None => path.to_owned(),
    };
    let answer = reqwest::get(prometheus.url(&path)).await.ok()?.text().await.ok()?;
    let answer: Value = serde_json::from_str(&answer).ok()?;
    assert_eq!(answer["status"], "success", "{query:?}: {answer}");
    Some(answer["data"].clone())
}

/// Waits until a query returns samples, each with these labels.
async fn has_samples(prometheus: &Prometheus, query: &str, labels: &[String]) {
    let what = format!("samples of {query} with the labels {labels:?}");
    eventually(&what, SOON, async || {
        let answer = ask(prometheus, "/api/v1/query", Some(query)).await?;
        let samples = answer["result"].as_array()?;
        let has_labels =
            |sample: &Value| labels.iter().all(|label| !sample["metric"][label].is_null());
        (!samples.is_empty() && samples.iter().all(has_labels)).then_some(())
    })
    .await;
}

/// Returns the labels that a legend names, such as `{{node}}`.
fn of_legend(legend: &str) -> Vec<String> {
    let rests = legend.split("{{").skip(1);
    rests.map(|rest| rest.split("}}").next().unwrap_or_default().to_owned()).collect()
}

/// Returns the queries of the dashboard, with values for the variables of Grafana, and the labels that their legends name.
fn of_dashboard() -> Vec<(String, Vec<String>)> {
    let text = std::fs::read_to_string(Prometheus::folder().join("grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries = targets.map(|target| {
        let [query, legend] = ["expr", "legendFormat"].map(|field| target[field].as_str().unwrap());
        // A label that does not exist matches `.*`, and not `.+`.
        let query = query.replace("$__rate_interval", "1m").replace("$lock", ".+");
        (query, of_legend(legend))
    });
    queries.collect()
}

/// Returns the alerts of which Prometheus says this, by their names.
async fn alerts(prometheus: &Prometheus, is_it: impl Fn(&Value) -> bool) -> Option<Vec<String>> {
    let rules = ask(prometheus, "/api/v1/rules", None).await?;
    let rules = rules["groups"].as_array()?.iter().filter_map(|group| group["rules"].as_array());
    let found = rules.flatten().filter(|rule| is_it(rule));
    found.map(|rule| Some(rule["name"].as_str()?.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_answers_every_query_and_the_alerts_are_silent_until_the_quorum_is_lost() {
    let mut redis = RedisServer::start().await;
    let shop = shop(&redis).await;
    let prometheus = match Prometheus::start(shop.address()) {
        Ok(prometheus) => prometheus,
        Err(why) => return skip(&why),
    };
    let _load = load(&shop.url(""));
    eventually("Prometheus is ready", SOON, async || {
        let ready = Client::new().get(prometheus.url("/-/ready")).send().await.ok()?;
        ready.status().is_success().then_some(())
    })
    .await;
    let of_dashboard = of_dashboard();
    assert!(of_dashboard.len() > 15, "{of_dashboard:?}");
    for (query, labels) in of_dashboard {
        has_samples(&prometheus, &query, &labels).await;
    }
    let rules = ask(&prometheus, "/api/v1/rules", None).await.unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap().clone();
    assert_eq!(rules.len(), 6, "{rules:?}");
    for rule in &rules {
        // The alert compares this value with a limit.
        let query = rule["query"].as_str().unwrap();
        let (value, _) = query.rsplit_once(" == ").or_else(|| query.rsplit_once(" > ")).unwrap();
        has_samples(&prometheus, value, &[]).await;
    }
    eventually("each alert is evaluated", SOON, async || {
        let evaluated = alerts(&prometheus, |rule| rule["health"] == "ok").await?;
        (evaluated.len() == 6).then_some(())
    })
    .await;
    // On a busy machine, requests may wait for a second.
    let is_wrong = |rule: &Value| rule["state"] != "inactive" && rule["name"] != "LockWaitsLong";
    let wrong = alerts(&prometheus, is_wrong).await.unwrap();
    assert!(wrong.is_empty(), "{wrong:?}: {}", shop.log());

    redis.kill();
    eventually("the alert LockQuorumLost fires", SOON, async || {
        let firing = alerts(&prometheus, |rule| rule["state"] == "firing").await?;
        firing.contains(&"LockQuorumLost".to_owned()).then_some(())
    })
    .await;
}

#[test]
fn promtool_accepts_the_files_and_the_tests_of_the_alerts() {
    for arguments in [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
    ] {
        let promtool =
            Command::new("promtool").args(arguments).current_dir(Prometheus::folder()).output();
        let Ok(output) = promtool else { return skip("promtool is missing") };
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{arguments:?}: {text}");
    }
}
