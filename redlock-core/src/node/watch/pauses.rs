//! The pauses between the attempts to connect to a server.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::error::NodeError;
use crate::jitter::jitter;

/// The first pause. Each pause is twice as long as the one before.
pub(crate) const FIRST: Duration = Duration::from_millis(20);
/// The longest pause. It is short enough to use a restarted server again within half a second.
const LONGEST: Duration = Duration::from_millis(320);
/// The longest pause after an error of the credentials or of TLS. The first pauses are short, so that a rotation of
/// files or passwords is a short outage. If the error persists, a person has to repair the configuration.
const LONGEST_WITHOUT_ACCESS: Duration = Duration::from_secs(5);
/// The pause after an error that is likely to persist: the user lacks a right, or another node of the manager already
/// uses this server.
pub(crate) const AFTER_REFUSAL: Duration = Duration::from_secs(5);

/// Pauses before the next attempt to connect, for a time that is jittered by a quarter. A request may end the pause by `wanted`,
/// so that a server that is back is used at once. There is at most one attempt in the time of the shortest pause.
///
/// `next` is the state of the pauses, which is [`FIRST`] in the beginning, and zero after a connection that has lasted.
pub(crate) async fn pause(error: &NodeError, next: &mut Duration, wanted: &Notify) {
    let pause = after(error, next);
    let jittered = pause.mul_f64(jitter(0.75..1.25));
    let until = Instant::now() + jittered.max(pause.min(FIRST));
    if ends_on_request(error) {
        sleep_until(until.min(Instant::now() + FIRST)).await;
        // Both outcomes end the pause.
        let _ = timeout_at(until, wanted.notified()).await;
    } else {
        sleep_until(until).await;
    }
}

/// Returns the pause after a failed attempt to connect, or after a connection that broke. `next` is the pause after an
/// error that may be over soon. It is zero after a connection that has lasted.
fn after(error: &NodeError, next: &mut Duration) -> Duration {
    let longest = match error {
        NodeError::NotPermitted(_) | NodeError::SameServer(_) => return AFTER_REFUSAL,
        NodeError::Credentials(_) | NodeError::Tls(_) => LONGEST_WITHOUT_ACCESS,
        _ => LONGEST,
    };
    let pause = longest.min(*next);
    *next = FIRST.max(pause * 2);
    pause
}

/// Returns whether a request may end the pause after this error. A server that refuses this client would only log more
/// refusals.
pub(crate) fn ends_on_request(error: &NodeError) -> bool {
    use NodeError::{Credentials, NotPermitted, SameServer, Tls};
    !matches!(error, NotPermitted(_) | SameServer(_) | Credentials(_) | Tls(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first twelve pauses after this error.
    fn pauses(error: &NodeError) -> Vec<u128> {
        let mut next = FIRST;
        (0..12).map(|_| after(error, &mut next).as_millis()).collect()
    }

    #[test]
    fn a_server_that_is_down_is_tried_again_within_a_third_of_a_second() {
        let expected = [20, 40, 80, 160, 320, 320, 320, 320, 320, 320, 320, 320];
        assert_eq!(pauses(&NodeError::NotConnected("refused".into())), expected);
    }

    #[test]
    fn wrong_credentials_and_certificates_are_tried_soon_and_then_rarely() {
        let expected = [20, 40, 80, 160, 320, 640, 1280, 2560, 5000, 5000, 5000, 5000];
        for error in [NodeError::Credentials("no file".into()), NodeError::Tls("expired".into())] {
            assert_eq!(pauses(&error), expected, "{error}");
        }
        assert_eq!(pauses(&NodeError::NotPermitted("NOPERM".into())), [5000; 12]);
    }

    #[test]
    fn after_long_pauses_another_error_has_a_short_one() {
        let mut next = FIRST;
        for _ in 0..12 {
            after(&NodeError::Tls("expired".into()), &mut next);
        }
        let broke = NodeError::NotConnected("it broke".into());
        assert_eq!(after(&broke, &mut next), LONGEST);
        // A connection has lasted.
        next = Duration::ZERO;
        assert_eq!(after(&broke, &mut next), Duration::ZERO);
        assert_eq!(after(&broke, &mut next), FIRST);
    }
}
