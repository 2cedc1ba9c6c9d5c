//! Measures the cost of OpenTelemetry for a pair of an acquisition and a release, in memory.
//!
//! ```sh
//! cargo bench --bench sampling
//! ```
//!
//! Each row runs in processes of its own, which take turns. The rows with a tracer have a span for each request, and the request
//! makes one pair. The difference between the second row and the third one is the cost of the spans of the lock.

use std::process::Command;
use std::time::Instant;

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter};
use redlock_axum::LockManager;
use tracing::{Instrument, Level, info_span};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The rows: the share of the traces that is exported, and whether the locks have spans.
const ROWS: [(&str, Option<(f64, bool)>); 4] = [
    ("no subscriber", None),
    ("1 % sampled, spans of requests only", Some((0.01, false))),
    ("1 % sampled, with the spans of locks", Some((0.01, true))),
    ("all sampled, with the spans of locks", Some((1.0, true))),
];
const ROUNDS: usize = 15;
const WARM_UP: u32 = 2_000;
const PAIRS: u32 = 20_000;
/// The numbers of pairs of the two runs under callgrind, whose difference has no start of a program in it.
const FEW: u32 = 300;
const MANY: u32 = 2300;

/// Drops the spans.
#[derive(Debug)]
struct Nowhere;

impl SpanExporter for Nowhere {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

fn install(share: f64, has_locks: bool) -> SdkTracerProvider {
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(share)));
    let provider = SdkTracerProvider::builder().with_sampler(sampler);
    let provider = provider.with_batch_exporter(Nowhere).build();
    let of_locks = if has_locks { LevelFilter::DEBUG } else { LevelFilter::OFF };
    let spans = Targets::new().with_default(Level::INFO).with_target("redlock_core", of_locks);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("sampling"));
    tracing_subscriber::registry().with(layer.with_filter(spans)).init();
    provider
}

/// Runs requests with one pair each, and returns the nanoseconds of each one.
async fn pairs(locks: &LockManager, count: u32) -> f64 {
    let begun = Instant::now();
    for _ in 0..count {
        let request = async {
            let lock = locks.lock("order:42").named("order:{id}").try_acquire().await;
            lock.expect("a lock").release().await.expect("a release");
        };
        request.instrument(info_span!("request")).await;
    }
    begun.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}

/// Runs a row in this process, and prints its nanoseconds.
fn run(row: usize, warm_up: u32, count: u32) {
    let provider = ROWS[row].1.map(|(share, has_locks)| install(share, has_locks));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        let locks = LockManager::in_memory();
        pairs(&locks, warm_up).await;
        println!("{}", pairs(&locks, count).await);
    });
    provider.map(|provider| provider.shutdown()).transpose().expect("a tracer that ends");
}

/// Runs a row in a process of its own. Returns its output.
fn start(mut program: Command, row: usize, warm_up: u32, count: u32) -> String {
    program.arg(std::env::current_exe().expect("the path of this program"));
    program.args(["run", &row.to_string(), &warm_up.to_string(), &count.to_string()]);
    let output = program.output().expect("a started program");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8([output.stdout, output.stderr].concat()).expect("a text")
}

/// Returns the instructions of a pair, without those of threads that export; `None` without valgrind.
fn instructions(row: usize) -> Option<f64> {
    Command::new("valgrind").arg("--version").output().ok()?;
    let [few, many] = [FEW, MANY].map(|count| {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        let output = start(valgrind, row, 0, count);
        let (_, number) = output.split_once("Collected : ").expect("a number of instructions");
        number.split_whitespace().next().and_then(|number| number.parse::<f64>().ok())
    });
    Some((many? - few?) / f64::from(MANY - FEW))
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [command, numbers @ ..] = &*arguments
        && command == "run"
    {
        let number = |index: usize| numbers[index].parse().expect("a number");
        return run(numbers[0].parse().expect("a row"), number(1), number(2));
    }
    let mut times = ROWS.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (row, times) in times.iter_mut().enumerate() {
            let time = start(Command::new("env"), row, WARM_UP, PAIRS);
            times.push(time.trim().parse::<f64>().expect("a time"));
        }
    }
    println!("| request with one pair, in memory | us: median, quartiles | instructions |");
    println!("|---|---|---|");
    for (row, ((name, _), mut times)) in ROWS.into_iter().zip(times).enumerate() {
        times.sort_by(f64::total_cmp);
        let at = |quarter: usize| times[quarter * (times.len() - 1) / 4] / 1000.0;
        let counted = instructions(row).map_or("".to_owned(), |count| format!("{count:.0}"));
        println!("| {name} | {:.2} ({:.2} to {:.2}) | {counted} |", at(2), at(1), at(3));
    }
}
