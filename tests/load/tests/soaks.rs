//! Short runs of the soak. The program `soak` is for long ones.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use redlock_load::{Report, Soak};
use tokio::sync::Mutex;

/// The runs disturb each other.
static ALONE: Mutex<()> = Mutex::const_new(());

/// A program that was built without optimization on a machine that is busy may be late.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

fn soak() -> Soak {
    Soak {
        service: env!("CARGO_BIN_EXE_load-service").into(),
        time: Duration::from_secs(15),
        seed: u64::from(rand::random::<u32>()),
        guarded: true,
        pause: Duration::from_millis(1500)..Duration::from_secs(4),
        vanishing: 125,
        bursts: 1,
        burst_requests: 500,
        node_timeout: Some(NODE_TIMEOUT),
    }
}

async fn run(soak: Soak) -> Report {
    let _alone = ALONE.lock().await;
    let report = soak.run().await.unwrap();
    println!("{report}");
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_killed_now_and_then_break_no_promise() {
    let report = run(soak()).await;
    assert_eq!(report.violations(), [""; 0], "{report}");
    assert!(report.kills() >= 2, "{report}");
}

/// The same kills, so fast that a majority forgets a lock while it is held: without the restart guard
/// the detector finds overlaps, and with it there are none.
#[tokio::test(flavor = "multi_thread")]
async fn a_majority_that_forgets_locks_is_found_out_unless_it_is_guarded() {
    let fast = Soak {
        time: Duration::from_secs(8),
        pause: Duration::from_millis(20)..Duration::from_millis(80),
        bursts: 0,
        ..soak()
    };
    // Whether enough servers forget in the right moment is a matter of chance.
    let mut unguarded = 0;
    for seed in fast.seed..fast.seed + 5 {
        let report = run(Soak { seed, guarded: false, ..fast.clone() }).await;
        unguarded += report.overlaps().len();
        if unguarded > 0 {
            break;
        }
    }
    assert!(unguarded > 0, "no overlap was found without the guard");
    // So few servers vote that hardly a lock is granted.
    let guarded = run(fast).await;
    assert_eq!(guarded.overlaps(), [], "{guarded}");
    assert!(guarded.kills() >= 10, "{guarded}");
}
