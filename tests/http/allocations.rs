//! Counts the allocations that the attribute, the layer and the policies add to a handler that calls the manager
//! itself. A test of its own, because it replaces the allocator.

#[path = "../benches/overhead/variants.rs"]
mod variants;

use tokio::runtime::Builder;
use variants::variants;

/// The most allocations beyond the lock.
const MOST: u64 = 9;
const REQUESTS: u32 = 100;

#[test]
fn each_way_to_lock_a_route_needs_few_allocations_beyond_the_lock() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let [_, hand, ways @ .., _] = variants().map(|mut variant| {
        // The first requests allocate what later ones use again.
        variant.serve(&runtime, REQUESTS);
        let counted = allocation_counter::measure(|| variant.serve(&runtime, REQUESTS));
        (variant.name, counted.count_total / u64::from(REQUESTS))
    });
    for (name, allocations) in ways {
        let beyond = allocations - hand.1;
        println!("{name}: {beyond} allocations beyond the {} of the {}", hand.1, hand.0);
        assert!(beyond <= MOST, "{name}: {beyond} allocations beyond the lock");
    }
}
