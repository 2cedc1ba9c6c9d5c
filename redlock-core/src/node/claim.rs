//! What a node is asked about.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::redis::SharedCommand;
use super::token::Token;
use super::{Dialect, LockName};
use crate::clock::{Clock, Moment};
use crate::fencing_token::FencingToken;
use crate::key::LockKey;

/// One attempt to hold one key: made anew for every attempt, so that its token is never used again
/// (invariant 3).
#[derive(Debug)]
pub(crate) struct Claim {
    key: LockKey,
    name: LockName,
    token: Token,
    listeners: AtomicUsize,
    /// How long it stays on the nodes although it is released.
    stay: Mutex<Option<Stay>>,
    given_up: AtomicBool,
    /// The nodes that were asked to set it, a bit for each.
    asked: AtomicU64,
    fence: Option<Fence>,
    /// Whether nodes refuse the claim without looking up the holder's remaining time to live.
    skip_ttl_lookup: bool,
    command: SharedCommand,
}

/// How a claim is numbered.
#[derive(Debug)]
struct Fence {
    counter: Arc<str>,
    holder: i64,
    number: AtomicI64,
}

/// How long a lock stays on the nodes although its holder releases it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MinHold {
    /// For this time from the acquisition on.
    For(Duration),
    /// Until its lease runs out: the nodes are not asked to release it.
    UntilExpiry,
}

/// A [`MinHold`] of a claim that is held.
#[derive(Debug)]
enum Stay {
    Until(Moment, Arc<dyn Clock>),
    UntilExpiry,
}

impl Stay {
    fn lasts_until(&self, moment: Moment) -> bool {
        match self {
            Self::Until(until, _) => until.until(moment).is_zero(),
            Self::UntilExpiry => true,
        }
    }
}

impl Claim {
    pub(crate) fn new(name: LockName, key: LockKey) -> Self {
        Self {
            key,
            token: Token::random(name.dialect()),
            name,
            listeners: AtomicUsize::new(0),
            stay: Mutex::default(),
            given_up: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            fence: None,
            skip_ttl_lookup: false,
            command: SharedCommand::default(),
        }
    }

    /// Lets the claim stay on the nodes until then, however early it is released. Never shortens
    /// that.
    pub(crate) fn stay_until(&self, until: Moment, clock: &Arc<dyn Clock>) {
        let mut stay = self.stay.lock();
        if !stay.as_ref().is_some_and(|stay| stay.lasts_until(until)) {
            *stay = Some(Stay::Until(until, Arc::clone(clock)));
        }
    }

    /// Lets the claim stay on the nodes until its lease runs out.
    pub(crate) fn stay_until_expiry(&self) {
        *self.stay.lock() = Some(Stay::UntilExpiry);
    }

    /// Lets a release remove the claim at once.
    pub(crate) fn stay_no_longer(&self) {
        *self.stay.lock() = None;
    }

    /// Whether the claim stays on the nodes until then, if its lease lasts that long.
    pub(crate) fn stays_until(&self, moment: Moment) -> bool {
        self.stay.lock().as_ref().is_some_and(|stay| stay.lasts_until(moment))
    }

    /// How much longer the claim has to stay on a node that is asked to release it.
    pub(crate) fn stays_for(&self) -> Option<Duration> {
        let stay = self.stay.lock();
        let Some(Stay::Until(until, clock)) = &*stay else { return None };
        let left = clock.now().until(*until);
        (!left.is_zero()).then_some(left)
    }

    /// Whether the claim stays until its lease runs out: the nodes are not asked to release it.
    pub(crate) fn stays_until_expiry(&self) -> bool {
        matches!(*self.stay.lock(), Some(Stay::UntilExpiry))
    }

    /// Lets the nodes number the claim by the counter of this name.
    pub(crate) fn fenced(mut self, counter: &Arc<str>) -> Self {
        self.fence = Some(Fence {
            counter: Arc::clone(counter),
            holder: FencingToken::random_holder(),
            number: AtomicI64::new(0),
        });
        self
    }

    /// The counter that numbers the claim on the nodes, if it is to be numbered.
    pub(crate) fn counter(&self) -> Option<&str> {
        self.fence.as_ref().map(|fence| &*fence.counter)
    }

    /// Notes which number a node has given to the claim.
    pub(crate) fn note_number(&self, number: i64) {
        if let Some(fence) = &self.fence {
            fence.number.fetch_max(number, Ordering::SeqCst);
        }
    }

    /// The greatest number that a node has given, for the first holder of the claim.
    pub(crate) fn first_token(&self) -> Option<FencingToken> {
        let fence = self.fence.as_ref()?;
        Some(FencingToken::new(fence.number.load(Ordering::SeqCst), fence.holder))
    }

    /// A greater one, for a holder that takes the claim over.
    pub(crate) fn next_token(&self) -> Option<FencingToken> {
        let fence = self.fence.as_ref()?;
        let number = fence.number.fetch_add(1, Ordering::SeqCst) + 1;
        Some(FencingToken::new(number, fence.holder))
    }

    /// Notes that a quorum has granted the claim.
    pub(crate) fn note_granted(&self) {
        // It may be held for long, and is not asked for again.
        self.command.forget();
    }

    /// Notes that a node is asked to set the lock.
    pub(crate) fn note_asked(&self, node: usize) {
        self.asked.fetch_or(1 << node, Ordering::SeqCst);
    }

    /// Whether a node may have the lock set: one that was never asked has nothing to release.
    pub(crate) fn was_asked(&self, node: usize) -> bool {
        self.asked.load(Ordering::SeqCst) & (1 << node) != 0
    }

    /// Notes that nobody wants the claim any more; nodes are about to be asked to release it.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::SeqCst)
    }

    /// What the caller locks.
    pub(crate) fn key(&self) -> &LockKey {
        &self.key
    }

    /// What it is called on the nodes.
    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    /// How it is written down there.
    pub(crate) fn dialect(&self) -> Dialect {
        self.name.dialect()
    }

    /// Notes that a node has announced the release to so many listeners.
    pub(crate) fn note_listeners(&self, listeners: usize) {
        self.listeners.fetch_max(listeners, Ordering::Relaxed);
    }

    /// How many listened for the release, on the node with the most.
    pub(crate) fn listeners(&self) -> usize {
        self.listeners.load(Ordering::Relaxed)
    }

    /// Lets nodes refuse the claim without looking up the holder's remaining time to live.
    pub(crate) fn skip_ttl_lookup(mut self) -> Self {
        self.skip_ttl_lookup = true;
        self
    }

    pub(crate) fn skips_ttl_lookup(&self) -> bool {
        self.skip_ttl_lookup
    }

    /// What its servers are being asked.
    pub(crate) fn command(&self) -> &SharedCommand {
        &self.command
    }

    /// What proves the ownership.
    pub(crate) fn token(&self) -> &str {
        self.token.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Claim {
        let key = LockKey::new("order:42").unwrap();
        Claim::new(LockName::new("", &key, Dialect::Plain), key)
    }

    #[test]
    fn a_claim_has_a_token_of_its_own() {
        assert_ne!(claim().token(), claim().token());
    }

    #[test]
    fn the_token_is_not_shown() {
        let claim = claim();
        assert!(!format!("{claim:?}").contains(claim.token()));
    }
}
