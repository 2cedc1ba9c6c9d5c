//! The state of one attempt to hold a lock.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::last_extension::LastExtension;
use crate::clock::{Clock, Moment};
use crate::error::Votes;
use crate::fencing_token::FencingToken;
use crate::key::LockKey;
use crate::lock::{HolderId, LockOwner, LockSpec, Mode, Token};
use crate::node::{Action, Ask, Op};
use crate::validity;

/// The state of one attempt to hold a lock, from its start to the end of its clean-up. Each attempt has its
/// own token (a fresh token for every attempt).
#[derive(Debug)]
pub(crate) struct Attempt {
    spec: LockSpec,
    token: Token,
    /// The public id, once somebody has asked for it.
    holder_id: OnceLock<HolderId>,
    /// The clock reading before the first byte is sent.
    pub(super) begun: Moment,
    pub(crate) clock: Arc<dyn Clock>,
    /// The lease, from the moment at which the nodes granted it.
    lease: Mutex<Lease>,
    pub(crate) last_extension: LastExtension,
    /// Notifies the futures of [`Holding::lost`](crate::lease::Holding::lost) that the deadline has changed, or that a
    /// holder has lost the lock.
    pub(crate) changed: Notify,
    /// The lock stays on the nodes until this moment, even if its holder releases it earlier. [`Moment::MAX`] if it stays
    /// until its lease runs out.
    kept_until: Mutex<Moment>,
    abandoned: AtomicBool,
    /// The nodes that were asked to set the lock, one bit for each.
    asked: AtomicU64,
    /// Whether a node that refused the lock takes marks at it.
    pub(super) met_marks: AtomicBool,
    /// The random id of the holder; `None` if the attempt is not fenced.
    fencing_holder: Option<i64>,
    /// The number of the present holder of a fenced attempt, or 0 before the first holder.
    number: AtomicI64,
    ask: Ask,
    /// The lock after a downgrade.
    downgraded: OnceLock<LockSpec>,
}

impl Ask {
    /// Records what the caller has learnt from an attempt that was refused. Returns whether the same question makes sense
    /// once more, now with a mark.
    pub(crate) fn record_refusal(&mut self, attempt: &Attempt) -> bool {
        let is_news = attempt.met_marks.load(Ordering::SeqCst) && !self.met_marks;
        self.met_marks |= is_news;
        // A fenced lock is acquired by a script, which distinguishes shared holders in any case.
        is_news && (!attempt.is_fenced() || self.mark.is_some())
    }
}

/// The lease that the nodes have granted to an attempt. After a hand-over, the next holder has it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Lease {
    /// The clock reading before the command was sent that set or extended the lease.
    pub(crate) since: Moment,
    /// Zero after a quorum of nodes has denied that the attempt holds the lock.
    pub(crate) expire: Duration,
    /// When the nodes granted the lock.
    pub(crate) granted: Moment,
    /// How often the lock was handed over since then.
    pub(crate) hand_overs: u32,
    /// When the last requested lease runs out on the nodes, whether they granted it or not.
    pub(crate) latest_expiry: Moment,
}

impl Lease {
    /// Returns the lease of an acquisition that began at `since` and was granted at `granted`.
    pub(crate) fn new(since: Moment, granted: Moment, expire: Duration) -> Self {
        // A node may have set the lock, and so started its lease, at any time until the decision.
        let latest_expiry = granted.plus(expire);
        Self { since, expire, granted, latest_expiry, hand_overs: 0 }
    }

    /// Returns how long a holder may rely on the lock.
    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        validity::remaining(self.expire, now.since(self.since))
    }

    /// Returns whether the lease lasts until this moment.
    pub(crate) fn lasts_until(&self, moment: Moment) -> bool {
        self.since.plus(self.expire).has_reached(moment)
    }

    /// Records that a node may hold the lock until this moment.
    pub(crate) fn raise_latest_expiry(&mut self, latest_expiry: Moment) {
        self.latest_expiry = self.latest_expiry.max(latest_expiry);
    }

    /// Records that a quorum has extended the lease to `expire` from `since`. Returns whether this prolongs the lease: of two
    /// concurrent extensions, the later deadline wins.
    pub(crate) fn extend(&mut self, now: Moment, since: Moment, expire: Duration) -> bool {
        let is_longer = Self { since, expire, ..*self }.remaining(now) > self.remaining(now);
        if is_longer {
            (self.since, self.expire) = (since, expire);
        }
        is_longer
    }
}

