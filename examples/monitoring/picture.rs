//! Draws the picture of the guide: callers that wait for one lock of a whole stock, and then for a lock of each article.
//!
//! ```sh
//! cargo run --release --bin picture -- ../../redlock-axum/docs/contention.svg
//! ```
//!
//! While 32 callers sell 40 articles, the program reads samples from the recorder, as Prometheus does.

use std::error::Error;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use plotters::prelude::*;
use redlock_axum::{LockManager, METRIC_BUCKETS};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const CALLERS: usize = 32;
const ARTICLES: usize = 40;
/// How long a caller works under its lock, and without it.
const WORK: Duration = Duration::from_millis(5);
const PAUSE: Duration = Duration::from_millis(20);
/// The time with each of the locks.
const PHASE: Duration = Duration::from_secs(8);
const SAMPLE: Duration = Duration::from_millis(250);
/// The names of the coarse lock and of the fine one, with the colours of their curves.
const LOCKS: [(&str, RGBColor); 2] =
    [("stock", RGBColor(192, 57, 43)), ("stock:{sku}", RGBColor(31, 97, 141))];

/// A sample of one lock.
struct Sample {
    seconds: f64,
    /// The gauge of the waiting callers.
    waiting: f64,
    /// The mean duration of the acquisitions since the sample before, in milliseconds.
    acquire: f64,
}

/// Returns the sum of the series of a metric with this label `lock`.
fn sum(metrics: &str, metric: &str, lock: &str) -> f64 {
    let label = format!("lock=\"{lock}\"");
    let series = metrics.lines().filter(|line| {
        line.strip_prefix(metric).is_some_and(|rest| rest.starts_with('{')) && line.contains(&label)
    });
    series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Sells articles under one of the locks until `end`.
async fn sell(locks: LockManager, caller: usize, name: &'static str, end: Instant) {
    let mut number = caller;
    while Instant::now() < end {
        number += 7;
        let key = name.replace("{sku}", &(number % ARTICLES).to_string());
        let request = locks.lock(key).named(name).wait_forever();
        if request.run(async |_| sleep(WORK).await).await.is_err() {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Returns the samples of each lock.
async fn measure() -> Result<[Vec<Sample>; 2], Box<dyn Error>> {
    let of_locks = Matcher::Prefix("redlock_".to_owned());
    let recorder = PrometheusBuilder::new().set_buckets_for_metric(of_locks, METRIC_BUCKETS)?;
    let recorder = recorder.install_recorder()?;
    let locks = LockManager::in_memory();
    let begun = Instant::now();
    let mut samples = [Vec::new(), Vec::new()];
    for ((name, _), samples) in LOCKS.into_iter().zip(&mut samples) {
        let end = Instant::now() + PHASE;
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            callers.spawn(sell(locks.clone(), caller, name, end));
        }
        let mut before = (0.0, 0.0);
        while Instant::now() + SAMPLE < end {
            sleep(SAMPLE).await;
            let metrics = recorder.render();
            let sum = |metric| sum(&metrics, metric, name);
            let now = (sum("redlock_acquire_seconds_sum"), sum("redlock_acquire_seconds_count"));
            samples.push(Sample {
                seconds: begun.elapsed().as_secs_f64(),
                waiting: sum("redlock_waiting"),
                acquire: (now.0 - before.0) / (now.1 - before.1).max(1.0) * 1000.0,
            });
            before = now;
        }
        callers.join_all().await;
    }
    Ok(samples)
}

fn draw(samples: &[Vec<Sample>; 2]) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (720, 380)).into_drawing_area();
    area.fill(&WHITE)?;
    let waiting: fn(&Sample) -> f64 = |sample| sample.waiting;
    let acquire: fn(&Sample) -> f64 = |sample| sample.acquire;
    let panels = area.split_evenly((2, 1));
    for (panel, (title, value)) in panels.iter().zip([
        ("redlock_waiting: callers that wait", waiting),
        ("redlock_acquire_seconds: mean duration of an acquisition, in ms", acquire),
    ]) {
        let highest = samples.iter().flatten().map(value).fold(1.0, f64::max);
        let mut chart = ChartBuilder::on(panel)
            .caption(title, ("sans-serif", 14))
            .margin(6)
            .x_label_area_size(20)
            .y_label_area_size(34)
            .build_cartesian_2d(0.0..2.0 * PHASE.as_secs_f64(), 0.0..highest * 1.1)?;
        let mesh = chart.configure_mesh();
        { mesh }
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(5)
            .y_labels(4)
            .x_label_formatter(&|seconds| format!("{seconds:.0} s"))
            .y_label_formatter(&|value| format!("{value:.0}"))
            .draw()?;
        for ((name, colour), samples) in LOCKS.into_iter().zip(samples) {
            let points = samples.iter().map(|sample| (sample.seconds, value(sample)));
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
            let at = samples.first().map_or(0.0, |sample| sample.seconds);
            let style = ("sans-serif", 13).into_font().color(&colour);
            let text = Text::new(format!("lock {name}"), (at, highest * 0.5), style);
            chart.draw_series([text])?;
        }
    }
    area.present()?;
    drop((panels, area));
    // The page links to it.
    let text =
        "Callers that wait for one lock of the whole stock, and then for a lock of each article";
    Ok(svg.replacen(
        "<svg ",
        &format!("<svg id=\"contention\" role=\"img\" aria-label=\"{text}\" "),
        1,
    ))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("the path of the picture is missing")?;
    std::fs::write(path, draw(&measure().await?)?)?;
    Ok(())
}
