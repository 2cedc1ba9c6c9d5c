//! The traces that a collector gets from two copies of the example, and the picture.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use redlock_tests::{RedisServer, Service, eventually};

const SOON: Duration = Duration::from_secs(60);

/// A collector that keeps the spans.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

impl Collector {
    /// Starts to listen, and returns the URL.
    async fn start(&self) -> String {
        let spans = Arc::clone(&self.0);
        let receive = move |body: Bytes| async move {
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            let scopes = request.resource_spans.into_iter().flat_map(|spans| spans.scope_spans);
            spans.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/v1/traces", post(receive));
        tokio::spawn(async { axum::serve(listener, app).await });
        format!("http://{address}")
    }

    /// Returns the spans of a trace with this name, and their attributes.
    fn named(&self, name: &str) -> Vec<(Span, BTreeMap<String, String>)> {
        let spans = self.0.lock().unwrap();
        let named = spans.iter().filter(|span| span.name == name);
        named.map(|span| (span.clone(), attributes(span))).collect()
    }
}

fn attributes(span: &Span) -> BTreeMap<String, String> {
    let attributes = span.attributes.iter().map(|attribute| {
        let value = attribute.value.clone().and_then(|value| value.value);
        let value = match value {
            Some(Value::StringValue(text)) => text,
            Some(Value::IntValue(number)) => number.to_string(),
            other => format!("{other:?}"),
        };
        (attribute.key.clone(), value)
    });
    attributes.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_has_the_spans_of_its_lock_and_the_waiter_names_the_holder() {
    let redis = RedisServer::start().await;
    let collector = Collector::default();
    let endpoint = collector.start().await;
    let copy = async |label: &str| {
        let environment = [
            ("LOCKS_URLS", redis.url()),
            ("LOCKS_OWNER_LABEL", label.to_owned()),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.clone()),
        ];
        Service::start(env!("CARGO_BIN_EXE_traces"), &environment).await
    };
    let (mut holder, mut waiter) = (copy("holder:1").await, copy("waiter:2").await);
    let pay = async |url: String| {
        let answer = reqwest::Client::new().post(url).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    };
    let held = tokio::spawn(pay(holder.url("/orders/42/pay?hold_ms=3000")));
    let mut probe = redis.probe().await;
    eventually("the order is locked", SOON, async || {
        probe.keys().await.iter().any(|key| key.contains("order:42")).then_some(())
    })
    .await;
    pay(waiter.url("/orders/42/pay")).await;
    held.await.unwrap();
    for service in [&mut holder, &mut waiter] {
        assert!(service.interrupt().await.success(), "{}", service.log());
    }

    let requests = collector.named("POST /orders/{id}/pay");
    assert_eq!(requests.len(), 2, "{requests:?}");
    let mut waits = Vec::new();
    for name in ["redlock.acquire", "redlock.hold"] {
        let spans = collector.named(name);
        assert_eq!(spans.len(), 2, "{spans:?}");
        for (span, attributes) in spans {
            let parent = requests.iter().find(|(request, _)| request.trace_id == span.trace_id);
            let parent = parent.map(|(request, _)| &request.span_id);
            assert_eq!(parent, Some(&span.parent_span_id), "{name} is no child of a request");
            assert_eq!(attributes["lock"], "order:{id}");
            let all = format!("{attributes:?}");
            assert!(!all.contains("order:42") && !all.contains(&redis.port().to_string()), "{all}");
            if name == "redlock.acquire" {
                assert_eq!(span.kind(), SpanKind::Client);
                assert_eq!(attributes["outcome"], "acquired");
                waits.push(attributes.get("holder").cloned());
            }
        }
    }
    waits.sort();
    assert_eq!(waits, [None, Some("holder:1".to_owned())], "the holders that the spans name");
}

#[test]
fn the_picture_has_both_locks_in_both_panels() {
    let dir = std::env::temp_dir().join(format!("redlock-picture-{}.svg", std::process::id()));
    let status = Command::new(env!("CARGO_BIN_EXE_picture")).arg(&dir).status().unwrap();
    assert!(status.success());
    let svg = std::fs::read_to_string(&dir).unwrap();
    std::fs::remove_file(&dir).unwrap();
    assert!(svg.matches("<polyline").count() >= 4, "{svg}");
    // A blank line would end the HTML in a page of rustdoc.
    assert!(svg.starts_with("<svg id=\"contention\"") && !svg.contains("\n\n"), "{svg}");
}
