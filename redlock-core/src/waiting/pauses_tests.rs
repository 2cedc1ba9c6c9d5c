//! The length of pauses.

use std::time::Duration;

use super::Instant;
use super::pauses::{Backoff, Now};
use crate::jitter::jitter;

const MILLI: Duration = Duration::from_millis(1);

fn now() -> Now {
    Now { at: Instant::now(), chance: || jitter(0.0..1.0) }
}

#[test]
fn pauses_grow_up_to_a_limit_and_vary() {
    let (first, longest) = (4 * MILLI, 400 * MILLI);
    let mut backoff = Backoff::new();
    let pauses: Vec<_> = (0..50).map(|_| backoff.pause(&now())).collect();
    assert!((first / 2..=first).contains(&pauses[0]));
    assert!(pauses.iter().all(|pause| (first / 2..=longest).contains(pause)));
    assert!(pauses[20..].iter().all(|pause| *pause >= longest / 2));
    assert_ne!(pauses[30], pauses[31]);
}

#[test]
fn a_poll_does_not_sleep_past_the_lease_of_the_holder() {
    assert_eq!(now().poll_pause(MILLI), 3 * MILLI);
    let long = now().poll_pause(Duration::from_secs(60));
    assert!((250 * MILLI..500 * MILLI).contains(&long), "{long:?}");
}
