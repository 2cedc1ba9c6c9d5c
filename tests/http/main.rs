//! Services in processes of their own, requests that end in every way, and the commands of `examples/README.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod blocked;
mod bursts;
mod connections;
mod end_of_body;
mod examples;
mod http2;
mod leftovers;
mod metrics;
mod monitoring;
mod services;
mod soak;
mod stopping;

use std::time::{Duration, Instant};

use redlock_tests::{Service, eventually, example};
use reqwest::{RequestBuilder, Response};

/// A lease longer than any test: a lock that is gone earlier was released.
const LONG: Duration = Duration::from_secs(300);
/// Deadline for what takes no time, or a lease of some seconds, on an idle machine.
const SOON: Duration = Duration::from_secs(30);

/// Starts an example.
async fn start(name: &str, environment: &[(&str, String)]) -> Service {
    Service::start(example(name), environment).await
}

/// Sends a request until the lock is decided. The examples have the default timeouts, so that on a busy machine they may
/// answer that the nodes are not available. The handler has not run then.
async fn decided(request: RequestBuilder) -> reqwest::Result<Response> {
    let begun = Instant::now();
    loop {
        let answer = request.try_clone().expect("a body that can be cloned").send().await;
        let is_decided = answer.as_ref().map_or(true, |answer| answer.status() != 503);
        if is_decided || begun.elapsed() > SOON {
            return answer;
        }
    }
}

async fn post(url: String) -> Response {
    decided(reqwest::Client::new().post(url)).await.unwrap()
}

async fn until_logged(service: &Service, text: &str) {
    eventually(text, SOON, async || service.log().contains(text).then_some(())).await;
}
