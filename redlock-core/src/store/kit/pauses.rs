//! The attempts to connect to a server, and the pauses between them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::error::NodeError;
use crate::jitter::jitter;
use crate::node::{NodeStatus, StatusReceiver};

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
/// After a connection that lasted for less than this, the pauses go on growing.
pub(crate) const SHORT_LIVED: Duration = Duration::from_secs(1);
/// How many pauses callers may end at once. The first callers after an outage need one or two.
const EARLY_ATTEMPTS: u32 = 3;
/// The time after which callers may end one pause more. It is so long that the traffic of a service adds little to the attempts
/// that are made without it.
const EARLY_PERIOD: Duration = Duration::from_secs(2);

/// The pauses between the attempts to make one connection.
///
/// A pause doubles with each attempt, until a connection has lasted, and is jittered by a quarter. A caller that waits for the
/// server may end a pause, so that a server that is back is used at once. Callers may do that [a few times](EARLY_ATTEMPTS) only,
/// so that the number of attempts does not grow with the traffic: a server that has just come back would get a storm of connections.
#[derive(Debug)]
pub(crate) struct Pauses {
    /// The next pause after an error that may be over soon. It is zero after a connection that has lasted.
    next: Duration,
    /// When callers may end [`EARLY_ATTEMPTS`] pauses again.
    early_at: Instant,
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self { next: FIRST, early_at: Instant::now() }
    }

    /// Records that a connection has ended, which lasted for this time.
    pub(crate) fn record_connection(&mut self, lasted: Duration) {
        if lasted >= SHORT_LIVED {
            self.next = Duration::ZERO;
        }
    }

    /// Records that the server has refused the login. The first pause is as long as the later ones.
    pub(crate) fn record_refusal(&mut self) {
        self.next = AFTER_REFUSAL;
    }

    /// Pauses before the next attempt to connect. There is at most one attempt in the time of the shortest pause.
    pub(crate) async fn pause(&mut self, error: &NodeError, callers: &WaitingCallers) {
        let pause = self.after(error);
        let jittered = pause.mul_f64(jitter(0.75..1.25));
        let until = Instant::now() + jittered.max(pause.min(FIRST));
        callers.is_pausing.store(true, Ordering::Release);
        if ends_on_request(error) && self.has_early_attempt() {
            sleep_until(until.min(Instant::now() + FIRST)).await;
            if timeout_at(until, callers.wanted.notified()).await.is_ok() && Instant::now() < until
            {
                self.early_at = self.early_at.max(Instant::now()) + EARLY_PERIOD;
            }
        } else {
            sleep_until(until).await;
        }
        callers.is_pausing.store(false, Ordering::Release);
    }

    fn has_early_attempt(&self) -> bool {
        let spent = self.early_at.saturating_duration_since(Instant::now());
        spent <= EARLY_PERIOD * (EARLY_ATTEMPTS - 1)
    }

    /// Returns the pause after a failed attempt to connect, or after a connection that broke.
    fn after(&mut self, error: &NodeError) -> Duration {
        let longest = match error {
            NodeError::NotPermitted(_) | NodeError::SameServer(_) => return AFTER_REFUSAL,
            NodeError::Credentials(_) | NodeError::Tls(_) => LONGEST_WITHOUT_ACCESS,
            _ => LONGEST,
        };
        let pause = longest.min(self.next);
        self.next = FIRST.max(pause * 2);
        pause
    }
}

/// Returns whether a caller may end the pause after this error. A server that refuses this client would only log more
/// refusals.
fn ends_on_request(error: &NodeError) -> bool {
    use NodeError::{Credentials, NotPermitted, SameServer, Tls};
    !matches!(error, NotPermitted(_) | SameServer(_) | Credentials(_) | Tls(_))
}

/// The callers that wait for the next attempt to connect.
#[derive(Debug, Default)]
pub(crate) struct WaitingCallers {
    /// Notified when a caller begins to wait.
    wanted: Notify,
    /// Whether there is no attempt at the moment.
    is_pausing: AtomicBool,
}

impl WaitingCallers {
    /// Waits for the end of the next attempt to connect, which is made soon. Returns at once after an `error` that a caller does
    /// not wait for. `status` is sent at the end of each attempt, and of each connection. Returns whether the server is connected.
    pub(crate) async fn wait(
        &self,
        error: Option<&NodeError>,
        status: StatusReceiver,
        is_connected: impl Fn() -> bool,
    ) -> bool {
        if error.is_some_and(|error| !ends_on_request(error)) {
            return false;
        }
        // Otherwise the first status may be that of an attempt that had begun before this call.
        let mut left = if self.is_pausing.load(Ordering::Acquire) { 1 } else { 2 };
        self.wanted.notify_one();
        let is_tried = |_: &NodeStatus| {
            let is_over = left == 0;
            left = usize::saturating_sub(left, 1);
            is_over || is_connected()
        };
        status.wait_for(is_tried).await;
        is_connected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first twelve pauses after this error.
    fn pauses(error: &NodeError) -> Vec<u128> {
        let mut pauses = Pauses::new();
        (0..12).map(|_| pauses.after(error).as_millis()).collect()
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
        let mut pauses = Pauses::new();
        for _ in 0..12 {
            pauses.after(&NodeError::Tls("expired".into()));
        }
        let broke = NodeError::NotConnected("it broke".into());
        assert_eq!(pauses.after(&broke), LONGEST);
        pauses.record_connection(SHORT_LIVED);
        assert_eq!(pauses.after(&broke), Duration::ZERO);
        assert_eq!(pauses.after(&broke), FIRST);
    }

    /// Callers wait all the time.
    #[tokio::test(start_paused = true)]
    async fn callers_end_a_few_pauses_and_then_one_in_two_seconds() {
        let (error, callers) =
            (NodeError::NotConnected("refused".into()), WaitingCallers::default());
        let mut pauses = Pauses::new();
        for _ in 0..12 {
            pauses.after(&error);
        }
        let mut early = async |time: Duration| {
            let (begun, mut early) = (Instant::now(), 0);
            while begun.elapsed() < time {
                callers.wanted.notify_one();
                let pause = Instant::now();
                pauses.pause(&error, &callers).await;
                early += u32::from(pause.elapsed() == FIRST);
            }
            early
        };
        assert_eq!(early(FIRST * EARLY_ATTEMPTS).await, EARLY_ATTEMPTS);
        let early = early(10 * EARLY_PERIOD).await;
        assert!((9..=11).contains(&early), "{early}");
    }
}
