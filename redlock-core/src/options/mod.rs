//! The options of an acquisition: once, for every front end.

#[cfg(feature = "serde")]
mod de;
mod resolve;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::lock::Dialect;

pub(crate) use resolve::ResolvedOptions;
pub use resolve::assert_valid;

/// The options of an acquisition: how long a lock is held, how long a caller waits for it, and what
/// happens in between.
///
/// Every front end has these options under these names: [`LockRequest`](crate::LockRequest), and, in
/// `redlock-axum`, the attribute `#[redis_lock(..)]`, `LockLayer`, `LockPolicy` and, with the feature
/// `serde`, the fields of a policy in TOML or JSON. Each of them has a setter per option, and one for a whole
/// `LockOptions`.
///
/// | option | value | default |
/// |---|---|---|
/// | [`expire`](Self::expire) | 10 ms to 7 days | request: the manager's [`expire`](crate::LockManagerBuilder::expire), 30 s; attribute, layer, policy: 5 s |
/// | [`wait_time`](Self::wait_time) | 0 to 7 days, or forever | one attempt |
/// | [`renew`](Self::renew) | `bool` | `true` for a request that sets no `expire`, otherwise `false` |
/// | [`max_hold`](Self::max_hold) | longer than 0; requires `renew` | no bound |
/// | [`min_hold`](Self::min_hold) | 0 to `expire`; not with `keep` | 0 |
/// | [`keep`](Self::keep) | `bool` | `false` |
/// | [`reentrant`](Self::reentrant) | `bool` | `false` |
/// | [`dialect`](Self::dialect) | [`Dialect`] | the manager's [`dialect`](crate::LockManagerBuilder::dialect) |
///
/// Each field is an `Option`: `None` leaves the default of the front end. The servers count in whole
/// milliseconds; a fraction is rounded up.
///
/// Two more options are not part of it, because they change the types that a caller gets:
/// [`fenced`](crate::LockRequest::fenced), and the HTTP options of `redlock-axum`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redlock_core::{LockManager, LockOptions};
///
/// const PATIENT: LockOptions =
///     LockOptions::new().expire(Duration::from_secs(5)).wait_time(Duration::from_secs(2));
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// PATIENT.check()?;
/// let locks = LockManager::in_memory();
/// let guard = locks.lock("order:42").options(PATIENT).acquire().await?;
/// # guard.release().await?; Ok(()) }
/// ```
///
/// # Adding an option
///
/// 1. In `redlock-core/src/options/`, add the field, its setter, its rule in `check()`, its name for serde, and
///    its line in the table above. Request, layer, policies and serde have the option then.
/// 2. Add its effect to the acquisition in `redlock-core/src/request/`, which reads the options resolved with
///    the defaults.
/// 3. Add the argument of the attribute in `redlock-macros/src/options.rs`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "options do nothing until a request, a layer or a policy has them"]
pub struct LockOptions {
    /// The lease. The servers free the lock by themselves after this time, so that a crashed holder
    /// blocks nobody for ever.
    ///
    /// From 10 ms to 7 days. Choose it longer than the work takes, or [renew](Self::renew) it: work that
    /// goes on for longer is not stopped, but another caller can get the lock.
    pub expire: Option<Duration>,
    /// The longest time that a caller waits while another holds the lock, at most 7 days, or
    /// [`WaitTime::Forever`].
    ///
    /// Without it, and with zero, the caller makes one attempt. An outage of the nodes may end the waiting
    /// earlier, see [`outage_grace`](crate::LockManagerBuilder::outage_grace).
    pub wait_time: Option<WaitTime>,
    /// Whether the lease is renewed while the lock is held: every third of it, it is extended to its full
    /// length again.
    ///
    /// Renewal ends with the guard. If it fails for so long that the lease runs out, the lock is lost, see
    /// [`LockGuard::lost`](crate::LockGuard::lost).
    pub renew: Option<bool>,
    /// The bound of the renewal. So long after the acquisition the lease is not extended any more and runs
    /// out, so that work that hangs does not hold its lock for ever.
    ///
    /// Longer than zero. Requires [`renew`](Self::renew).
    pub max_hold: Option<Duration>,
    /// The shortest time, counted from the acquisition, for which the lock stays on the nodes, even if its
    /// holder releases it before. For work that must not be repeated sooner, on whichever machine.
    ///
    /// At most the lease. Where [reentrant](Self::reentrant) requests share a lock, the latest end counts. A
    /// crashed holder's lock still runs out after its lease.
    pub min_hold: Option<Duration>,
    /// Whether the lock stays on the nodes until its lease runs out, however its holder ends: one
    /// holder per key and lease.
    ///
    /// Releasing the lock sends nothing and succeeds. Such a request never takes over a lock with less than
    /// its whole lease. Where [reentrant](Self::reentrant) requests share a lock, one of them is enough.
    /// Cannot be combined with [`min_hold`](Self::min_hold).
    pub keep: Option<bool>,
    /// Whether the lock is shared if the same [scope](crate::scope()) holds it already, instead of failing
    /// with [`LockError::AlreadyHeld`](crate::LockError::AlreadyHeld).
    ///
    /// A shared lock is released with the last of its guards. Nothing is sent, and the lease stays as it
    /// was, unless it is too short for [`min_hold`](Self::min_hold) or [`keep`](Self::keep): then it is
    /// extended. A [fenced](crate::LockRequest::fenced) request shares only a lock that is fenced too.
    pub reentrant: Option<bool>,
    /// How the lock is written on the nodes, so that services in other languages can share it.
    pub dialect: Option<Dialect>,
}

