//! The options that layers and policies share.

use std::time::Duration;

use http::StatusCode;
use redlock_core::LockOptions;

use crate::error::SetupError;

/// The lease where a layer, a policy or an attribute names none.
pub(crate) const DEFAULT_EXPIRE: Duration = Duration::from_secs(5);

/// Says how long a layer or a policy holds its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
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
#[non_exhaustive]
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

/// The options of a layer or a policy: those of the lock, and those of the request under it.
#[derive(Debug, Clone)]
pub(crate) struct RouteOptions {
    pub(crate) lock: LockOptions,
    pub(crate) fenced: bool,
    pub(crate) on_lost: OnLost,
    pub(crate) contended_status: StatusCode,
    pub(crate) hold_until: HoldUntil,
}

impl Default for RouteOptions {
    fn default() -> Self {
        Self {
            lock: LockOptions::new(),
            fenced: false,
            on_lost: OnLost::default(),
            contended_status: StatusCode::CONFLICT,
            hold_until: HoldUntil::default(),
        }
    }
}

impl RouteOptions {
    /// The options of the lock, with the default lease.
    pub(crate) fn resolved(&self) -> LockOptions {
        with_default_expire(self.lock)
    }

    /// Finds the first mistake.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        self.check_each()?;
        Ok(self.resolved().check()?)
    }

    /// Finds the first option that is wrong whatever the others are.
    pub(crate) fn check_each(&self) -> Result<(), SetupError> {
        self.lock.check_ranges()?;
        let status = self.contended_status;
        if status.is_client_error() || status.is_server_error() {
            Ok(())
        } else {
            Err(SetupError::ContendedStatus(status))
        }
    }
}

/// Adds the lease of the front ends to options without one.
pub(crate) const fn with_default_expire(options: LockOptions) -> LockOptions {
    if options.expire.is_none() { options.expire(DEFAULT_EXPIRE) } else { options }
}

/// Writes the setters of the [`RouteOptions`], as `redlock_core::lock_option_setters` writes those of the lock.
macro_rules! route_option_setters {
    ($self:ident => $options:expr; $end:expr) => {
        /// Sets all options of the lock at once. Those that were set before are forgotten.
        pub fn options(mut $self, options: $crate::LockOptions) -> Self {
            $options.lock = options;
            $end
        }

        redlock_core::lock_option_setters!($self => $options.lock; $end);

        /// Sets whether the holders of the lock are numbered, so that a database can refuse one that
        /// comes late. The handler gets its number from the extractor [`FencedLock`](crate::FencedLock),
        /// unless it stands behind [another lock](crate::FencedLock#several-locks). On several nodes it
        /// costs one more round trip. Defaults to no numbers.
        pub fn fenced(mut $self, fenced: bool) -> Self {
            $options.fenced = fenced;
            $end
        }

        /// Sets what becomes of a handler whose lock is lost. Defaults to [`OnLost::KeepGoing`](crate::OnLost::KeepGoing).
        pub fn on_lost(mut $self, on_lost: $crate::OnLost) -> Self {
            $options.on_lost = on_lost;
            $end
        }

        /// Sets the status for a lock that another holder has. Defaults to 409 Conflict; 423 Locked is the
        /// usual other choice.
        pub fn contended_status(mut $self, status: http::StatusCode) -> Self {
            $options.contended_status = status;
            $end
        }

        /// Sets how long the lock is held. Defaults to [`HoldUntil::Response`](crate::HoldUntil::Response).
        pub fn hold_until(mut $self, hold_until: $crate::HoldUntil) -> Self {
            $options.hold_until = hold_until;
            $end
        }
    };
}
pub(crate) use route_option_setters;