impl Attempt {
    /// Makes the state of a new attempt, which begins now. With `fenced`, the nodes number its holder.
    pub(crate) fn new(
        spec: &LockSpec,
        owner: &LockOwner,
        fenced: bool,
        ask: Ask,
        clock: &Arc<dyn Clock>,
    ) -> Arc<Self> {
        let begun = clock.now();
        Arc::new(Self {
            spec: spec.clone(),
            token: owner.token(spec.dialect(), &**clock, begun),
            holder_id: OnceLock::new(),
            begun,
            clock: Arc::clone(clock),
            lease: Mutex::default(),
            last_extension: LastExtension::default(),
            changed: Notify::new(),
            kept_until: Mutex::default(),
            abandoned: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            met_marks: AtomicBool::new(false),
            fencing_holder: fenced.then(FencingToken::random_holder),
            number: AtomicI64::new(0),
            ask,
            downgraded: OnceLock::new(),
        })
    }

    /// Returns the operation that sets the lock on a node.
    pub(crate) fn acquire_op(&self, lease: Duration) -> Op {
        let mut ask = self.ask;
        ask.mark = ask.mark.filter(|_| ask.met_marks);
        ask.met_marks |= self.is_fenced();
        let fenced = self.is_fenced() && !self.is_downgraded();
        self.op(Action::Acquire { lease, fenced, ask })
    }

    /// Returns the operation that sets the lock on a node that has forgotten it. Marks may be left there, which refuse
    /// a plain acquisition. The holder does not wait, so the operation leaves no mark.
    pub(crate) fn restore_op(&self, lease: Duration) -> Op {
        let mut op = self.acquire_op(lease);
        if let Action::Acquire { ask, .. } = &mut op.action {
            (ask.met_marks, ask.waits, ask.mark) = (true, false, None);
        }
        op
    }

    /// Returns the operation that releases the lock on a node. The release of a downgraded lock also covers the former one,
    /// which a node has kept that has missed the downgrade.
    pub(crate) fn release_op(&self) -> Op {
        self.op(Action::Release { min_hold: self.min_hold_remaining() })
    }

    /// Returns the operation that executes an action on this lock.
    pub(crate) fn op(&self, action: Action) -> Op {
        Op { spec: self.spec().clone(), token: self.token, action }
    }

    /// Records that the lock is shared from now on, whether the nodes have confirmed it or not. Its holders have no number.
    /// Returns the operation for the nodes.
    pub(crate) fn downgrade(&self) -> Op {
        self.downgraded.get_or_init(|| self.spec.with_mode(Mode::SHARED));
        self.op(Action::Downgrade)
    }

    pub(crate) fn is_downgraded(&self) -> bool {
        self.downgraded.get().is_some()
    }

    /// Keeps the lock on the nodes until this moment, even if it is released earlier. Never shortens an
    /// earlier call's time.
    pub(crate) fn keep_until(&self, until: Moment) {
        let mut kept_until = self.kept_until.lock();
        *kept_until = until.max(*kept_until);
    }

    /// Keeps the lock on the nodes until its lease runs out.
    pub(crate) fn keep_until_expiry(&self) {
        self.keep_until(Moment::MAX);
    }

    /// Cancels any minimum hold time: a release removes the lock at once.
    pub(crate) fn cancel_min_hold(&self) {
        *self.kept_until.lock() = Moment::default();
    }

    /// Returns how long the lock has to stay on the nodes after a release that is sent now.
    pub(crate) fn min_hold_remaining(&self) -> Option<Duration> {
        let kept_until = *self.kept_until.lock();
        // Most locks have no minimum hold time. For them the clock is not read.
        if kept_until == Moment::default() {
            return None;
        }
        let left = self.clock.now().time_until(kept_until);
        (!left.is_zero()).then_some(left)
    }

    /// Returns whether the lock stays until its lease runs out, so that the nodes are not asked to release
    /// it.
    pub(crate) fn is_kept_until_expiry(&self) -> bool {
        self.kept_until.lock().has_reached(Moment::MAX)
    }

