//! Visits every state. Each test is one world: with all rules kept, every claim holds; with one rule broken, the checker
//! finds the steps that break a claim.
//!
//! `walks` takes random steps through worlds whose states are too many.
//!
//! Every run shows that each rule is needed. `REDLOCK_ALL_NODES=1` also checks the worlds with more than 260,000 states.
//! `cargo test -p redlock-model -- --nocapture` prints the number of states and the steps that break a claim.

mod exclusive;
mod fair;
mod lead;
mod pooler;
mod session;
mod sharing;
mod split;
mod waiting;
mod walks;

use redlock_model::{Check, World};

fn every<const NODES: usize, const CLIENTS: usize>(
    name: &'static str,
    world: World,
) -> Check<NODES, CLIENTS> {
    Check { name, world }
}
