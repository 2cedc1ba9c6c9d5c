//! The acquisitions by script without a reply.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::lock::Token;

/// The acquisitions by script without a reply, and whether their release was sent meanwhile.
#[derive(Default)]
pub(crate) struct PendingAcquisitions {
    /// The number of these acquisitions, so that a release takes no mutex if there are none.
    count: AtomicUsize,
    released: Mutex<HashMap<Token, bool>>,
}

/// An acquisition without a reply.
pub(crate) struct PendingAcquisition<'a> {
    acquisitions: &'a PendingAcquisitions,
    token: Token,
}

impl PendingAcquisitions {
    /// Records an acquisition, before its first command is sent.
    pub(crate) fn begin(&self, token: Token) -> PendingAcquisition<'_> {
        self.released.lock().insert(token, false);
        self.count.fetch_add(1, Ordering::SeqCst);
        PendingAcquisition { acquisitions: self, token }
    }

    /// Records a release, before its command is sent.
    pub(crate) fn release(&self, token: &Token) {
        if self.count.load(Ordering::SeqCst) > 0
            && let Some(released) = self.released.lock().get_mut(token)
        {
            *released = true;
        }
    }
}

impl PendingAcquisition<'_> {
    /// Returns whether a release was sent since the acquisition began.
    pub(crate) fn is_released(&self) -> bool {
        self.acquisitions.released.lock().get(&self.token).is_none_or(|released| *released)
    }
}

impl Drop for PendingAcquisition<'_> {
    fn drop(&mut self) {
        self.acquisitions.released.lock().remove(&self.token);
        self.acquisitions.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for PendingAcquisitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PendingAcquisitions").field(&self.count).finish()
    }
}