    /// Returns whether the attempt is fenced: the nodes number its holder.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fencing_holder.is_some()
    }

    /// Returns the fencing token of the first holder, with the number that the nodes gave; `None` if the
    /// attempt is not fenced.
    pub(crate) fn first_token(&self, number: Option<i64>) -> Option<FencingToken> {
        let holder = self.fencing_holder?;
        let number = number.unwrap_or_default();
        self.number.store(number, Ordering::SeqCst);
        Some(FencingToken::new(number, holder))
    }

    /// Returns the fencing token of a holder that takes the lock over, with the next greater number; `None`
    /// if the attempt is not fenced.
    pub(crate) fn next_token(&self) -> Option<FencingToken> {
        let holder = self.fencing_holder?;
        let number = self.number.fetch_add(1, Ordering::SeqCst) + 1;
        Some(FencingToken::new(number, holder))
    }

    /// Returns the number of the present holder; `None` if the attempt is not fenced, or was downgraded.
    pub(crate) fn number(&self) -> Option<i64> {
        let is_numbered = self.is_fenced() && !self.is_downgraded();
        is_numbered.then(|| self.number.load(Ordering::SeqCst))
    }

    /// Returns whether the lock stays on the nodes for longer than its holders want it.
    pub(crate) fn is_kept(&self) -> bool {
        *self.kept_until.lock() != Moment::default()
    }

    /// Returns the clock reading before the first byte was sent.
    pub(crate) fn begun(&self) -> Moment {
        self.begun
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

    /// Returns the lease.
    pub(crate) fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock()
    }

    /// Records that a quorum of nodes has denied that the attempt holds the lock: no holder has it any more.
    pub(crate) fn deny(&self, votes: &Votes) {
        self.last_extension.fail(votes);
        self.abandon();
        self.lease().expire = Duration::ZERO;
        self.changed.notify_waiters();
    }

    /// Returns the key that the caller locks; of several keys, the first.
    pub(crate) fn key(&self) -> &LockKey {
        self.spec.key()
    }

    /// Returns the lock as the nodes store it.
    pub(crate) fn spec(&self) -> &LockSpec {
        self.downgraded.get().unwrap_or(&self.spec)
    }

    /// Returns the public id of the holder.
    pub(crate) fn holder_id(&self) -> HolderId {
        *self.holder_id.get_or_init(|| self.token.holder_id())
    }

    /// Returns the random value that proves ownership, with the label of the owner.
    pub(crate) fn token(&self) -> Token {
        self.token
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::clock::fake::FakeClock;
    use crate::lock::{Dialect, Mark};

    /// Returns an attempt for a plain lock, whose clock stands still.
    pub(crate) fn attempt(key: &str) -> Arc<Attempt> {
        attempt_with(key, false, Ask::FIRST)
    }

    /// Returns an attempt for a plain lock whose holder is numbered.
    pub(crate) fn fenced_attempt(key: &str) -> Arc<Attempt> {
        attempt_with(key, true, Ask::FIRST)
    }

    /// Returns an attempt for a plain lock, which begins now by this clock.
    pub(crate) fn attempt_on(key: &str, clock: &Arc<dyn Clock>) -> Arc<Attempt> {
        let spec = LockSpec::new(LockKey::new(key).unwrap(), Mode::Exclusive, Dialect::Plain);
        Attempt::new(&spec, &LockOwner::default(), false, Ask::FIRST, clock)
    }

    fn attempt_with(key: &str, fenced: bool, ask: Ask) -> Arc<Attempt> {
        let spec = LockSpec::new(LockKey::new(key).unwrap(), Mode::Exclusive, Dialect::Plain);
        let clock: Arc<dyn Clock> = Arc::new(FakeClock::default());
        Attempt::new(&spec, &LockOwner::default(), fenced, ask, &clock)
    }

    #[test]
    fn an_attempt_has_a_token_of_its_own() {
        assert_ne!(attempt("a").token(), attempt("a").token());
    }

    #[test]
    fn debug_does_not_show_the_token() {
        let attempt = attempt("a");
        assert!(!format!("{attempt:?}").contains(&*attempt.token().text()));
    }

    /// The simulation found a mark that a restored lock left for a second. Nodes that take no marks get none either. A plain
    /// acquisition does not distinguish marks, which may be left at the key, from a lock.
    #[test]
    fn only_a_caller_that_has_met_marks_leaves_one_and_a_restored_lock_passes_them() {
        let asks = |met_marks| {
            let ask = Ask { met_marks, mark: Some(Mark::random()), ..Ask::FIRST };
            let attempt = attempt_with("a", false, ask);
            [attempt.acquire_op(Duration::MAX), attempt.restore_op(Duration::MAX)]
        };
        let marks = |op: Op| match op.action {
            Action::Acquire { ask, .. } => (ask.met_marks, ask.mark.is_some()),
            other => panic!("{other:?}"),
        };
        assert_eq!(asks(false).map(marks), [(false, false), (true, false)]);
        assert_eq!(asks(true).map(marks), [(true, true), (true, false)]);
    }

    /// A lock may be restored on a node after a change of its mode.
    #[test]
    fn a_downgraded_lock_has_no_number() {
        let attempt = fenced_attempt("a");
        attempt.first_token(Some(7));
        let is_fenced = || {
            matches!(attempt.acquire_op(Duration::MAX).action, Action::Acquire { fenced: true, .. })
        };
        assert!(is_fenced());
        attempt.downgrade();
        assert!(!is_fenced() && attempt.number().is_none());
    }

    #[test]
    fn each_holder_has_a_greater_number() {
        let attempt = fenced_attempt("a");
        assert_eq!(attempt.first_token(Some(7)).unwrap().number(), 7);
        assert_eq!(attempt.number(), Some(7));
        assert_eq!(attempt.next_token().unwrap().number(), 8);
        assert_eq!(attempt.number(), Some(8));
    }
}
