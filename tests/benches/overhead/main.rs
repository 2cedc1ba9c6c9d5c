//! Measures the time per request that the attribute, the layer and the policies add to a
//! handler that calls the manager itself. The lock is on a memory node, so that neither a network nor a server
//! adds to the figures.
//!
//! ```text
//! cargo bench -p redlock-tests --bench overhead
//! ```
//!
//! `http/allocations.rs` counts the allocations.
//!
//! A middleware that does nothing costs time too, which axum spends on the call of another service. So the
//! target allows an empty middleware and half a microsecond: the time that a variant adds to the lock in the
//! handler, minus the time that an empty middleware adds to the bare route, is at most 500 ns.

#![allow(clippy::cast_precision_loss, reason = "figures for a reader")]
#![allow(clippy::expect_used, reason = "a benchmark that cannot continue must stop")]

mod uploads;
mod variants;

use std::time::Instant;

use tokio::runtime::Builder;
use uploads::uploads;
use variants::{Variant, variants};

const ROUNDS: usize = 31;
const REQUESTS: u32 = 2000;
/// The most nanoseconds beyond the lock and an empty middleware.
const MOST_NANOS: f64 = 500.0;

/// The nanoseconds per request of a variant, one figure per round.
struct Times {
    name: &'static str,
    nanos: Vec<f64>,
}

impl Times {
    /// Returns by how many nanoseconds per request this variant is slower, one figure per round.
    fn slower_than(&self, other: &Self) -> impl Iterator<Item = f64> {
        self.nanos.iter().zip(&other.nanos).map(|(this, that)| this - that)
    }
}

fn main() {
    println!(
        "{ROUNDS} rounds. In each round, every variant serves {REQUESTS} requests. Figures: median of the rounds \
         (smallest-largest).\n"
    );
    print(&measure(variants()));
    print_uploads(&measure(uploads()));
}

fn measure<const N: usize>(mut variants: [Variant; N]) -> [Times; N] {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut times =
        variants.each_ref().map(|Variant { name, .. }| Times { name, nanos: Vec::new() });
    for round in 0..ROUNDS {
        for turn in 0..variants.len() {
            let index = (round + turn) % variants.len();
            let begun = Instant::now();
            variants[index].serve(&runtime, REQUESTS);
            let nanos = begun.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS);
            times[index].nanos.push(nanos);
        }
    }
    times
}

fn print([bare, hand, with_lock @ .., empty]: &[Times; 6]) {
    let head = [
        "variant",
        "ns",
        "ns beyond the bare route",
        "ns beyond the lock in the handler",
        "ns beyond the lock and an empty middleware",
        "target",
        "met",
    ];
    println!("| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
    for times in [bare, empty, hand] {
        let to_bare = summary(times.slower_than(bare)).1;
        println!("| {} | {to_bare} |  |  |  |  |", cells(times));
    }
    for times in with_lock {
        let (_, to_bare) = summary(times.slower_than(bare));
        let (_, to_hand) = summary(times.slower_than(hand));
        let beyond = times.slower_than(hand).zip(empty.slower_than(bare));
        let (nanos, beyond) = summary(beyond.map(|(added, empty)| added - empty));
        let met = if nanos <= MOST_NANOS { "yes" } else { "**no**" };
        println!(
            "| {} | {to_bare} | {to_hand} | {beyond} | <= {MOST_NANOS} ns | {met} |",
            cells(times)
        );
    }
}

/// Prints the times of requests whose body the layer keeps in memory until it has the lock.
fn print_uploads([bare, hand, layer]: &[Times; 3]) {
    println!(
        "\n| variant | ns | ns beyond the bare route | ns beyond the lock in the handler |\n|---|---|---|---|"
    );
    println!("| {} |  |  |", cells(bare));
    println!("| {} | {} |  |", cells(hand), summary(hand.slower_than(bare)).1);
    let beyond = [bare, hand].map(|other| summary(layer.slower_than(other)).1);
    println!("| {} | {} |", cells(layer), beyond.join(" | "));
}

/// Returns the first cells of a variant.
fn cells(Times { name, nanos }: &Times) -> String {
    let (_, time) = summary(nanos.iter().copied());
    format!("{name} | {time}")
}

/// Returns the median, and a text of the median, the smallest and the largest figure.
fn summary(figures: impl Iterator<Item = f64>) -> (f64, String) {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
    let (least, median, most) = (at(0), at(figures.len() / 2), at(figures.len().saturating_sub(1)));
    (median, format!("{median:.0} ({least:.0}-{most:.0})"))
}
