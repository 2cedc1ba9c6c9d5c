//! Acquisitions without a reply behind a pooler, where no connection can end the session that may still execute them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::lock::Token;

/// The tokens of acquisitions that may still be executed, until their leases would end.
#[derive(Debug, Default)]
pub(super) struct UnsettledTokens(Mutex<HashMap<Token, Instant>>);

/// An acquisition that was sent.
pub(super) struct Unsettled {
    tokens: Arc<UnsettledTokens>,
    token: Token,
}

impl UnsettledTokens {
    /// Records an acquisition that is about to be sent.
    pub(super) fn begin(self: &Arc<Self>, token: Token, lease: Duration) -> Unsettled {
        let now = Instant::now();
        let mut tokens = self.0.lock();
        tokens.retain(|_, end| *end > now);
        tokens.insert(token, now + lease);
        drop(tokens);
        Unsettled { tokens: Arc::clone(self), token }
    }

    /// Returns whether the acquisition of this token may still be executed.
    pub(super) fn contains(&self, token: Token) -> bool {
        self.0.lock().get(&token).is_some_and(|end| *end > Instant::now())
    }
}

impl Unsettled {
    /// Records that the acquisition was executed, or never will be.
    pub(super) fn settle(self) {
        self.tokens.0.lock().remove(&self.token);
    }
}
