//! The options that layers and policies share.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::StatusCode;
use redlock_core::LockRequest;

use crate::error::SetupError;

/// The leases that core takes. It would refuse others, too, but only at the first request.
const EXPIRE: RangeInclusive<Duration> = Duration::from_millis(10)..=WEEK;
const WAIT_TIME: RangeInclusive<Duration> = Duration::ZERO..=WEEK;
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Says how long a layer or a policy holds its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum HoldUntil {
    /// Until the handler has returned its response. What the response's body does while it is sent
    /// is no longer locked.
    #[default]
    Response,
    /// Until the response's body has been sent, has failed, or was dropped because the client went
    /// away. For handlers that work while they stream.
    ///
    /// The lease must last that long, so consider [`renew`](crate::LockLayer::renew). What comes
    /// after an upgrade, such as the messages of a WebSocket, is not part of the body. The body is
    /// sent outside of the request's [`scope`](crate::scope): a body that asks for the request's own
    /// lock meets a stranger's.
    EndOfBody,
}

/// Says what becomes of a handler whose lock is lost while it runs: because its lease has run out,
/// could not be renewed, or is gone from a quorum of nodes. In each case a warning is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum OnLost {
    /// It goes on, and its response is sent. For handlers that look at their
    /// [`HeldLock`](crate::HeldLock) themselves, or whose work does no harm when it is done twice.
    #[default]
    KeepGoing,
    /// It is dropped at the `await` where it stands, and the request is answered with 503, a
    /// [`RejectionKind::Lost`](crate::RejectionKind::Lost). A body that is still being sent, with
    /// [`HoldUntil::EndOfBody`], ends with an error.
    ///
    /// What the handler has done by then is done, and what it has spawned goes on. A handler that
    /// does not await is not stopped.
    Abort,
}

/// How long a request waits for its lock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Wait {
    #[default]
    Not,
    For(Duration),
    Forever,
}

/// How a lock is asked for and held.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option by itself")]
pub(crate) struct LockOptions {
    pub(crate) expire: Duration,
    pub(crate) renew: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) reentrant: bool,
    pub(crate) fenced: bool,
    pub(crate) wait: Wait,
    pub(crate) keep: bool,
    pub(crate) on_lost: OnLost,
    pub(crate) contended_status: StatusCode,
    pub(crate) hold_until: HoldUntil,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            expire: Duration::from_secs(5),
            renew: false,
            max_hold: None,
            min_hold: None,
            reentrant: false,
            fenced: false,
            wait: Wait::default(),
            keep: false,
            on_lost: OnLost::default(),
            contended_status: StatusCode::CONFLICT,
            hold_until: HoldUntil::default(),
        }
    }
}

impl LockOptions {
    /// Finds the first mistake.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        self.check_each()?;
        self.check_together()
    }

    /// Finds the first option that is wrong whatever the others are.
    pub(crate) fn check_each(&self) -> Result<(), SetupError> {
        let Self { expire, max_hold, wait, contended_status, .. } = self;
        if !EXPIRE.contains(expire) {
            return Err(out_of_range("expire", *expire, "from 10 ms to 7 days"));
        }
        if let Wait::For(wait_time) = wait
            && !WAIT_TIME.contains(wait_time)
        {
            return Err(out_of_range("wait_time", *wait_time, "at most 7 days"));
        }
        if let Some(Duration::ZERO) = max_hold {
            return Err(out_of_range("max_hold", Duration::ZERO, "longer than zero"));
        }
        if contended_status.is_client_error() || contended_status.is_server_error() {
            Ok(())
        } else {
            Err(SetupError::ContendedStatus(*contended_status))
        }
    }

    /// Finds options that do not go together.
    fn check_together(&self) -> Result<(), SetupError> {
        let Self { expire, renew, max_hold, min_hold, keep, .. } = self;
        if let Some(min_hold) = min_hold {
            if *keep {
                return Err(SetupError::KeepAndMinHold);
            }
            if min_hold > expire {
                return Err(out_of_range("min_hold", *min_hold, "at most the lease, expire"));
            }
        }
        if max_hold.is_some() && !renew {
            return Err(SetupError::MaxHoldWithoutRenew);
        }
        Ok(())
    }

    /// Puts the options into a request, all but the number.
    pub(crate) fn apply(&self, request: LockRequest) -> LockRequest {
        let Self { expire, renew, max_hold, min_hold, keep, reentrant, wait, .. } = *self;
        let mut request = request.expire(expire);
        if renew {
            request = request.renew();
        }
        if let Some(max_hold) = max_hold {
            request = request.max_hold(max_hold);
        }
        if let Some(min_hold) = min_hold {
            request = request.min_hold(min_hold);
        }
        if keep {
            request = request.keep();
        }
        if reentrant {
            request = request.reentrant();
        }
        match wait {
            Wait::Not => request,
            Wait::For(wait_time) => request.wait_time(wait_time),
            Wait::Forever => request.wait_forever(),
        }
    }
}

fn out_of_range(option: &'static str, value: Duration, allowed: &'static str) -> SetupError {
    SetupError::OutOfRange { option, value: format!("{value:?}"), allowed }
}

#[cfg(test)]
mod tests {
    use redlock_core::{LockError, LockManager};

    use super::*;

    #[tokio::test]
    async fn the_range_of_leases_is_that_of_core() {
        let (shortest, longest) = (*EXPIRE.start(), *EXPIRE.end());
        let nanosecond = Duration::from_nanos(1);
        for expire in [shortest.saturating_sub(nanosecond), shortest, longest, longest + nanosecond]
        {
            let options = LockOptions { expire, ..LockOptions::default() };
            assert_eq!(options.check().is_err(), core_refuses(&options).await, "{expire:?}");
        }
    }

    #[tokio::test]
    async fn the_range_of_min_hold_is_that_of_core() {
        let expire = Duration::from_secs(1);
        for (min_hold, refused) in [(expire, false), (expire + Duration::from_nanos(1), true)] {
            let min_hold = Some(min_hold);
            let options = LockOptions { expire, min_hold, ..LockOptions::default() };
            assert_eq!(options.check().is_err(), refused, "{min_hold:?}");
            assert_eq!(core_refuses(&options).await, refused, "{min_hold:?}");
        }
    }

    #[tokio::test]
    async fn the_range_of_max_hold_is_that_of_core() {
        for (max_hold, refused) in [(Duration::ZERO, true), (Duration::from_nanos(1), false)] {
            let max_hold = Some(max_hold);
            let options = LockOptions { renew: true, max_hold, ..LockOptions::default() };
            assert_eq!(options.check().is_err(), refused, "{max_hold:?}");
            assert_eq!(core_refuses(&options).await, refused, "{max_hold:?}");
        }
    }

    async fn core_refuses(options: &LockOptions) -> bool {
        let locks = LockManager::in_memory();
        let lock = options.apply(locks.lock("k")).try_acquire().await;
        matches!(lock, Err(LockError::InvalidOption(_)))
    }
}
