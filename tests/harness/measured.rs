//! Measurements, which a busy machine can only make worse.

use std::fmt::Display;

/// The number of tries of a measurement.
const TRIES: usize = 5;

/// Measures until a figure keeps its promise, at most five times, and prints every figure.
///
/// A test that calls this lives in a module with the name `measured`: `tests/run.sh` runs those tests after all others,
/// one at a time.
///
/// # Panics
///
/// If five figures broke the promise. The message has all figures.
///
/// # Examples
///
/// ```
/// # use redlock_tests::best_of_five;
/// # tokio_test(async {
/// best_of_five("round trips of a wake-up, at most 4", async || 3.7, |trips| *trips <= 4.0).await;
/// # });
/// # fn tokio_test(test: impl Future<Output = ()>) {
/// #     tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test)
/// # }
/// ```
pub async fn best_of_five<T: Display>(
    what: &str,
    mut measure: impl AsyncFnMut() -> T,
    keeps: impl Fn(&T) -> bool,
) {
    let mut figures = Vec::new();
    for number in 1..=TRIES {
        let figure = measure().await;
        println!("{what}: try {number} of {TRIES}: {figure}");
        if keeps(&figure) {
            return;
        }
        figures.push(figure.to_string());
    }
    panic!("{what}: {} (other work on the machine makes these worse)", figures.join(", "));
}
