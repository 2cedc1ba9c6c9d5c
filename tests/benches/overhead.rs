//! Measures the time and the allocations per request that the attribute, the layer and the policies add to a
//! handler that calls the manager itself. The lock is on a memory node, so that neither a network nor a server
//! adds to the figures.
//!
//! ```text
//! cargo bench -p redlock-tests --bench overhead
//! ```
//!
//! A middleware that does nothing costs time too, which axum spends on the call of another service. So the
//! target allows an empty middleware and half a microsecond: the time that a variant adds to the lock in the
//! handler, minus the time that an empty middleware adds to the bare route, is at most 500 ns.

#![allow(clippy::cast_precision_loss, reason = "figures for a reader")]
#![allow(clippy::expect_used, reason = "a benchmark that cannot continue must stop")]

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use redlock_axum::{LockLayer, LockManager, LockPolicies, LockPolicy, redis_lock};
use tokio::runtime::{Builder, Runtime};
use tower::{Service, ServiceExt};

const ROUTE: &str = "/orders/{id}/pay";
const LEASE: Duration = Duration::from_secs(5);
const ROUNDS: usize = 31;
const REQUESTS: u32 = 2000;
/// The most nanoseconds beyond the lock and an empty middleware.
const MOST_NANOS: f64 = 500.0;
/// The most allocations beyond the lock.
const MOST_ALLOCATIONS: f64 = 8.0;

async fn bare(Path(id): Path<u64>) -> &'static str {
    std::hint::black_box(id);
    "paid"
}

#[redis_lock(key = "order:{id}", expire = 5)]
async fn attribute(Path(id): Path<u64>) -> &'static str {
    std::hint::black_box(id);
    "paid"
}

async fn by_hand(locks: LockManager, id: u64) -> &'static str {
    let guard = locks.lock(format!("order:{id}")).expire(LEASE).acquire().await;
    let guard = guard.expect("the lock is free");
    std::hint::black_box(id);
    guard.release().await.expect("the lock is held");
    "paid"
}

/// One variant of the route.
struct Variant {
    name: &'static str,
    app: Router,
    /// Nanoseconds per request, one figure per round.
    times: Vec<f64>,
    allocations: f64,
    bytes: f64,
}

impl Variant {
    fn new(name: &'static str, app: Router) -> Self {
        Self { name, app, times: Vec::new(), allocations: 0.0, bytes: 0.0 }
    }

    fn serve(&mut self, runtime: &Runtime, requests: u32) {
        let app = &mut self.app;
        runtime.block_on(async {
            for _ in 0..requests {
                let request = Request::post("/orders/42/pay").body(Body::empty());
                let ready = ServiceExt::<Request<Body>>::ready(app).await;
                let app = ready.expect("a router is always ready");
                let response = app.call(request.expect("a request")).await;
                let status = response.expect("a router does not fail").status();
                assert_eq!(status, StatusCode::OK, "the handler ran");
            }
        });
    }

    /// Returns by how many nanoseconds per request this variant is slower, one figure per round.
    fn slower_than(&self, other: &Self) -> impl Iterator<Item = f64> {
        self.times.iter().zip(&other.times).map(|(this, that)| this - that)
    }
}

fn variants() -> Vec<Variant> {
    let locks = LockManager::in_memory();
    let route = |handler| Router::new().route(ROUTE, handler);
    let policies = LockPolicies::new([LockPolicy::new(ROUTE, "order:{id:u64}").expire(LEASE)]);
    let policies = policies.expect("a policy").manager(locks.clone());
    let layer = LockLayer::new("order:{id:u64}").expire(LEASE).manager(locks.clone());
    let empty = tower::util::MapRequestLayer::new(|request: Request<Body>| request);
    let hand = locks.clone();
    let hand = move |Path(id): Path<u64>| by_hand(hand.clone(), id);
    vec![
        Variant::new("bare route", route(post(bare))),
        Variant::new("lock in the handler", route(post(hand))),
        Variant::new("attribute", Router::new().route(ROUTE, post(attribute)).with_state(locks)),
        Variant::new("layer", route(post(bare).route_layer(layer))),
        Variant::new("policies", route(post(bare)).layer(policies)),
        Variant::new("empty middleware", route(post(bare).route_layer(empty))),
    ]
}

fn main() {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut variants = variants();
    for variant in &mut variants {
        variant.serve(&runtime, REQUESTS);
        let counted = allocation_counter::measure(|| variant.serve(&runtime, REQUESTS));
        variant.allocations = counted.count_total as f64 / f64::from(REQUESTS);
        variant.bytes = counted.bytes_total as f64 / f64::from(REQUESTS);
    }
    for round in 0..ROUNDS {
        for turn in 0..variants.len() {
            let index = (round + turn) % variants.len();
            let begun = Instant::now();
            variants[index].serve(&runtime, REQUESTS);
            let time = begun.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS);
            variants[index].times.push(time);
        }
    }
    print(&variants);
}

fn print(variants: &[Variant]) {
    println!(
        "{ROUNDS} rounds. In each round, every variant serves {REQUESTS} requests. Figures: median of the rounds \
         (smallest-largest).\n"
    );
    let head = [
        "variant",
        "ns",
        "allocations",
        "bytes",
        "ns beyond the bare route",
        "ns beyond the lock in the handler",
        "ns beyond the lock and an empty middleware",
        "allocations beyond the lock",
        "target",
        "met",
    ];
    println!("| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
    let [bare, hand, with_lock @ .., empty] = variants else { return };
    for variant in [bare, empty, hand] {
        let to_bare = if std::ptr::eq(variant, bare) {
            String::new()
        } else {
            summary(variant.slower_than(bare)).1
        };
        println!("| {} | {to_bare} |  |  |  |  |  |", cells(variant));
    }
    for variant in with_lock {
        let (_, to_bare) = summary(variant.slower_than(bare));
        let (_, to_hand) = summary(variant.slower_than(hand));
        let beyond = variant.slower_than(hand).zip(empty.slower_than(bare));
        let (nanos, beyond) = summary(beyond.map(|(added, empty)| added - empty));
        let more = variant.allocations - hand.allocations;
        let met = nanos <= MOST_NANOS && more <= MOST_ALLOCATIONS;
        let met = if met { "yes" } else { "**no**" };
        println!(
            "| {} | {to_bare} | {to_hand} | {beyond} | {more:.1} | <= {MOST_NANOS} ns, <= {MOST_ALLOCATIONS} \
             allocations | {met} |",
            cells(variant)
        );
    }
}

/// Returns the first cells of a variant.
fn cells(variant: &Variant) -> String {
    let Variant { name, allocations, bytes, .. } = variant;
    let (_, time) = summary(variant.times.iter().copied());
    format!("{name} | {time} | {allocations:.1} | {bytes:.0}")
}

/// Returns the median, and a text of the median, the smallest and the largest figure.
fn summary(figures: impl Iterator<Item = f64>) -> (f64, String) {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
    let (least, median, most) = (at(0), at(figures.len() / 2), at(figures.len().saturating_sub(1)));
    (median, format!("{median:.0} ({least:.0}-{most:.0})"))
}
