//! Several processes of a service use the same servers. The tests send requests and observe the processes.

use std::time::Duration;

use futures_util::future::join_all;
use redlock_tests::{
    FailoverGroup, History, Hold, PostgresServer, RedisCluster, RedisServer, Servers, Service,
    eventually, example, holds, overlaps, skip,
};
use reqwest::{Client, Response, StatusCode};
use serde_json::Value;

use crate::{SOON, decided, post, start, until_logged};

/// Two processes of the locked service, and the history of their handlers. The processes have these nodes.
struct LockedServices {
    services: [Service; 2],
    history: History,
    _dir: tempfile::TempDir,
}

impl LockedServices {
    async fn start(nodes: [&Servers; 2]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let history = History::at(dir.path().join("history"));
        let start = |servers: &Servers| {
            let environment = [
                ("LOCKS_URLS", servers.urls().join(",")),
                ("HISTORY", history.path().display().to_string()),
                // With hundreds of requests at once on few cores, a slow reply is not a failure.
                ("NODE_TIMEOUT_MS", "4000".to_owned()),
            ];
            async move { Service::start(env!("CARGO_BIN_EXE_locked-service"), &environment).await }
        };
        let services = [start(nodes[0]).await, start(nodes[1]).await];
        Self { services, history, _dir: dir }
    }

    /// Sends so many requests at once, to both processes and in turn to these paths. Returns how they ended, and when the
    /// handlers ran.
    async fn send(&self, requests: usize, paths: &[&str]) -> (Outcome, Vec<Hold>) {
        let urls = (0..requests).map(|request| {
            let path = paths[request / 2 % paths.len()];
            self.services[request % 2].url(&format!("{path}/42?hold_ms=5"))
        });
        let outcome = send_all(&urls.collect::<Vec<_>>(), &["order:42", "127.0.0.1"]).await;
        (outcome, holds(&self.history.events().unwrap()))
    }
}

async fn index(servers: &Servers) -> Service {
    start("index", &[("LOCKS_URLS", servers.urls().join(","))]).await
}

/// Checks the status, headers and body of a refusal, and that it contains none of the `secrets`.
async fn check_refusal(response: Response, status: StatusCode, secrets: &[&str]) {
    assert_eq!(response.status(), status);
    let headers = response.headers();
    assert_eq!(headers["content-type"], "application/problem+json");
    let retry_after: u64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(retry_after >= 1);
    let text = response.text().await.unwrap();
    let problem: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(problem["status"], status.as_u16());
    assert!(problem["title"].is_string() && problem["type"].is_string(), "{text}");
    for secret in secrets {
        assert!(!text.contains(secret), "{text}");
    }
}

/// Counts requests by their response.
#[derive(Debug, Default)]
struct Outcome {
    served: usize,
    contended: usize,
    unavailable: usize,
}

/// Sends all requests at once and checks the refusals. Repeats this until a request is served, because the
/// votes may be split among so many callers.
async fn send_all(urls: &[String], secrets: &[&str]) -> Outcome {
    let client = Client::builder().timeout(Duration::from_secs(120)).build().unwrap();
    let mut outcome = Outcome::default();
    while outcome.served == 0 {
        for response in join_all(urls.iter().map(|url| client.post(url).send())).await {
            let response = response.unwrap();
            let status = response.status();
            match status {
                StatusCode::OK => outcome.served += 1,
                StatusCode::SERVICE_UNAVAILABLE => outcome.unavailable += 1,
                _ => outcome.contended += 1,
            }
            if status == StatusCode::SERVICE_UNAVAILABLE {
                check_refusal(response, status, secrets).await;
            } else if status != StatusCode::OK {
                check_refusal(response, StatusCode::CONFLICT, secrets).await;
            }
        }
    }
    outcome
}

/// Both processes, and both attribute and layer, use the same key.
#[tokio::test]
async fn handlers_of_two_processes_never_overlap_and_refused_requests_get_409() {
    let servers = Servers::start(5).await;
    let services = LockedServices::start([&servers; 2]).await;
    let (outcome, holds) = services.send(200, &["/attribute", "/layer"]).await;
    assert_eq!(outcome.unavailable, 0, "{outcome:?}");
    assert_eq!(holds.len(), outcome.served, "a refused handler ran, or a served one did not");
    assert!(holds.iter().all(|hold| hold.end - hold.start >= 5_000_000));
    let found = overlaps(&holds);
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test]
async fn waiting_requests_of_two_processes_are_all_served_one_after_another() {
    let servers = Servers::start(5).await;
    let services = LockedServices::start([&servers; 2]).await;
    let (outcome, holds) = services.send(40, &["/waiting"]).await;
    assert_eq!((outcome.served, holds.len()), (40, 40), "{outcome:?}");
    let processes: std::collections::HashSet<_> = holds.iter().map(|hold| hold.process).collect();
    assert_eq!(processes.len(), 2, "{processes:?}");
    let found = overlaps(&holds);
    assert!(found.is_empty(), "{found:#?}");
}

