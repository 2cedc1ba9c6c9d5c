//! The options of an acquisition, defined once for every front end.

#[cfg(feature = "serde")]
mod de;
mod on_lost;
mod resolved;
mod rules;
#[cfg(feature = "serde")]
#[cfg(test)]
mod serde_tests;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub(crate) use crate::time_text::{TIME_FORM, parse_time};
pub use crate::time_text::{TimeText, read_time};
#[cfg(feature = "serde")]
pub use de::{ConfigValue, read_option};
pub use on_lost::OnLost;
pub(crate) use resolved::{Defaults, JoinTerms, MinHold, Renewal, ResolvedOptions};
pub use rules::{assert_valid, check_name, is_same};

macro_rules! define_options {
    ([$($attributes:tt)*] $($(#[$doc:meta])* $name:ident: $ty:ty,)*) => {
        $($attributes)*
        pub struct LockOptions {
            $(
                #[doc = concat!("The value of [`", stringify!($name), "`](method@Self::", stringify!($name), ").")]
                #[cfg_attr(feature = "serde", serde(deserialize_with = "read_option"))]
                pub $name: Option<$ty>,
            )*
        }

        impl LockOptions {
            /// The names of the options. No public API.
            #[doc(hidden)]
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// Creates options without a value: each front end uses its defaults.
            pub const fn new() -> Self {
                Self { $($name: None),* }
            }
        }
    };
}
crate::lock_options!([define_options] {
    [
        /// The options of an acquisition: the lease, the waiting time, the number of holders, and how the lock is kept
        /// and renewed.
        ///
        /// Every front end has these options under these names: [`LockRequest`](crate::LockRequest) and, in
        /// `redlock-axum`, the attribute `#[redis_lock(..)]`, `LockPolicy` and, with the feature
        /// `serde`, the fields of a policy in TOML or JSON. Request and policy have a setter for each option,
        /// and one for a whole `LockOptions`.
        ///
        /// Each setter below has the rules of its option. The page [Options] of the guide lists the options of all front
        /// ends, with their ranges, their defaults and their spelling in the attribute and in a configuration.
        ///
        /// With the feature `serde`, options are read from a configuration. A time is a text such as `"1m 30s"`, or a whole
        /// number of seconds: `"5"` is the same as `5`. In a format that has only texts, such as environment variables,
        /// `"true"` is `true`. `null` is the default. An unknown field and a field that occurs twice are errors. The format
        /// must describe its values, as TOML and JSON do. Do not `serde(flatten)` options into another struct: serde then
        /// ignores a misspelt option.
        ///
        /// Each field is an `Option`: `None` is the default, which is the same in all front ends. Without a lease, the
        /// lock has the manager's [`expire`](crate::LockManagerBuilder::expire), 30 s, and is renewed while it is held.
        /// With a lease, it ends then, unless [`renew(true)`](method@Self::renew) is set too.
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
        /// 1. Its row in `redlock-core/src/options/table.rs`. Request, attribute, policies and configurations then have the
        ///    option. A new type of value implements `ConfigValue` in `options/de.rs`, and has a `Conversion` in
        ///    `redlock-axum/src/attribute/options.rs`.
        /// 2. Its rule in `redlock-core/src/options/rules.rs`, and its effect in the code that reads `ResolvedOptions`. An
        ///    option that the nodes store also goes through `ballot/attempt.rs`, `node/` and `wire.md`, and into the rules of
        ///    `waiting/hand_over.rs`, because a hand-over leaves the lock on the nodes as it is.
        /// 3. A row in `redlock-axum/docs/options.md`, which `cargo run -p redlock-structure` demands.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        #[cfg_attr(
            feature = "serde",
            derive(serde::Deserialize),
            serde(default, deny_unknown_fields, expecting = "the options of a lock")
        )]
        #[non_exhaustive]
        #[must_use = "options do nothing until they are passed to a request, a layer or a policy"]
    ]
});

impl LockOptions {
    crate::lock_option_setters!(self => self; const);
}

/// The longest time for which a caller waits while another holder has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitTime {
    /// At most this time, up to 7 days. Zero makes one attempt.
    UpTo(Duration),
    /// No limit, also while no quorum of nodes answers: see [`LockRequest::wait_forever`](crate::LockRequest::wait_forever).
    Forever,
}

impl From<Duration> for WaitTime {
    fn from(time: Duration) -> Self {
        Self::UpTo(time)
    }
}

impl WaitTime {
    /// Returns the limit, if there is one.
    pub(crate) fn limit(self) -> Option<Duration> {
        match self {
            Self::UpTo(time) => Some(time),
            Self::Forever => None,
        }
    }
}
