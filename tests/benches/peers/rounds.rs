//! Rounds in which everybody has a turn, so that what else the machine does hits all alike.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;

/// What is still under way after a measurement shall not be part of the next.
const SETTLE: Duration = Duration::from_millis(10);

/// One who is measured.
pub(crate) type Contender<'a, T> = Box<dyn FnMut() -> LocalBoxFuture<'a, T> + 'a>;

/// Measures all contenders in every round, another one first each time. A round before the first
/// warms them up and does not count. Returns the measurements of each contender by rounds.
pub(crate) async fn interleave<T>(
    rounds: usize,
    mut contenders: Vec<Contender<'_, T>>,
) -> Vec<Vec<T>> {
    let count = contenders.len();
    let mut measured: Vec<Vec<T>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..=rounds {
        for turn in 0..count {
            let contender = (round + turn) % count;
            let figures = contenders[contender]().await;
            if round > 0 {
                measured[contender].push(figures);
            }
            tokio::time::sleep(SETTLE).await;
        }
    }
    measured
}