/// The same requests on two separate nodes do overlap, so the checker can detect an overlap.
#[tokio::test]
async fn without_a_common_node_the_checker_finds_overlaps() {
    let (one, other) = tokio::join!(Servers::start(1), Servers::start(1));
    let services = LockedServices::start([&one, &other]).await;
    let (outcome, holds) = services.send(20, &["/waiting"]).await;
    assert_eq!(outcome.served, 20, "{outcome:?}");
    assert!(!overlaps(&holds).is_empty());
}

#[tokio::test]
async fn with_three_of_five_nodes_down_requests_get_503_and_are_served_again_later() {
    let mut servers = Servers::start(5).await;
    let service = index(&servers).await;
    let paths = ["/orders/42/pay", "/coupons/summer/claim", "/stock/shoe/reserve"];
    for path in paths {
        assert_eq!(post(service.url(path)).await.status(), StatusCode::OK, "{path}");
    }

    servers[0].kill();
    servers[1].kill();
    servers[2].freeze();
    for path in paths {
        let response = Client::new().post(service.url(path)).send().await.unwrap();
        let secrets = ["42", "summer", "shoe", "127.0.0.1"];
        check_refusal(response, StatusCode::SERVICE_UNAVAILABLE, &secrets).await;
    }
    let begun = service.log().matches(" begins").count();
    assert_eq!(begun, paths.len(), "a handler ran without its lock: {}", service.log());

    servers[0].restart().await;
    servers[1].restart().await;
    servers[2].thaw();
    assert_eq!(post(service.url(paths[0])).await.status(), StatusCode::OK);
}

/// Reads from the examples' logs when handlers began (`true`) and ended (`false`). The events are sorted by
/// time, an end before a beginning in the same microsecond.
fn events(services: &[Service]) -> Vec<(String, bool)> {
    let mut events: Vec<_> = services
        .iter()
        .flat_map(|service| service.log().lines().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|line| {
            let time = line.split_whitespace().next()?.to_owned();
            Some((time, line.ends_with(" begins")))
                .filter(|(_, begins)| *begins || line.ends_with(" ends"))
        })
        .collect();
    events.sort();
    events
}

/// Searches the example's own log for overlaps. The example has the default node timeout of 200 ms, so
/// on a busy machine some requests are unavailable; their handlers must not run either. The locked service
/// has a longer timeout, and its test allows no unavailable request.
#[tokio::test]
async fn two_processes_of_the_example_never_pay_an_order_twice_at_once() {
    const REQUESTS: usize = 200;
    let servers = Servers::start(5).await;
    let services = [index(&servers).await, index(&servers).await];
    let urls = (0..REQUESTS)
        .map(|request| services[request % 2].url("/orders/42/pay?hold_ms=5"))
        .collect::<Vec<_>>();
    let outcome = send_all(&urls, &["order:42", "127.0.0.1"]).await;
    let answered = outcome.served + outcome.contended + outcome.unavailable;
    assert_eq!(answered % REQUESTS, 0, "a request without an answer: {outcome:?}");
    let events = events(&services);
    assert_eq!(events.len(), outcome.served * 2, "{events:#?}");
    for (index, (_, begins)) in events.iter().enumerate() {
        assert_eq!(*begins, index % 2 == 0, "two handlers at once: {events:#?}");
    }
}

/// Sends the requests that the README shows with curl.
#[tokio::test]
async fn every_route_of_the_example_is_locked_by_its_key() {
    let service = start("index", &[]).await;
    assert!(service.log().contains("in-memory"), "{}", service.log());
    let client = Client::new();
    let send = |path: &str| {
        let url = service.url(path);
        if path.starts_with("/index") { client.get(url) } else { client.post(url) }.send()
    };
    for (path, same, other) in [
        ("/index", "/index", None),
        ("/orders/42/pay", "/orders/042/pay", Some("/orders/43/pay")),
        ("/coupons/summer/claim", "/coupons/SUMMER/claim", Some("/coupons/winter/claim")),
        ("/stock/shoe/reserve", "/stock/shoe/reserve", Some("/stock/boot/reserve")),
    ] {
        let before = service.log().matches(" begins").count();
        let first = send(&format!("{path}?hold_ms=60000"));
        let mut first = Box::pin(first);
        tokio::select! {
            response = &mut first => panic!("{path}: {response:?}"),
            () = eventually("the first handler is running", SOON, async || {
                (service.log().matches(" begins").count() > before).then_some(())
            }) => {}
        }
        let refused = send(same).await.unwrap();
        check_refusal(refused, StatusCode::CONFLICT, &["redis_lock"]).await;
        if let Some(other) = other {
            assert_eq!(send(other).await.unwrap().status(), StatusCode::OK, "{other}");
        }
        // The client disconnects, which releases its lock.
        drop(first);
        eventually("the lock is free", SOON, async || {
            (send(same).await.unwrap().status() == StatusCode::OK).then_some(())
        })
        .await;
    }
}

