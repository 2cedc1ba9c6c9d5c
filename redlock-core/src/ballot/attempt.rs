//! The state of one attempt to hold a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Moment};
use crate::fencing_token::FencingToken;
use crate::key::{KeySet, LockKey};
use crate::lock::{LockSpec, Token};
use crate::node::{Action, Op};

/// The state of one attempt to hold a lock, from its start to the end of its clean-up. Each attempt has its
/// own token (a fresh token for every attempt).
#[derive(Debug)]
pub(crate) struct Attempt {
    spec: LockSpec,
    keys: KeySet,
    token: Token,
    /// How long the lock stays on the nodes after its holder has released it.
    retention: Mutex<Option<Retention>>,
    abandoned: AtomicBool,
    /// The nodes that were asked to set the lock, one bit for each.
    asked: AtomicU64,
    fencing: Option<FencingState>,
    /// Whether a node that refuses the lock also returns the remaining time to live of the present lock.
    ttl_lookup: bool,
}

/// The numbers of a fenced attempt.
#[derive(Debug)]
struct FencingState {
    holder: i64,
    /// The number of the present holder, or 0 before the first holder.
    number: AtomicI64,
}

/// How long a lock stays on the nodes after its holder has released it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MinHold {
    /// For this time, counted from the acquisition.
    For(Duration),
    /// Until the lease runs out. The nodes are not asked to release the lock.
    UntilExpiry,
}

/// The [`MinHold`] of a held lock.
#[derive(Debug)]
enum Retention {
    Until(Moment, Arc<dyn Clock>),
    UntilExpiry,
}

impl Retention {
    fn lasts_until(&self, moment: Moment) -> bool {
        match self {
            Self::Until(until, _) => until.has_reached(moment),
            Self::UntilExpiry => true,
        }
    }
}

impl Attempt {
    pub(crate) fn new(spec: &LockSpec, keys: impl Into<KeySet>) -> Self {
        Self {
            spec: spec.clone(),
            keys: keys.into(),
            token: Token::random(spec.dialect()),
            retention: Mutex::default(),
            abandoned: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            fencing: None,
            ttl_lookup: true,
        }
    }

    /// Makes the attempt fenced: the nodes number its holder.
    pub(crate) fn fenced(self) -> Self {
        let holder = FencingToken::random_holder();
        Self { fencing: Some(FencingState { holder, number: AtomicI64::new(0) }), ..self }
    }

    /// Makes a refusal skip the lookup of the present lock's remaining time to live.
    pub(crate) fn without_ttl_lookup(self) -> Self {
        Self { ttl_lookup: false, ..self }
    }

    /// Returns the operation that sets the lock on a node.
    pub(crate) fn acquire_op(&self, lease: Duration) -> Op {
        self.op(Action::Acquire { lease, fenced: self.is_fenced(), lookup: self.ttl_lookup })
    }

    /// Returns the operation that extends the lease on a node.
    pub(crate) fn extend_op(&self, lease: Duration) -> Op {
        self.op(Action::Extend { lease })
    }

    /// Returns the operation that raises a node's fencing counter to `number`.
    pub(crate) fn confirm_op(&self, number: i64) -> Op {
        self.op(Action::Confirm { number })
    }

    /// Returns the operation that releases the lock on a node.
    pub(crate) fn release_op(&self) -> Op {
        self.op(Action::Release { min_hold: self.min_hold_remaining() })
    }

    fn op(&self, action: Action) -> Op {
        Op::new(&self.spec, self.token, action)
    }

    /// Keeps the lock on the nodes until this moment, even if it is released earlier. Never shortens an
    /// earlier call's time.
    pub(crate) fn keep_until(&self, until: Moment, clock: &Arc<dyn Clock>) {
        let mut retention = self.retention.lock();
        if !retention.as_ref().is_some_and(|retention| retention.lasts_until(until)) {
            *retention = Some(Retention::Until(until, Arc::clone(clock)));
        }
    }

    /// Keeps the lock on the nodes until its lease runs out.
    pub(crate) fn keep_until_expiry(&self) {
        *self.retention.lock() = Some(Retention::UntilExpiry);
    }

    /// Cancels any minimum hold time: a release removes the lock at once.
    pub(crate) fn cancel_min_hold(&self) {
        *self.retention.lock() = None;
    }

    /// Returns whether the lock stays on the nodes until this moment, provided that its lease lasts that
    /// long.
    pub(crate) fn is_kept_until(&self, moment: Moment) -> bool {
        self.retention.lock().as_ref().is_some_and(|retention| retention.lasts_until(moment))
    }

    /// Returns how long the lock has to stay on the nodes after a release that is sent now.
    pub(crate) fn min_hold_remaining(&self) -> Option<Duration> {
        let retention = self.retention.lock();
        let Some(Retention::Until(until, clock)) = &*retention else { return None };
        let left = clock.now().time_until(*until);
        (!left.is_zero()).then_some(left)
    }

    /// Returns whether the lock stays until its lease runs out, so that the nodes are not asked to release
    /// it.
    pub(crate) fn is_kept_until_expiry(&self) -> bool {
        matches!(*self.retention.lock(), Some(Retention::UntilExpiry))
    }

    /// Returns whether the attempt is fenced: the nodes number its holder.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fencing.is_some()
    }

    /// Returns the fencing token of the first holder, with the number that the nodes gave; `None` if the
    /// attempt is not fenced.
    pub(crate) fn first_token(&self, number: Option<i64>) -> Option<FencingToken> {
        let fencing = self.fencing.as_ref()?;
        let number = number.unwrap_or_default();
        fencing.number.store(number, Ordering::SeqCst);
        Some(FencingToken::new(number, fencing.holder))
    }

    /// Returns the fencing token of a holder that takes the lock over, with the next greater number; `None`
    /// if the attempt is not fenced.
    pub(crate) fn next_token(&self) -> Option<FencingToken> {
        let fencing = self.fencing.as_ref()?;
        let number = fencing.number.fetch_add(1, Ordering::SeqCst) + 1;
        Some(FencingToken::new(number, fencing.holder))
    }

    /// Returns the number of the present holder; `None` if the attempt is not fenced.
    pub(crate) fn number(&self) -> Option<i64> {
        let fencing = self.fencing.as_ref()?;
        Some(fencing.number.load(Ordering::SeqCst))
    }

    /// Records that a node is asked to set the lock.
    pub(crate) fn record_asked(&self, node: usize) {
        self.asked.fetch_or(1 << node, Ordering::SeqCst);
    }

    /// Returns whether a node was asked to set the lock. A node that was never asked has nothing to release.
    pub(crate) fn was_asked(&self, node: usize) -> bool {
        self.asked.load(Ordering::SeqCst) & (1 << node) != 0
    }

    /// Marks the attempt as abandoned: no caller wants the lock any more, and the nodes are about to be asked
    /// to release it.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::SeqCst)
    }

    /// Returns the key that the caller locks; of several keys, the first.
    pub(crate) fn key(&self) -> &LockKey {
        self.keys.first()
    }

    /// Returns the keys that the caller locks.
    pub(crate) fn keys(&self) -> &[LockKey] {
        self.keys.as_slice()
    }

    /// Returns the lock as the nodes store it.
    pub(crate) fn spec(&self) -> &LockSpec {
        &self.spec
    }

    /// Returns the random value that proves ownership.
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
        Attempt::new(&spec, key)
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
