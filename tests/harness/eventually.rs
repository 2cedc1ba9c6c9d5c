//! Waiting for a condition instead of for a time.

use std::time::{Duration, Instant};

/// Asks for `condition` until it gives a value, which is returned.
///
/// # Panics
///
/// When there is none after `within`; the message names `what`.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use redlock_tests::eventually;
/// # tokio_test(async {
/// let mut asked = 0;
/// let value = eventually("the third time", Duration::from_secs(5), async || {
///     asked += 1;
///     (asked == 3).then_some("here")
/// })
/// .await;
/// assert_eq!(value, "here");
/// # });
/// # fn tokio_test(test: impl Future<Output = ()>) {
/// #     tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
/// # }
/// ```
pub async fn eventually<T>(
    what: &str,
    within: Duration,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + within;
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}
