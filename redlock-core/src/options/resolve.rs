//! Checks the options of a caller and adds the manager's defaults.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

use super::{LockOptions, WaitTime};
use crate::ballot::MinHold;
use crate::context::Context;
use crate::error::InvalidOption;
use crate::lease::Renewal;
use crate::lock::{Dialect, Mode};
use crate::validity::{
    MAX_EXPIRE, MAX_PERMITS, MIN_EXPIRE, allowed_leases, allowed_permits, longest_lease,
};

/// The options of one acquisition, checked and with the manager's defaults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResolvedOptions {
    pub(crate) expire: Duration,
    /// `None` makes one attempt.
    pub(crate) wait_time: Option<WaitTime>,
    pub(crate) min_hold: Option<MinHold>,
    pub(crate) reentrant: bool,
    pub(crate) mode: Mode,
    /// Whether the caller waits in a fair queue.
    pub(crate) fair: bool,
    pub(crate) dialect: Dialect,
    is_renewed: bool,
    max_hold: Option<Duration>,
}

impl ResolvedOptions {
    /// Returns the renewal of a lock that is acquired now.
    pub(crate) fn renewal(&self) -> Option<Renewal> {
        let until = self.max_hold.and_then(|max_hold| Instant::now().checked_add(max_hold));
        self.is_renewed.then_some(Renewal { lease: self.expire, until })
    }
}

impl LockOptions {
    /// Checks the options and adds the manager's defaults.
    pub(crate) fn resolve(&self, context: &Context) -> Result<ResolvedOptions, InvalidOption> {
        // Decided before the manager's lease is filled in: only a lease that the caller did not set is
        // renewed by default.
        let is_renewed = self.is_renewed();
        let expire = self.expire.unwrap_or(context.expire);
        let Self { wait_time, max_hold, min_hold, keep, reentrant, fair, dialect, .. } = *self;
        Self { expire: Some(expire), renew: Some(is_renewed), ..*self }.check()?;
        context.check_expire(expire)?;
        let dialect = dialect.unwrap_or(context.dialect);
        let is_kept = keep.unwrap_or_default();
        let min_hold = min_hold.filter(|min_hold| !min_hold.is_zero());
        Ok(ResolvedOptions {
            expire,
            wait_time: wait_time.filter(|&wait_time| wait_time != Duration::ZERO.into()),
            min_hold: if is_kept { Some(MinHold::UntilExpiry) } else { min_hold.map(MinHold::For) },
            reentrant: reentrant.unwrap_or_default(),
            mode: self.mode(),
            fair: fair.unwrap_or_default(),
            dialect,
            is_renewed,
            max_hold,
        })
    }
}

/// A rule that the options break. The checks are `const`, so that the attribute can run them at compile
/// time.
#[derive(Debug, Clone, Copy)]
struct BrokenRule {
    option: &'static str,
    value: BrokenValue,
    /// The range of the option; `None` if its value cannot be combined with another option.
    allowed: Option<&'static str>,
    /// The value of the other option that the range depends on.
    bound: Option<Duration>,
    /// The rule, without the value.
    message: &'static str,
}

/// A value that breaks a rule.
#[derive(Debug, Clone, Copy)]
enum BrokenValue {
    Time(Duration),
    Count(u32),
}

macro_rules! out_of_range {
    ($option:literal, $value:expr, $allowed:expr) => {
        out_of_range!($option, $value, $allowed, None)
    };
    ($option:literal, $value:expr, $allowed:expr, $bound:expr) => {
        out_of_range!(@ $option, BrokenValue::Time($value), $allowed, $bound)
    };
    (@ $option:literal, $value:expr, $allowed:expr, $bound:expr) => {
        Some(BrokenRule {
            option: $option,
            value: $value,
            allowed: Some($allowed),
            bound: $bound,
            message: concat!($option, " must be ", $allowed),
        })
    };
}

macro_rules! conflict {
    ($option:literal, $value:expr, $rule:literal) => {
        Some(BrokenRule {
            option: $option,
            value: BrokenValue::Time($value),
            allowed: None,
            bound: None,
            message: concat!($option, " ", $rule),
        })
    };
}

