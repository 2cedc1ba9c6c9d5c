//! Polling a condition until a deadline, or as long as it makes progress, instead of sleeping.

use std::time::{Duration, Instant};

/// Calls `condition` again and again until it returns `Some`, and returns the value.
///
/// # Panics
///
/// If `condition` has returned no value after `within`. The message contains `what`.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use redlock_tests::eventually;
/// # tokio_test(async {
/// let mut calls = 0;
/// let value = eventually("the third call", Duration::from_secs(5), async || {
///     calls += 1;
///     (calls == 3).then_some("here")
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
        assert!(Instant::now() < deadline, "condition not met within {within:?}: {what}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Waits until a count has reached `goal`, for as long as it grows: a busy machine may need minutes for all of it.
///
/// # Panics
///
/// If the count has not grown for the time `idle`. The message contains `what`.
pub async fn reaches(what: &str, goal: usize, idle: Duration, count: impl Fn() -> usize) {
    let mut reached = 0;
    while reached < goal {
        let former = reached;
        let grows = async || {
            let now = count();
            (now > former || now >= goal).then_some(now)
        };
        reached = eventually(&format!("{what}: {reached} of {goal}"), idle, grows).await;
    }
}
