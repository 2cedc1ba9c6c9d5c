//! The options of an acquisition, defined once for every front end.

#[cfg(feature = "serde")]
mod de;
#[cfg(feature = "serde")]
mod fields;
mod on_lost;
mod resolve;
#[cfg(feature = "serde")]
mod ser;
#[cfg(test)]
#[cfg(feature = "serde")]
mod serde_tests;
#[cfg(test)]
mod tests;
mod time;

use std::time::Duration;

use crate::lock::Dialect;

#[cfg(feature = "serde")]
pub use de::{Switch, Time};
pub use on_lost::OnLost;
pub(crate) use resolve::ResolvedOptions;
pub use resolve::assert_valid;
pub(crate) use time::{TIME_FORM, parse_time};

/// The options of an acquisition: the lease, the waiting time, the number of holders, and how the lock is kept
/// and renewed.
///
/// Every front end has these options under these names: [`LockRequest`](crate::LockRequest) and, in
/// `redlock-axum`, the attribute `#[redis_lock(..)]`, `LockLayer`, `LockPolicy` and, with the feature
/// `serde`, the fields of a policy in TOML or JSON. Request, layer and policy have a setter for each option,
/// and one for a whole `LockOptions`.
///
/// Each field below has the rules of its option. The page [Options] of the guide lists the options of all front
/// ends, with their ranges, their defaults and their spelling in the attribute and in a configuration.
///
/// With the feature `serde`, options are read from a configuration and written to it. A text is a time as the
/// crate `humantime` reads it, such as `"1m 30s"`, or a whole number of seconds: `"5"` is the same as `5`. In a
/// format that has only texts, such as environment variables, `"true"` is `true`. `null` is the default. An
/// unknown field and a field that occurs twice are errors. The format must describe its values, as TOML, JSON
/// and RON do. Times are written as texts, and options without a value are left out.
///
/// Each field is an `Option`: `None` is the default of the front end, which differs only for the lease and
/// its renewal. The lease of a request is the manager's [`expire`](crate::LockManagerBuilder::expire), 30 s, and
/// renewed. The lease of the attribute, a layer or a policy is 5 s, and not renewed. Servers measure leases in whole
/// milliseconds, so a fraction of a millisecond is rounded up.
///
/// [`fenced`](crate::LockRequest::fenced), [`on_lost`](crate::LockRequest::on_lost) and the HTTP options of
/// `redlock-axum` are not part of `LockOptions`, because they change what the caller gets, and not how the
/// lock is acquired.
///
/// [Options]: https://docs.rs/redlock-axum/latest/redlock_axum/guide/options/index.html
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
/// 1. In `redlock-core/src/options/`: the field (also in `new`) and its setter in `mod.rs`, its rule and default in
///    `resolve.rs`, and its line in `fields.rs`, the names and types for serde. Request, layer, policies and
///    configurations then have the option. The setters are `const`, because the attribute evaluates them. A
///    value with a destructor, such as a `String`, needs a setter outside of the macro, and `resolve` has to
///    clone it.
/// 2. The argument of the attribute: a line in `LOCK_OPTIONS` in `redlock-macros/src/options.rs`, and a variant of
///    `Value` there if no other option has this type. Such a type is also re-exported by `redlock-axum` and its
///    `__private`.
/// 3. Its effect: the acquisition in `redlock-core/src/request/` reads the `ResolvedOptions`. An option that the
///    nodes store also goes through `ballot/attempt.rs`, `node/op.rs`, `node/redis/operation.rs`, `node/memory/` and
///    `wire.md`, and into the rules of `queue/hand_over.rs`, because a hand-over leaves the lock on the nodes as
///    it is.
/// 4. Documentation: a row in `redlock-axum/docs/options.md` and in the README's table of the attribute, which
///    `cargo run -p redlock-structure` demands, and a line in `CHANGELOG.md`.
/// 5. Tests: `redlock-core/src/options/tests.rs` and `serde_tests.rs`, `redlock-axum/tests/ui`,
///    `redlock-axum/tests/front_ends` and `redlock-axum/tests/policies`, and `tests/servers/wire_names.rs` if the
///    nodes store the option.
///
/// An option of the HTTP front ends, such as `on_lost`, goes into `redlock-axum/src/options.rs`, `policy/de.rs` and
/// `policy/ser.rs` instead, its effect into `serve/mod.rs`, and into the attribute if a handler can have it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "options do nothing until they are passed to a request, a layer or a policy"]
pub struct LockOptions {
    /// The lease. The servers free the lock by themselves after this time, so that a crashed holder does
    /// not block the lock for ever.
    ///
    /// From 10 ms to 7 days. Choose a lease longer than the work takes, or [renew](Self::renew) it: the
    /// end of the lease does not stop the work, but another caller can then get the lock.
    pub expire: Option<Duration>,
    /// The longest time for which a caller waits while another holder has the lock: at most 7 days, or
    /// [`WaitTime::Forever`].
    ///
    /// `None` and zero make one attempt. An outage of the nodes may end the wait earlier, see
    /// [`outage_grace`](crate::LockManagerBuilder::outage_grace).
    pub wait_time: Option<WaitTime>,
    /// Whether the lease is renewed while the lock is held: after every third of the lease it is
    /// extended to its full length.
    ///
    /// Renewal ends with the guard. If it fails until the lease runs out, the lock is lost, see
    /// [`LockHandle::lost`](crate::LockHandle::lost).
    pub renew: Option<bool>,
    /// The longest time, counted from the acquisition, for which the lease is renewed. After that the
    /// lease runs out, so that hanging work does not hold its lock for ever.
    ///
    /// Longer than zero. Requires [`renew`](Self::renew).
    pub max_hold: Option<Duration>,
    /// The shortest time, counted from the acquisition, for which the lock stays on the nodes, even if
    /// its holder releases it earlier. For work that must not be repeated sooner, on any machine.
    ///
    /// At most the lease. If [reentrant](Self::reentrant) requests join a lock, the latest end counts.
    /// The lock of a crashed holder still runs out after its lease.
    pub min_hold: Option<Duration>,
    /// Whether the lock stays on the nodes until its lease runs out, however the guard ends: at most one
    /// holder per key and lease.
    ///
    /// A release sends nothing and succeeds. A request with `keep` never takes over a lock with less
    /// than its whole lease. If [reentrant](Self::reentrant) requests join a lock, `keep` in one of
    /// them is enough. Cannot be combined with [`min_hold`](Self::min_hold).
    pub keep: Option<bool>,
    /// Whether the request joins a lock that the same [scope](crate::scope()) holds already, instead of
    /// failing with [`LockError::AlreadyHeld`](crate::LockError::AlreadyHeld).
    ///
    /// The lock is released with the last of its guards. Joining it sends nothing and keeps the lease,
    /// unless the lease is too short for [`min_hold`](Self::min_hold) or [`keep`](Self::keep): then the
    /// lease is extended. A [fenced](crate::LockRequest::fenced) request joins only a fenced lock. A
    /// [shared](Self::shared) request also joins the exclusive lock of its scope, and an exclusive request never
    /// joins a shared lock.
    pub reentrant: Option<bool>,
    /// Whether the lock is shared: any number of callers may hold it at the same time, but no
    /// [exclusive](crate::node::Mode) holder. The callers that read a resource share its lock, and the callers that
    /// write to it lock it exclusively.
    ///
    /// The page [Shared locks] of the guide has the rules. Cannot be combined with [`permits`](Self::permits), with
    /// [`fenced`](crate::LockRequest::fenced), or with the dialect [`Redisson`](Dialect::Redisson).
    ///
    /// [Shared locks]: https://docs.rs/redlock-axum/latest/redlock_axum/guide/shared/index.html
    pub shared: Option<bool>,
    /// The highest number of callers that may hold the lock at the same time: from 1 to 1000.
    ///
    /// Each caller compares the number of present holders with its own `permits`. The page [Permits] of the guide has
    /// the rules. Requires a manager with a single node. Cannot be combined with [`shared`](Self::shared), with
    /// [`fenced`](crate::LockRequest::fenced), or with the dialect [`Redisson`](Dialect::Redisson).
    ///
    /// [Permits]: https://docs.rs/redlock-axum/latest/redlock_axum/guide/permits/index.html
    pub permits: Option<u32>,
    /// Whether the caller waits in a fair queue: in order of arrival between processes.
    ///
    /// A fair caller without a [`wait_time`](Self::wait_time) is refused if a fair caller of any process waits. A
    /// caller that is not fair may overtake the queue. All nodes must support
    /// [fair queues](crate::node::Capabilities::fair). [`acquire`](crate::LockRequest::acquire) describes the order.
    pub fair: Option<bool>,
    /// The dialect: how the lock is written on the nodes. Services in other languages can use the
    /// same lock in their dialect.
    pub dialect: Option<Dialect>,
}

