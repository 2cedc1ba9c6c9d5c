//! Measures the contenders in alternation, so that other load on the machine affects all of them alike.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;

/// The pause between two measurements, for background work of the first one to finish.
const SETTLE: Duration = Duration::from_millis(10);

/// A function that makes one measurement of one library.
pub(crate) type Contender<'a, T> = Box<dyn FnMut() -> LocalBoxFuture<'a, T> + 'a>;

/// Measures all contenders in every round. Each round begins with the next contender. An additional first
/// round is a warm-up and is discarded. Returns the measurements by contender, then by round.
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
