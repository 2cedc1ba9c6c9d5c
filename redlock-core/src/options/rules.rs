//! The rules of the options.

use std::time::Duration;

use super::{LockOptions, WaitTime};
use crate::error::InvalidOption;
use crate::lock::{ALLOWED_NAMES, Dialect, LockName};
use crate::validity::{
    MAX_EXPIRE, MAX_PERMITS, MIN_EXPIRE, allowed_leases, allowed_permits, longest_lease,
};

macro_rules! allowed_wait_times {
    () => {
        concat!("at most ", longest_lease!(), ", or forever")
    };
}

/// A rule that the options break. The checks are `const`, so that the attribute can run them at compile time.
#[derive(Debug, Clone, Copy)]
struct BrokenRule {
    option: &'static str,
    /// The rule, for the compiler.
    message: &'static str,
    /// Makes the error with the value, which the compiler cannot write.
    error: fn(&LockOptions) -> InvalidOption,
}

macro_rules! out_of_range {
    ($option:ident, $allowed:expr) => {
        out_of_range!($option, $allowed, |options| (options.$option, $allowed))
    };
    ($option:ident, $allowed:expr, $value_and_allowed:expr) => {
        Some(BrokenRule {
            option: stringify!($option),
            message: concat!(stringify!($option), " must be ", $allowed),
            error: |options| {
                let write: fn(&LockOptions) -> _ = $value_and_allowed;
                let (value, allowed) = write(options);
                let value = value.map_or_else(String::new, |value| format!("{value:?}"));
                InvalidOption::new(stringify!($option), value, allowed)
            },
        })
    };
}

macro_rules! conflict {
    ($option:ident, $rule:literal) => {
        Some(BrokenRule {
            option: stringify!($option),
            message: concat!(stringify!($option), " ", $rule),
            error: |_| {
                let message = concat!(stringify!($option), " ", $rule);
                InvalidOption::conflict(stringify!($option), message)
            },
        })
    };
}

/// Checks the name of a lock. No public API.
///
/// # Errors
///
/// An [`InvalidOption`] with the value and the range.
pub fn check_name(name: &LockName) -> Result<(), InvalidOption> {
    name.invalid().map_or(Ok(()), |value| Err(InvalidOption::new("name", value, ALLOWED_NAMES)))
}

impl LockOptions {
    /// Checks each option and their combination. The nodes and the manager's
    /// [`restart_guard`](crate::LockManagerBuilder::restart_guard) may limit the lease further.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidOption`] for the first option that is out of its range, or cannot be combined
    /// with another one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use redlock_core::LockOptions;
    ///
    /// let options = LockOptions::new().expire(Duration::from_millis(5));
    /// let error = options.check().unwrap_err();
    /// assert_eq!(error.to_string(), "expire is 5ms, but must be from 10 ms to 7 days");
    /// ```
    pub fn check(&self) -> Result<(), InvalidOption> {
        self.check_ranges()?;
        self.conflict().map_or(Ok(()), |rule| Err((rule.error)(self)))
    }

    /// Checks the range of each option. No other option can make such a value valid. No public API.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    #[doc(hidden)]
    pub fn check_ranges(&self) -> Result<(), InvalidOption> {
        self.out_of_range().map_or(Ok(()), |rule| Err((rule.error)(self)))
    }

    const fn out_of_range(&self) -> Option<BrokenRule> {
        if let Some(expire) = self.expire
            && (is_shorter(expire, MIN_EXPIRE) || is_shorter(MAX_EXPIRE, expire))
        {
            return out_of_range!(expire, allowed_leases!());
        }
        if let Some(WaitTime::UpTo(wait_time)) = self.wait_time
            && is_shorter(MAX_EXPIRE, wait_time)
        {
            return out_of_range!(wait_time, allowed_wait_times!(), |options| {
                (options.wait_time.and_then(WaitTime::limit), allowed_wait_times!())
            });
        }
        if let Some(Duration::ZERO) = self.max_hold {
            return out_of_range!(max_hold, "longer than zero");
        }
        if let Some(permits) = self.permits
            && (permits == 0 || permits > MAX_PERMITS)
        {
            return out_of_range!(permits, allowed_permits!());
        }
        None
    }

    const fn conflict(&self) -> Option<BrokenRule> {
        let (is_shared, has_permits) = (matches!(self.shared, Some(true)), self.permits.is_some());
        if is_shared && has_permits {
            return conflict!(permits, "cannot be combined with shared");
        }
        if matches!(self.dialect, Some(Dialect::Redisson)) && is_shared {
            return conflict!(shared, "requires the dialect plain");
        }
        if matches!(self.dialect, Some(Dialect::Redisson)) && has_permits {
            return conflict!(permits, "requires the dialect plain");
        }
        if matches!(self.fenced, Some(true)) && is_shared {
            return conflict!(
                fenced,
                "cannot be combined with shared: only exclusive holders have numbers"
            );
        }
        if matches!(self.fenced, Some(true)) && has_permits {
            return conflict!(
                fenced,
                "cannot be combined with permits: only exclusive holders have numbers"
            );
        }
        if self.max_hold.is_some() && !self.is_renewed() {
            return conflict!(max_hold, "requires renew");
        }
        if let Some(min_hold) = self.min_hold
            && !min_hold.is_zero()
        {
            if matches!(self.keep, Some(true)) {
                return conflict!(
                    min_hold,
                    "cannot be combined with keep, which holds the lock for its whole lease"
                );
            }
            if let Some(expire) = self.expire
                && is_shorter(expire, min_hold)
            {
                return out_of_range!(min_hold, "at most the lease (expire)", |options| {
                    let lease = options.expire.unwrap_or_default();
                    (options.min_hold, format!("at most the lease (expire) of {lease:?}"))
                });
            }
        }
        None
    }

    /// Returns whether the lease is renewed.
    pub(super) const fn is_renewed(&self) -> bool {
        match self.renew {
            Some(renew) => renew,
            None => self.expire.is_none(),
        }
    }
}

/// Panics if the options break a rule about this option. The attribute calls it in a constant, once for
/// each option, so that a broken rule is a compile error at the place where the option is written.
#[track_caller]
pub const fn assert_valid(options: &LockOptions, option: &str) {
    let rule = match options.out_of_range() {
        Some(rule) => Some(rule),
        None => options.conflict(),
    };
    if let Some(rule) = rule
        && is_same(rule.option, option)
    {
        panic!("{}", rule.message);
    }
}

/// Compares two durations. `Duration` has no `const` comparison.
const fn is_shorter(one: Duration, other: Duration) -> bool {
    let (seconds, others) = (one.as_secs(), other.as_secs());
    seconds < others || seconds == others && one.subsec_nanos() < other.subsec_nanos()
}

/// Compares two texts. `str` has no `const` comparison. No public API.
pub const fn is_same(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    while let ([first, rest @ ..], [others_first, others_rest @ ..]) = (one, other) {
        if *first != *others_first {
            return false;
        }
        (one, other) = (rest, others_rest);
    }
    one.is_empty() && other.is_empty()
}