async fn a_signal_releases_held_locks(interrupt: bool) {
    let servers = Servers::start(5).await;
    let mut service = index(&servers).await;
    let request = Client::new().post(service.url("/orders/42/pay?hold_ms=60000"));
    let held = tokio::spawn(async move {
        while let Ok(response) = request.try_clone().unwrap().send().await {
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        }
    });
    eventually("each node has the lock", SOON, async || {
        (servers.keys().await.len() == 5 && service.log().contains(" begins")).then_some(())
    })
    .await;

    let status = if interrupt { service.interrupt().await } else { service.terminate().await };
    assert!(status.success(), "{status}: {}", service.log());
    assert_eq!(servers.keys().await, [""; 0], "a lock was not released");
    // Its handler ended with the process.
    held.await.unwrap();
}

#[tokio::test]
async fn sigterm_ends_the_example_and_releases_held_locks() {
    a_signal_releases_held_locks(false).await;
}

#[tokio::test]
async fn ctrl_c_ends_the_example_and_releases_held_locks() {
    a_signal_releases_held_locks(true).await;
}

/// Without requests or releases in progress, the example does not wait for its shutdown timeout.
#[tokio::test]
async fn an_idle_example_ends_at_once() {
    let mut service = start("index", &[]).await;
    assert!(service.terminate().await.success());
    let log = service.log();
    assert!(log.contains("shutting down") && !log.contains("not finished in time"), "{log}");
}

#[tokio::test]
async fn the_example_prints_why_it_cannot_start() {
    let mut servers = Servers::start(1).await;
    servers[0].kill();
    let mut process = std::process::Command::new(example("index"));
    let output = process.env("LOCKS_URLS", servers.urls().join(",")).output().unwrap();
    assert!(!output.status.success());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains(&servers[0].port().to_string()), "{message}");
}

/// Two processes of the example exclude each other over these URLs.
async fn exclude_each_other(urls: &str) {
    let environment = [("LOCKS_URLS", urls.to_owned())];
    let (first, second) = tokio::join!(start("index", &environment), start("index", &environment));
    let client = Client::new();
    let held = tokio::spawn(decided(client.get(first.url("/index?hold_ms=60000"))));
    until_logged(&first, " begins").await;
    let refused = decided(client.get(second.url("/index"))).await.unwrap();
    check_refusal(refused, StatusCode::CONFLICT, &["redis_lock"]).await;
    // The client disconnects, which releases its lock.
    held.abort();
    eventually("the lock is free", SOON, async || {
        let response = client.get(second.url("/index")).send().await.unwrap();
        (response.status() == StatusCode::OK).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_example_locks_with_each_kind_of_url() {
    let server = RedisServer::start().await;
    exclude_each_other(&format!("unix://{}", server.socket().display())).await;
    let group = FailoverGroup::start().await;
    exclude_each_other(&group.url()).await;
    let cluster = RedisCluster::start().await;
    exclude_each_other(&cluster.url()).await;
    // Each of these URLs has commas of its own.
    let urls = [group.url(), cluster.url(), server.url()].join(",");
    exclude_each_other(&urls).await;
}

/// The service has a database and no Redis. A process that is killed releases nothing, so that its lock ends with its lease.
#[tokio::test]
async fn the_example_locks_in_a_database() {
    let Ok(mut server) = PostgresServer::start().await.inspect_err(|why| skip(why)) else { return };
    exclude_each_other(&server.url()).await;
    let environment = [("LOCKS_URLS", server.url())];
    let (first, second) = tokio::join!(start("index", &environment), start("index", &environment));
    server.restart().await;
    let client = Client::new();
    // The lease of 5 s must not pass while it connects.
    eventually("the second process is connected", SOON, async || {
        let response = client.get(second.url("/index")).send().await.unwrap();
        (response.status() == StatusCode::OK).then_some(())
    })
    .await;
    let held = tokio::spawn(decided(client.get(first.url("/index?hold_ms=60000"))));
    until_logged(&first, " begins").await;
    let refused = decided(client.get(second.url("/index"))).await.unwrap();
    check_refusal(refused, StatusCode::CONFLICT, &["redis_lock"]).await;
    first.kill();
    held.abort();
    eventually("the lease is over", SOON, async || {
        let response = client.get(second.url("/index")).send().await.unwrap();
        (response.status() == StatusCode::OK).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_example_locks_over_tls() {
    if let Err(why) = RedisServer::check_tls() {
        return skip(&why);
    }
    let dir = tempfile::tempdir().unwrap();
    let [certificate, key] = ["server.pem", "server.key"].map(|name| dir.path().join(name));
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, signed.cert.pem()).unwrap();
    std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    let server = RedisServer::options().tls(&certificate, &key).start().await;
    let url = format!("{}?tls_ca={}", server.tls_url(), certificate.display());
    exclude_each_other(&url).await;
}
