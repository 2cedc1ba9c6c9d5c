//! The options that layers and policies share.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::StatusCode;

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
    /// after an upgrade, such as the messages of a WebSocket, is not part of the body.
    EndOfBody,
}

/// How a lock is asked for and held.
#[derive(Debug, Clone)]
pub(crate) struct LockOptions {
    pub(crate) expire: Duration,
    pub(crate) renew: bool,
    pub(crate) wait_time: Option<Duration>,
    pub(crate) contended_status: StatusCode,
    pub(crate) hold_until: HoldUntil,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            expire: Duration::from_secs(5),
            renew: false,
            wait_time: None,
            contended_status: StatusCode::CONFLICT,
            hold_until: HoldUntil::default(),
        }
    }
}

impl LockOptions {
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        let Self { expire, renew: _, wait_time, contended_status, hold_until: _ } = self;
        if !EXPIRE.contains(expire) {
            return Err(out_of_range("expire", *expire, "from 10 ms to 7 days"));
        }
        if let Some(wait_time) = wait_time
            && !WAIT_TIME.contains(wait_time)
        {
            return Err(out_of_range("wait_time", *wait_time, "at most 7 days"));
        }
        if contended_status.is_client_error() || contended_status.is_server_error() {
            Ok(())
        } else {
            Err(SetupError::ContendedStatus(*contended_status))
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
            let ours = LockOptions { expire, ..LockOptions::default() }.check();
            let theirs = LockManager::in_memory().lock("k").expire(expire).try_acquire().await;
            let refused = matches!(theirs, Err(LockError::InvalidOption(_)));
            assert_eq!(ours.is_err(), refused, "{expire:?}");
        }
    }
}
