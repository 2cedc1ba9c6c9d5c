//! What the attribute, the layer and the policies add to a bare axum route, and to a lock that is taken
//! by hand in the handler: in time and in allocations per request. In memory, so that nothing else is
//! in the way.
//!
//!     cargo bench -p redlock-tests --bench overhead

#![allow(clippy::cast_precision_loss, reason = "figures to look at")]
#![allow(clippy::expect_used, reason = "a bench that cannot go on has to stop")]

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Path;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use axum::{Extension, Router};
use redlock_axum::{LockLayer, LockManager, LockPolicies, LockPolicy, redis_lock};
use tokio::runtime::{Builder, Runtime};
use tower::{Service, ServiceExt};

const ROUTE: &str = "/orders/{id}/pay";
const LEASE: Duration = Duration::from_secs(5);
const ROUNDS: usize = 31;
const REQUESTS: u32 = 2000;
const LONGEST: f64 = 2000.0;
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
    let guard = guard.expect("a lock that is free");
    std::hint::black_box(id);
    guard.release().await.expect("a lock that is held");
    "paid"
}

/// One way to serve the route.
struct Way {
    name: &'static str,
    app: Router,
    /// Nanoseconds per request, of each round.
    times: Vec<f64>,
    allocations: f64,
    bytes: f64,
}

impl Way {
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

    /// The median over the rounds of how much longer than the other it takes.
    fn longer_than(&self, other: &Self) -> f64 {
        median(self.times.iter().zip(&other.times).map(|(this, that)| this - that))
    }
}

fn ways() -> Vec<Way> {
    let locks = LockManager::in_memory();
    let route = |handler| Router::new().route(ROUTE, handler);
    let policies = LockPolicies::new([LockPolicy::new(ROUTE, "order:{id:u64}").expire(LEASE)]);
    let policies = policies.expect("a policy").manager(locks.clone());
    let layer = LockLayer::new("order:{id:u64}").expire(LEASE).manager(locks.clone());
    let nothing = tower::layer::util::Identity::new();
    let hand = locks.clone();
    let hand = move |Path(id): Path<u64>| by_hand(hand.clone(), id);
    vec![
        Way::new("bare route", route(post(bare))),
        Way::new("lock by hand in the handler", route(post(hand))),
        Way::new("attribute", route(post(attribute)).layer(Extension(locks))),
        Way::new("layer", route(post(bare).route_layer(layer))),
        Way::new("policies", route(post(bare)).layer(policies)),
        Way::new("a layer that does nothing", route(post(bare).route_layer(nothing))),
    ]
}

fn main() {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut ways = ways();
    for way in &mut ways {
        way.serve(&runtime, REQUESTS);
        let counted = allocation_counter::measure(|| way.serve(&runtime, REQUESTS));
        way.allocations = counted.count_total as f64 / f64::from(REQUESTS);
        way.bytes = counted.bytes_total as f64 / f64::from(REQUESTS);
    }
    for round in 0..ROUNDS {
        for turn in 0..ways.len() {
            let index = (round + turn) % ways.len();
            let begun = Instant::now();
            ways[index].serve(&runtime, REQUESTS);
            let time = begun.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS);
            ways[index].times.push(time);
        }
    }
    print(&ways);
}

fn print(ways: &[Way]) {
    println!("{ROUNDS} rounds of {REQUESTS} requests each, in turns; medians.\n");
    println!(
        "| a request | ns | allocations | bytes | beyond the bare route | beyond the lock by hand | target | met |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let [bare, hand, .., nothing] = ways else { return };
    for way in ways {
        let time = median(way.times.iter().copied());
        let Way { name, allocations, bytes, .. } = way;
        print!("| {name} | {time:.0} | {allocations:.1} | {bytes:.0} | ");
        let beyond = |other: &Way| {
            let (longer, more) = (way.longer_than(other), allocations - other.allocations);
            (format!("{longer:.0} ns, {more:.1} allocations"), longer, more)
        };
        let (beyond_bare, ..) = beyond(bare);
        let (beyond_hand, longer, more) = beyond(hand);
        if way.name == bare.name {
            println!(" |  |  |  |");
        } else if way.name == hand.name || way.name == nothing.name {
            println!("{beyond_bare} |  |  |  |");
        } else {
            let met = longer <= LONGEST && more <= MOST_ALLOCATIONS;
            let met = if met { "yes" } else { "**no**" };
            println!("{beyond_bare} | {beyond_hand} | <= 2 us, <= 8 allocations | {met} |");
        }
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
