//! Names of servers that lead to other addresses later.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::sleep;

use crate::jitter::jitter;

/// The time between two look-ups of a name, in seconds.
const LOOK_UP: std::ops::Range<u64> = 60..75;

/// Pauses before the next look-up of a name.
pub(crate) async fn pause() {
    sleep(Duration::from_secs(jitter(LOOK_UP))).await;
}

/// Completes when a name leads to another server than the connection that was made to the address `own`.
///
/// A name may have many addresses of one server, of which each answer has some. So `is_another` decides, which asks a new connection.
pub(crate) async fn moved<A, B>(
    own: SocketAddr,
    look_up: impl Fn() -> A,
    is_another: impl Fn() -> B,
) where
    A: Future<Output = std::io::Result<Vec<SocketAddr>>>,
    B: Future<Output = bool>,
{
    loop {
        pause().await;
        if leads_elsewhere(own, &look_up().await.unwrap_or_default()) && is_another().await {
            return;
        }
    }
}

/// Returns whether the addresses of a name are others than that of a connection. A name server that does not answer shows nothing.
pub(crate) fn leads_elsewhere<'a>(
    own: SocketAddr,
    addresses: impl IntoIterator<Item = &'a SocketAddr>,
) -> bool {
    let mut addresses = addresses.into_iter().peekable();
    addresses.peek().is_some() && addresses.all(|address| *address != own)
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::io;

    use futures_util::FutureExt;
    use tokio::time::{Instant, timeout};

    use super::*;

    fn address(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 5432))
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_name_that_leads_to_another_server_has_moved() {
        let hour = Duration::from_secs(3600);
        for (answer, is_another, has_moved) in [
            (Some(vec![1]), true, false),
            (Some(vec![2, 1]), true, false),
            (Some(vec![2]), false, false),
            (Some(vec![]), true, false),
            (None, true, false),
            (Some(vec![2]), true, true),
        ] {
            let answer = &answer;
            let look_up = || {
                let found = answer.as_ref().map(|list| list.iter().copied().map(address).collect());
                ready(found.ok_or_else(|| io::ErrorKind::NotFound.into()))
            };
            let begun = Instant::now();
            let moved = timeout(hour, moved(address(1), look_up, || ready(is_another))).await;
            assert_eq!(moved.is_ok(), has_moved, "{answer:?} {is_another}");
            assert!(!has_moved || begun.elapsed() <= Duration::from_secs(75));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_not_looked_up_before_a_minute_is_over() {
        let look_up = || -> std::future::Ready<io::Result<Vec<SocketAddr>>> { unreachable!() };
        let moved = moved(address(1), look_up, || ready(true));
        assert!(timeout(Duration::from_secs(59), moved).await.is_err());
        assert!(pause().now_or_never().is_none());
    }
}
