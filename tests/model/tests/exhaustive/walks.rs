//! Random walks through worlds of waiting with up to four callers and every fault at once.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redlock_model::fair;
use redlock_model::waiting::{World, walk};

/// Which of four callers are readers, by the bits of the index.
static READERS: [[bool; 4]; 16] = {
    let mut all = [[false; 4]; 16];
    let mut at = 0;
    while at < 64 {
        all[at / 4][at % 4] = (at / 4) >> (at % 4) & 1 == 1;
        at += 1;
    }
    all
};

fn worlds() -> impl Strategy<Value = World> {
    let wait_time = prop_oneof![
        3 => Just(None),
        1 => (20_u64..400).prop_map(|time| Some(Duration::from_millis(time))),
    ];
    let callers = (0_usize..16, 2_usize..=4, prop_oneof![Just(1), Just(3)], any::<bool>());
    let endless = prop_oneof![3 => Just(None), 1 => (0_usize..4).prop_map(Some)];
    let faults = (0_u8..3, 0_u8..3, 0_u8..7, 0_u8..3, 0_u8..3, 0_u8..2);
    let more = (0_u8..3, 0_u8..5, prop_oneof![Just(None), (0_usize..4).prop_map(Some)]);
    (callers, endless, wait_time, faults, more).prop_map(
        |((pattern, callers, nodes, joins), endless, wait_time, faults, (marks, agains, long))| {
            let (drops, outages, others, splits, losses, shutdowns) = faults;
            World {
                name: "a random world",
                readers: &READERS[pattern][..callers],
                joins,
                nodes,
                endless,
                wait_time,
                drops,
                outages,
                others,
                marks,
                agains,
                long,
                splits,
                losses,
                shutdowns,
                ..World::CALM
            }
        },
    )
}

/// The processes of four fair callers.
static PROCESSES: [[usize; 4]; 5] =
    [[0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 1, 2], [0, 1, 2, 3]];

fn fair_worlds() -> impl Strategy<Value = fair::World> {
    let faults = (0_u8..3, 0_u8..3, 0_u8..3, 0_u8..3, 0_u8..2, 0_u8..2);
    let callers = (0_usize..5, 2_usize..=4, 1_usize..=2, any::<bool>());
    (callers, faults).prop_map(|((pattern, callers, nodes, is_ordered), faults)| {
        let (drops, outages, losses, timeouts, stalls, shutdowns) = faults;
        fair::World {
            name: "a random world",
            processes: &PROCESSES[pattern][..callers],
            nodes,
            is_ordered,
            drops,
            outages,
            losses,
            timeouts,
            stalls,
            shutdowns,
            ends_after: Duration::from_secs(10),
            ..fair::World::CALM
        }
    })
}

/// Tries as many walks as take a second. `PROPTEST_CASES` overrides the number.
fn config() -> ProptestConfig {
    let from_env = std::env::var_os("PROPTEST_CASES").map(|_| ProptestConfig::default().cases);
    let cases = from_env.unwrap_or(6000);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn waiters_keep_the_claims_on_random_walks(
        world in worlds(),
        choices in vec(any::<u16>(), 1..160),
    ) {
        if let Err((claim, steps)) = walk(world, &choices) {
            prop_assert!(false, "{claim} is broken by these steps: {steps:#?}");
        }
    }

    #[test]
    fn fair_waiters_keep_the_claims_on_random_walks(
        world in fair_worlds(),
        choices in vec(any::<u16>(), 1..200),
    ) {
        if let Err((claim, steps)) = fair::walk(world, &choices) {
            prop_assert!(false, "{claim} is broken by these steps: {steps:#?}");
        }
    }
}
