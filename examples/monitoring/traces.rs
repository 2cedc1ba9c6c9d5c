//! A service whose traces show how long each request waited for its lock, and for whom. It sends them by OTLP over HTTP to a
//! collector, to Jaeger or to Tempo.
//!
//! ```sh
//! LOCKS_URLS=redis://127.0.0.1 cargo run --bin traces
//! ```

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Path, Query, Request};
use axum::routing::post;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use redlock_axum::{LockManagerConfig, redis_lock};
use serde::Deserialize;
use tokio::net::TcpListener;
use tower_http::trace::TraceLayer;
use tracing::{Level, Span, info, info_span};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// `?hold_ms=`, the time that a payment takes.
#[derive(Deserialize)]
struct Work {
    #[serde(default)]
    hold_ms: u64,
}

/// Pays an order. A second request for the order waits.
#[redis_lock(key = "order:{id}", wait_time = 30)]
async fn pay(Path(id): Path<u64>, Query(work): Query<Work>) -> String {
    tokio::time::sleep(Duration::from_millis(work.hold_ms)).await;
    format!("order {id} is paid\n")
}

/// Returns the span of a request. The spans of its lock are its children.
fn request_span(request: &Request) -> Span {
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let method = request.method().as_str();
    let name = format!("{method} {route}");
    info_span!("request", otel.name = name, otel.kind = "server", http.route = route)
}

/// Sends the spans to `OTEL_EXPORTER_OTLP_ENDPOINT`, `http://localhost:4318` by default. `OTEL_TRACES_SAMPLER` and
/// `OTEL_TRACES_SAMPLER_ARG` choose which.
fn install_tracer() -> Result<SdkTracerProvider, Box<dyn Error>> {
    let exporter = SpanExporter::builder().with_http().build()?;
    let service = Resource::builder().with_service_name("traces").build();
    let provider = SdkTracerProvider::builder();
    let provider = provider.with_resource(service).with_batch_exporter(exporter).build();
    // The spans of the locks have the level DEBUG.
    let spans = Targets::new()
        .with_default(Level::INFO)
        .with_target("redlock_core", Level::DEBUG)
        // The exporter must not trace its own requests.
        .with_targets(["hyper", "opentelemetry", "reqwest"].map(|name| (name, LevelFilter::OFF)));
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("traces"));
    let log = tracing_subscriber::fmt::layer();
    tracing_subscriber::registry()
        .with(layer.with_filter(spans))
        .with(log.with_filter(Targets::new().with_default(Level::INFO)))
        .init();
    Ok(provider)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let provider = install_tracer()?;
    let locks = LockManagerConfig::from_env("LOCKS")?.connect().await?;
    let app = Router::new()
        .route("/orders/{id}/pay", post(pay))
        .layer(TraceLayer::new_for_http().make_span_with(request_span))
        .with_state(locks.clone());
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(listen).await?;
    info!("listening on {}", listener.local_addr()?);
    let stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    locks.shutdown().await;
    // Sends the last spans.
    provider.shutdown()?;
    Ok(())
}
