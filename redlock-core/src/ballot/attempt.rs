//! The state of one attempt to hold a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Moment};
use crate::fencing_token::FencingToken;
use crate::key::LockKey;
use crate::lock::{LockSpec, Token};
use crate::node::{Action, Op};

/// The state of one attempt to hold a lock, from its beginning to the end of its clean-up. Each attempt
/// has a token of its own.
#[derive(Debug)]
pub(crate) struct Attempt {
    spec: Arc<LockSpec>,
    key: LockKey,
    token: Token,
    /// How long it stays on the nodes although it is released.
    stay: Mutex<Option<Stay>>,
    abandoned: AtomicBool,
    /// The nodes that were asked to set it, a bit for each.
    asked: AtomicU64,
    fence: Option<Fence>,
    /// Whether a refusal says for how long another holds the lock.
    lookup: bool,
}

/// How an attempt is numbered.
#[derive(Debug)]
struct Fence {
    holder: i64,
    /// The number of the present holder; 0 before there is one.
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

/// A [`MinHold`] of a lock that is held.
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

impl Attempt {
    pub(crate) fn new(spec: &Arc<LockSpec>, key: LockKey) -> Self {
        Self {
            spec: Arc::clone(spec),
            key,
            token: Token::random(spec.dialect()),
            stay: Mutex::default(),
            abandoned: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            fence: None,
            lookup: true,
        }
    }

    /// Lets the nodes number the holder.
    pub(crate) fn fenced(self) -> Self {
        let holder = FencingToken::random_holder();
        Self { fence: Some(Fence { holder, number: AtomicI64::new(0) }), ..self }
    }

    /// Lets a refusal not say for how long another holds the lock.
    pub(crate) fn without_lookup(self) -> Self {
        Self { lookup: false, ..self }
    }

    /// Asks a node to set the lock.
    pub(crate) fn acquire(&self, lease: Duration) -> Op {
        self.op(Action::Acquire { lease, fenced: self.is_fenced(), lookup: self.lookup })
    }

    /// Asks a node to extend the lease.
    pub(crate) fn extend(&self, lease: Duration) -> Op {
        self.op(Action::Extend { lease })
    }

    /// Asks a node to raise its counter.
    pub(crate) fn confirm(&self, number: i64) -> Op {
        self.op(Action::Confirm { number })
    }

    /// Asks a node to release the lock.
    pub(crate) fn release(&self) -> Op {
        self.op(Action::Release { min_hold: self.stays_for() })
    }

    fn op(&self, action: Action) -> Op {
        Op::new(&self.spec, self.token, action)
    }

    /// Lets the lock stay on the nodes until then, however early it is released. Never shortens
    /// that.
    pub(crate) fn stay_until(&self, until: Moment, clock: &Arc<dyn Clock>) {
        let mut stay = self.stay.lock();
        if !stay.as_ref().is_some_and(|stay| stay.lasts_until(until)) {
            *stay = Some(Stay::Until(until, Arc::clone(clock)));
        }
    }

    /// Lets the lock stay on the nodes until its lease runs out.
    pub(crate) fn stay_until_expiry(&self) {
        *self.stay.lock() = Some(Stay::UntilExpiry);
    }

    /// Lets a release remove the lock at once.
    pub(crate) fn stay_no_longer(&self) {
        *self.stay.lock() = None;
    }

    /// Whether the lock stays on the nodes until then, if its lease lasts that long.
    pub(crate) fn stays_until(&self, moment: Moment) -> bool {
        self.stay.lock().as_ref().is_some_and(|stay| stay.lasts_until(moment))
    }

    /// How much longer the lock has to stay on a node that is asked to release it.
    pub(crate) fn stays_for(&self) -> Option<Duration> {
        let stay = self.stay.lock();
        let Some(Stay::Until(until, clock)) = &*stay else { return None };
        let left = clock.now().until(*until);
        (!left.is_zero()).then_some(left)
    }

    /// Whether the lock stays until its lease runs out: the nodes are not asked to release it.
    pub(crate) fn stays_until_expiry(&self) -> bool {
        matches!(*self.stay.lock(), Some(Stay::UntilExpiry))
    }

    /// Whether the nodes number the holder.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fence.is_some()
    }

    /// The token of the first holder, whose number the nodes have given.
    pub(crate) fn first_token(&self, number: Option<i64>) -> Option<FencingToken> {
        let fence = self.fence.as_ref()?;
        let number = number.unwrap_or_default();
        fence.number.store(number, Ordering::SeqCst);
        Some(FencingToken::new(number, fence.holder))
    }

    /// The token of a holder that takes the lock over: its number is greater.
    pub(crate) fn next_token(&self) -> Option<FencingToken> {
        let fence = self.fence.as_ref()?;
        let number = fence.number.fetch_add(1, Ordering::SeqCst) + 1;
        Some(FencingToken::new(number, fence.holder))
    }

    /// The number of the present holder.
    pub(crate) fn number(&self) -> Option<i64> {
        let fence = self.fence.as_ref()?;
        Some(fence.number.load(Ordering::SeqCst))
    }

    /// Notes that a node is asked to set the lock.
    pub(crate) fn note_asked(&self, node: usize) {
        self.asked.fetch_or(1 << node, Ordering::SeqCst);
    }

    /// Whether a node may have the lock set: one that was never asked has nothing to release.
    pub(crate) fn was_asked(&self, node: usize) -> bool {
        self.asked.load(Ordering::SeqCst) & (1 << node) != 0
    }

    /// Notes that nobody wants the lock any more; nodes are about to be asked to release it.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::SeqCst)
    }

    /// The key that the caller locks.
    pub(crate) fn key(&self) -> &LockKey {
        &self.key
    }

    /// The lock on the nodes.
    pub(crate) fn spec(&self) -> &Arc<LockSpec> {
        &self.spec
    }

    /// The value that proves the ownership.
    #[cfg(test)]
    pub(crate) fn token(&self) -> Token {
        self.token
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::lock::{Dialect, LockName, Mode};

    /// Returns an attempt for a plain lock.
    pub(crate) fn attempt(key: &str) -> Attempt {
        let key = LockKey::new(key).unwrap();
        let spec = LockSpec::new(LockName::new("", &key), Mode::Exclusive, Dialect::Plain);
        Attempt::new(&Arc::new(spec), key)
    }

    #[test]
    fn an_attempt_has_a_token_of_its_own() {
        assert_ne!(attempt("a").token(), attempt("a").token());
    }

    #[test]
    fn debug_does_not_show_the_token() {
        let attempt = attempt("a");
        assert!(!format!("{attempt:?}").contains(attempt.token().as_str()));
    }

    #[test]
    fn each_holder_has_a_greater_number() {
        let attempt = attempt("a").fenced();
        assert_eq!(attempt.first_token(Some(7)).unwrap().number(), 7);
        assert_eq!(attempt.number(), Some(7));
        assert_eq!(attempt.next_token().unwrap().number(), 8);
        assert_eq!(attempt.number(), Some(8));
    }
}
