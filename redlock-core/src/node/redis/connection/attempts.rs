//! The acquisitions by script without a reply.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::lock::Token;

/// The acquisitions by script without a reply, and whether their release was sent meanwhile.
#[derive(Default)]
pub(crate) struct Attempts {
    /// The number of these acquisitions, so that a release takes no mutex if there are none.
    count: AtomicUsize,
    released: Mutex<HashMap<Token, bool>>,
}

/// An acquisition without a reply.
pub(crate) struct Attempt<'a> {
    attempts: &'a Attempts,
    token: Token,
}

impl Attempts {
    /// Records an acquisition, before its first command is sent.
    pub(crate) fn begin(&self, token: Token) -> Attempt<'_> {
        self.released.lock().insert(token, false);
        self.count.fetch_add(1, Ordering::SeqCst);
        Attempt { attempts: self, token }
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

impl Attempt<'_> {
    /// Returns whether a release was sent since the acquisition began.
    pub(crate) fn is_released(&self) -> bool {
        self.attempts.released.lock().get(&self.token).is_none_or(|released| *released)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.attempts.released.lock().remove(&self.token);
        self.attempts.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Attempts").field(&self.count).finish()
    }
}
