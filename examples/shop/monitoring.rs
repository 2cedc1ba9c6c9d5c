//! The metrics of the locks, for Prometheus. `examples/monitoring` has alerts and a dashboard for them.

use std::future::ready;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
use redlock_axum::METRIC_BUCKETS;

/// Installs the recorder of the metrics, and returns the route that shows them. Call it before the lock manager connects, so
/// that no metric is missed. A service on a public address serves this route on another one.
pub(crate) fn install() -> Result<Router, BuildError> {
    let of_locks = Matcher::Prefix("redlock_".to_owned());
    let recorder = PrometheusBuilder::new().set_buckets_for_metric(of_locks, METRIC_BUCKETS)?;
    let metrics = recorder.install_recorder()?;
    let upkeep = metrics.clone();
    tokio::spawn(async move {
        // Otherwise samples would pile up while nobody asks for the metrics.
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    Ok(Router::new().route("/metrics", get(move || ready(metrics.render()))))
}