impl LockOptions {
    /// Checks each option and their combination. The nodes and the manager's
    /// [`restart_guard`](crate::LockManagerBuilder::restart_guard) may limit the lease further.
    ///
    /// Options without an [`expire`](Self::expire) are checked as those of a request, which has a renewed lease
    /// by default. A layer and a policy add their default lease first: `LockLayer::checked` and
    /// `LockPolicies::new` of `redlock-axum` check the options with it.
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
        self.conflict().map_or(Ok(()), |rule| Err(rule.into()))
    }

    /// Checks the range of each option. No other option can make such a value valid. No public API.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    #[doc(hidden)]
    pub fn check_ranges(&self) -> Result<(), InvalidOption> {
        self.out_of_range().map_or(Ok(()), |rule| Err(rule.into()))
    }

    const fn out_of_range(&self) -> Option<BrokenRule> {
        if let Some(expire) = self.expire
            && (is_shorter(expire, MIN_EXPIRE) || is_shorter(MAX_EXPIRE, expire))
        {
            return out_of_range!("expire", expire, allowed_leases!());
        }
        if let Some(WaitTime::UpTo(wait_time)) = self.wait_time
            && is_shorter(MAX_EXPIRE, wait_time)
        {
            return out_of_range!(
                "wait_time",
                wait_time,
                concat!("at most ", longest_lease!(), ", or forever")
            );
        }
        if let Some(Duration::ZERO) = self.max_hold {
            return out_of_range!("max_hold", Duration::ZERO, "longer than zero");
        }
        if let Some(permits) = self.permits
            && (permits == 0 || permits > MAX_PERMITS)
        {
            let value = BrokenValue::Count(permits);
            return out_of_range!(@ "permits", value, allowed_permits!(), None);
        }
        None
    }

    const fn conflict(&self) -> Option<BrokenRule> {
        if let (Some(true), Some(_)) = (self.shared, self.permits) {
            return conflict!("permits", Duration::ZERO, "cannot be combined with shared");
        }
        if let Some(Dialect::Redisson) = self.dialect {
            if let Some(true) = self.shared {
                return conflict!("shared", Duration::ZERO, "requires the dialect plain");
            }
            if self.permits.is_some() {
                return conflict!("permits", Duration::ZERO, "requires the dialect plain");
            }
        }
        if let Some(max_hold) = self.max_hold
            && !self.is_renewed()
        {
            return conflict!("max_hold", max_hold, "requires renew");
        }
        if let Some(min_hold) = self.min_hold
            && !min_hold.is_zero()
        {
            if let Some(true) = self.keep {
                let rule = conflict!(
                    "min_hold",
                    min_hold,
                    "cannot be combined with keep, which holds the lock for its whole lease"
                );
                return rule;
            }
            if let Some(expire) = self.expire
                && is_shorter(expire, min_hold)
            {
                return out_of_range!(
                    "min_hold",
                    min_hold,
                    "at most the lease (expire)",
                    Some(expire)
                );
            }
        }
        None
    }

    /// Returns the mode of the lock.
    fn mode(&self) -> Mode {
        let permits = self.permits.and_then(NonZeroU32::new);
        if permits.is_some() || self.shared.unwrap_or_default() {
            Mode::Shared { permits }
        } else {
            Mode::Exclusive
        }
    }

    /// Returns whether the lease is renewed.
    pub(super) const fn is_renewed(&self) -> bool {
        match self.renew {
            Some(renew) => renew,
            None => self.expire.is_none(),
        }
    }
}

impl From<BrokenRule> for InvalidOption {
    fn from(rule: BrokenRule) -> Self {
        let BrokenRule { option, value, allowed, bound, message } = rule;
        let bound = bound.map_or_else(String::new, |bound| format!(" of {bound:?}"));
        let value = match value {
            BrokenValue::Time(time) => format!("{time:?}"),
            BrokenValue::Count(count) => count.to_string(),
        };
        match allowed {
            Some(allowed) => Self::new(option, value, format!("{allowed}{bound}")),
            None => Self::conflict(option, message),
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
        && is_same(rule.option.as_bytes(), option.as_bytes())
    {
        panic!("{}", rule.message);
    }
}

/// Compares two durations. `Duration` has no `const` comparison.
const fn is_shorter(one: Duration, other: Duration) -> bool {
    let (seconds, others) = (one.as_secs(), other.as_secs());
    seconds < others || seconds == others && one.subsec_nanos() < other.subsec_nanos()
}

const fn is_same(mut one: &[u8], mut other: &[u8]) -> bool {
    while let ([first, rest @ ..], [others_first, others_rest @ ..]) = (one, other) {
        if *first != *others_first {
            return false;
        }
        (one, other) = (rest, others_rest);
    }
    one.is_empty() && other.is_empty()
}