/// How long a caller waits for a lock that another holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitTime {
    /// At most this time: up to 7 days. Zero makes one attempt.
    UpTo(Duration),
    /// For as long as it takes. The caller, or its client, may lose patience long before.
    Forever,
}

impl From<Duration> for WaitTime {
    fn from(time: Duration) -> Self {
        Self::UpTo(time)
    }
}

impl LockOptions {
    /// No option is set: each front end uses its defaults.
    pub const fn new() -> Self {
        Self {
            expire: None,
            wait_time: None,
            renew: None,
            max_hold: None,
            min_hold: None,
            keep: None,
            reentrant: None,
            dialect: None,
        }
    }

    crate::lock_option_setters!(self => self; const);
}

/// Writes one setter for each of the [`LockOptions`](crate::LockOptions): `self => place; end`, where `place`
/// is an expression for the options in `self`, and `end` what a setter returns.
#[doc(hidden)]
#[macro_export]
macro_rules! lock_option_setters {
    ($self:ident => $options:expr; const) => {
        $crate::lock_option_setters!(@ $self, $options, $self, const);
    };
    ($self:ident => $options:expr; $end:expr) => {
        $crate::lock_option_setters!(@ $self, $options, $end,);
    };
    (@ $self:ident, $options:expr, $end:expr, $($const:ident)?) => {
        /// Sets the lease: [`expire`](field@crate::LockOptions::expire), from 10 ms to 7 days.
        pub $($const)? fn expire(mut $self, expire: ::core::time::Duration) -> Self {
            $options.expire = ::core::option::Option::Some(expire);
            $end
        }

        /// Sets how long a caller waits while another holds the lock:
        /// [`wait_time`](field@crate::LockOptions::wait_time), at most 7 days. Defaults to one attempt.
        pub $($const)? fn wait_time(mut $self, wait_time: ::core::time::Duration) -> Self {
            $options.wait_time =
                ::core::option::Option::Some($crate::WaitTime::UpTo(wait_time));
            $end
        }

        /// Waits for as long as it takes while another holds the lock:
        /// [`wait_time`](field@crate::LockOptions::wait_time). The caller, or its client, may lose patience
        /// long before.
        pub $($const)? fn wait_forever(mut $self) -> Self {
            $options.wait_time = ::core::option::Option::Some($crate::WaitTime::Forever);
            $end
        }

        /// Sets whether the lease is renewed while the lock is held:
        /// [`renew`](field@crate::LockOptions::renew).
        pub $($const)? fn renew(mut $self, renew: bool) -> Self {
            $options.renew = ::core::option::Option::Some(renew);
            $end
        }

        /// Bounds the renewal: [`max_hold`](field@crate::LockOptions::max_hold), longer than zero. Requires
        /// renewal. Defaults to no bound.
        pub $($const)? fn max_hold(mut $self, max_hold: ::core::time::Duration) -> Self {
            $options.max_hold = ::core::option::Option::Some(max_hold);
            $end
        }

        /// Keeps the lock on the nodes for at least this time:
        /// [`min_hold`](field@crate::LockOptions::min_hold), at most the lease. Defaults to zero.
        pub $($const)? fn min_hold(mut $self, min_hold: ::core::time::Duration) -> Self {
            $options.min_hold = ::core::option::Option::Some(min_hold);
            $end
        }

        /// Sets whether the lock stays on the nodes until its lease runs out:
        /// [`keep`](field@crate::LockOptions::keep). Defaults to releasing it.
        pub $($const)? fn keep(mut $self, keep: bool) -> Self {
            $options.keep = ::core::option::Option::Some(keep);
            $end
        }

        /// Sets whether a lock that the same scope holds already is shared:
        /// [`reentrant`](field@crate::LockOptions::reentrant). Defaults to an error.
        pub $($const)? fn reentrant(mut $self, reentrant: bool) -> Self {
            $options.reentrant = ::core::option::Option::Some(reentrant);
            $end
        }

        /// Sets how the lock is written on the nodes: [`dialect`](field@crate::LockOptions::dialect).
        /// Defaults to the manager's.
        pub $($const)? fn dialect(mut $self, dialect: $crate::Dialect) -> Self {
            $options.dialect = ::core::option::Option::Some(dialect);
            $end
        }
    };
}