/// The longest time for which a caller waits while another holder has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitTime {
    /// At most this time, up to 7 days. Zero makes one attempt.
    UpTo(Duration),
    /// No limit. The caller, or its client, may give up long before the lock is free.
    Forever,
}

impl From<Duration> for WaitTime {
    fn from(time: Duration) -> Self {
        Self::UpTo(time)
    }
}

impl LockOptions {
    /// Creates options without a value: each front end uses its defaults.
    pub const fn new() -> Self {
        Self {
            expire: None,
            wait_time: None,
            renew: None,
            max_hold: None,
            min_hold: None,
            keep: None,
            reentrant: None,
            shared: None,
            permits: None,
            fair: None,
            dialect: None,
        }
    }

    crate::lock_option_setters!(self => self; const);
}

/// Defines one setter for each of the [`LockOptions`](crate::LockOptions): `self => place; end`, where
/// `place` is an expression for the options in `self`, and a setter returns `end`.
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
        /// Sets the lease: [`expire`](field@crate::LockOptions::expire), from 10 ms to 7 days. The default is
        /// that of the [front end](crate::LockOptions). A lease that is set here is not renewed, unless
        /// `renew(true)` is set too.
        pub $($const)? fn expire(mut $self, expire: ::core::time::Duration) -> Self {
            $options.expire = ::core::option::Option::Some(expire);
            $end
        }

        /// Sets the longest time for which a caller waits while another holder has the lock:
        /// [`wait_time`](field@crate::LockOptions::wait_time), at most 7 days. Defaults to one attempt.
        pub $($const)? fn wait_time(mut $self, wait_time: ::core::time::Duration) -> Self {
            $options.wait_time =
                ::core::option::Option::Some($crate::WaitTime::UpTo(wait_time));
            $end
        }

        /// Lets a caller wait without a limit while another holder has the lock:
        /// [`wait_time`](field@crate::LockOptions::wait_time). The caller, or its client, may give up
        /// long before the lock is free.
        pub $($const)? fn wait_forever(mut $self) -> Self {
            $options.wait_time = ::core::option::Option::Some($crate::WaitTime::Forever);
            $end
        }

        /// Sets whether the lease is renewed while the lock is held:
        /// [`renew`](field@crate::LockOptions::renew). Defaults to `false`, and to `true` for a
        /// [`LockRequest`](crate::LockRequest) that sets no lease.
        pub $($const)? fn renew(mut $self, renew: bool) -> Self {
            $options.renew = ::core::option::Option::Some(renew);
            $end
        }

        /// Sets the longest time for which the lease is renewed:
        /// [`max_hold`](field@crate::LockOptions::max_hold), longer than zero. Requires `renew`.
        /// Defaults to no limit.
        pub $($const)? fn max_hold(mut $self, max_hold: ::core::time::Duration) -> Self {
            $options.max_hold = ::core::option::Option::Some(max_hold);
            $end
        }

        /// Sets the shortest time for which the lock stays on the nodes:
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

        /// Sets whether the request joins a lock that the same scope holds already:
        /// [`reentrant`](field@crate::LockOptions::reentrant). Defaults to an error.
        pub $($const)? fn reentrant(mut $self, reentrant: bool) -> Self {
            $options.reentrant = ::core::option::Option::Some(reentrant);
            $end
        }

        /// Shares the lock with other callers that share it: [`shared`](field@crate::LockOptions::shared).
        /// Defaults to an exclusive lock.
        pub $($const)? fn shared(mut $self) -> Self {
            $options.shared = ::core::option::Option::Some(true);
            $end
        }

        /// Sets the highest number of callers that may hold the lock at the same time:
        /// [`permits`](field@crate::LockOptions::permits), from 1 to 1000. Defaults to an exclusive lock.
        pub $($const)? fn permits(mut $self, permits: u32) -> Self {
            $options.permits = ::core::option::Option::Some(permits);
            $end
        }

        /// Lets the caller wait in order of arrival between processes:
        /// [`fair`](field@crate::LockOptions::fair). Defaults to an order in each process only.
        pub $($const)? fn fair(mut $self) -> Self {
            $options.fair = ::core::option::Option::Some(true);
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
