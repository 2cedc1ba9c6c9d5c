//! The options of one acquisition, checked and with the manager's defaults.

use std::time::Duration;

use tokio::time::Instant;

use super::LockRequest;
use crate::ballot::MinHold;
use crate::error::{InvalidOption, LockError};
use crate::lease::Renewal;

#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) expire: Duration,
    pub(super) renew: bool,
    pub(super) max_hold: Option<Duration>,
    pub(super) min_hold: Option<MinHold>,
}

impl Terms {
    pub(super) fn renewal(self) -> Option<Renewal> {
        let until = self.max_hold.and_then(|max_hold| Instant::now().checked_add(max_hold));
        self.renew.then_some(Renewal { lease: self.expire, until })
    }
}

impl LockRequest {
    pub(super) fn terms(&self) -> Result<Terms, LockError> {
        let expire = self.expire.unwrap_or(self.context.expire);
        self.context.check_expire(expire)?;
        if self.fenced {
            self.context.check_fenced()?;
        }
        let renew = self.renew || self.expire.is_none();
        let max_hold = self.max_hold;
        if let Some(min_hold) = self.min_hold.filter(|time| self.keep || *time > expire) {
            let allowed = if self.keep {
                "left out with keep, which holds the lock for its whole lease".to_owned()
            } else {
                format!("at most the lease (expire) of {expire:?}")
            };
            return Err(InvalidOption::new("min_hold", format!("{min_hold:?}"), allowed).into());
        }
        let keep = self.keep.then_some(MinHold::UntilExpiry);
        let min_hold = keep.or(self.min_hold.map(MinHold::For));
        if let Some(zero) = max_hold.filter(Duration::is_zero) {
            let value = format!("{zero:?}");
            return Err(InvalidOption::new("max_hold", value, "longer than zero").into());
        }
        if let Some(max_hold) = max_hold.filter(|_| !renew) {
            let allowed = "used with renewal, which it bounds: add `renew`";
            return Err(InvalidOption::new("max_hold", format!("{max_hold:?}"), allowed).into());
        }
        Ok(Terms { expire, renew, max_hold, min_hold })
    }
}
