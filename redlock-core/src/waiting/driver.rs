//! The loop of a waiter: does what the [machine](super::machine) says.

use std::mem;
use std::sync::Arc;

use super::Instant;
use super::fair::FairWait;
use super::machine::{
    self, AfterJoin, Failure, Fair, Machine, Pause, Question, Sight, Step, Terms, WaitRefusal, Wake,
};
use super::pauses::Now;
use super::queues::Queues;
use super::release_signal::ReleaseSignal;
use super::waiter::{KeyLine, Waiter, WaiterOptions};
use crate::error::{LockError, NodeError, Vote, Votes};
use crate::jitter::jitter;
use crate::key::LockKey;
use crate::lease::Holding;
use crate::lock::{LockSpec, Mark, Mode, OwnerLabel};
use crate::log_limit::LogLimit;
use crate::log_limited;
use crate::node::{Ask, Subscription};

/// A caller that waits for a lock.
pub(crate) trait WaitingCaller: Sync {
    type Lock: Send;

    /// Returns the lock if the scope of the caller has got it meanwhile.
    fn join(&self) -> Result<Option<Self::Lock>, LockError>;

    /// Asks the nodes.
    fn ask(&self, ask: &mut Ask) -> impl Future<Output = Result<Self::Lock, LockError>> + Send;

    /// Takes a lock that another caller of this process has handed over. Returns `None` if the lock is lost before the caller
    /// has it.
    fn take(
        &self,
        held: Arc<Holding>,
    ) -> impl Future<Output = Result<Option<Self::Lock>, LockError>> + Send;

    /// Records the holder for which the caller waits.
    fn waits(&self, holder: impl FnOnce() -> Option<OwnerLabel>);
}

/// The place of one caller that waits for a lock. Dropping it leaves everything that the caller has entered: the line of
/// a key, the fair queue, its mark on the nodes, and its request for a turn of the readers. A lock that was handed over to
/// the caller and not taken goes on to the next waiter.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(super) queues: &'a Arc<Queues>,
    pub(super) waiter: Arc<Waiter>,
    pub(super) machine: Machine<Arc<Holding>, Arc<ReleaseSignal>>,
    /// The knowledge of the caller for its next question to the nodes. The drop withdraws its mark from them.
    ask: Ask,
    /// The last refusal.
    pub(super) refusal: Option<LockError>,
    /// The label of the holder that the last look-up has found. A waiter that was woken does not look it up.
    last_holder: Option<OwnerLabel>,
    /// The requests for a turn of the readers.
    turn: Option<Vec<Subscription>>,
    /// The begin of the outage that was logged, until its end is logged.
    outage_since: Option<Instant>,
    pub(super) fair: Option<FairWait>,
}

impl<'a> Place<'a> {
    /// Enters the line of the first busy key. Of several keys that are all free, the caller enters none before the nodes have
    /// refused it, so that it keeps nobody out of the first one. A caller that comes in an outage makes one attempt before it
    /// enters, see [`is_in_line`](Self::is_in_line).
    pub(crate) fn enter(
        queues: &'a Arc<Queues>,
        spec: &'a LockSpec,
        options: WaiterOptions,
        deadline: Option<Instant>,
        fair: Option<FairWait>,
    ) -> Result<Self, LockError> {
        let nodes = &queues.ballot.nodes;
        let terms = Terms {
            mode: spec.mode(),
            has_several_keys: spec.has_several_keys(),
            is_endless: options.is_endless,
            since: options.since,
            deadline,
            nodes: nodes.len(),
            has_turns: spec.mode().is_shared() && nodes.iter().any(|node| node.turns().is_some()),
            node_timeout: queues.ballot.node_timeout,
            outage_grace: queues.outage_grace,
        };
        let mark = (spec.mode() == Mode::Exclusive).then(Mark::random);
        let mut place = Self {
            queues,
            waiter: Arc::new(Waiter::new(spec.clone(), options)),
            machine: Machine::new(terms),
            ask: Ask { waits: true, mark, ..Ask::FIRST },
            refusal: None,
            last_holder: None,
            turn: None,
            outage_since: None,
            fair,
        };
        let key = if spec.has_several_keys() { queues.busy_key(spec) } else { Some(0) };
        if let Some(key) = key {
            place.arrive(key)?;
        }
        // Afterwards, so that the tickets of this process are in the order of its line.
        if let Some(fair) = &place.fair {
            fair.enter();
        }
        Ok(place)
    }

    /// Joins the line of a key, unless the waiters there are in an outage.
    fn arrive(&mut self, key: usize) -> Result<(), LockError> {
        let Self { queues, waiter, machine, .. } = self;
        let mut by_key = queues.lock(&waiter.spec);
        let line = by_key.entry(waiter.spec.key_at(key).clone()).or_default();
        check_room(queues, waiter, line, key)?;
        let (has_quorum, since) = (|| queues.ballot.has_quorum(), waiter.options.since);
        if machine.arrive(line, key, has_quorum, since) {
            insert(queues, waiter, line, key);
        }
        Ok(())
    }

    /// Joins the line of the first key.
    pub(crate) fn join_first(&mut self) -> Result<(), LockError> {
        self.join(0, AfterJoin::Look).map(drop)
    }

    /// Returns whether the caller has joined a line.
    pub(crate) fn is_in_line(&self) -> bool {
        self.machine.at().is_some()
    }

    /// Waits until the caller has the lock. If the future is dropped, the caller gives up.
    pub(crate) async fn wait<C: WaitingCaller>(
        &mut self,
        caller: &C,
    ) -> Result<C::Lock, LockError> {
        let mut step = Step::Look;
        loop {
            step = match step {
                Step::Look => {
                    if let Some(lock) = caller.join()? {
                        return Ok(lock);
                    }
                    self.look()?
                }
                Step::Ask => {
                    self.ask.skip_lookup = self.machine.skips_lookup();
                    match caller.ask(&mut self.ask).await {
                        Ok(lock) => return Ok(self.done(lock)),
                        Err(refused) => match caller.join()? {
                            Some(lock) => return Ok(lock),
                            None => self.refuse(refused),
                        },
                    }
                }
                Step::Take => {
                    let Some(held) = self.waiter.take() else { return Err(self.timed_out()) };
                    let taken = caller.take(held).await;
                    if let Ok(Some(lock)) = taken {
                        return Ok(self.done(lock));
                    }
                    self.rejoin();
                    match taken {
                        Err(refused) => match caller.join()? {
                            Some(lock) => return Ok(lock),
                            None => self.refuse_in_line(refused)?,
                        },
                        Ok(_) => Step::Look,
                    }
                }
                Step::Join(key, then) => self.join(key, then)?,
                Step::Sleep(until) => {
                    caller.waits(|| self.holder());
                    let wake = self.sleep(until).await;
                    self.woken(wake)
                }
                Step::Fail(failure) => return Err(self.failure(failure)),
            }
        }
    }

    /// Looks at the line, under its lock from the first to the last line: other callers hand locks over to the waiter, and
    /// put others before it.
    fn look(&mut self) -> Result<Step, LockError> {
        self.check_drain()?;
        let Self { queues, waiter, machine, fair, .. } = self;
        let spec = &waiter.spec;
        let mut by_key = queues.lock(spec);
        let now = now();
        if !queues.closed.is_cancelled()
            && let Some(line) = by_key.get_mut(spec.key())
        {
            // Then the step is that of a lock that was handed over.
            queues.join_as(line, waiter, now.at);
        }
        let is_blocked = |key| {
            by_key.get(key).is_some_and(|line: &KeyLine| machine.blocking(line, now.at).is_some())
        };
        let sight = Sight {
            was_handed_over: waiter.was_handed_over(),
            is_closed: queues.closed.is_cancelled(),
            blocked_key: spec
                .has_several_keys()
                .then(|| spec.keys().iter().position(is_blocked))
                .flatten(),
        };
        let mut no_conductor = None;
        let position = || match fair.as_ref().map(FairWait::position) {
            None => Fair::First,
            Some(Ok(position)) => position,
            Some(Err(votes)) => {
                no_conductor = Some(votes);
                Fair::NoConductor
            }
        };
        let line = machine.at().and_then(|key| by_key.get_mut(spec.key_at(key)));
        let step = machine.look(line, waiter, &now, sight, position);
        drop(by_key);
        self.follow();
        Ok(match no_conductor {
            Some(votes) => {
                let key = self.waiter.spec.key().clone();
                self.refuse(LockError::Unavailable { key, votes })
            }
            None => step,
        })
    }

    /// Records that the lock was not acquired.
    fn refuse(&mut self, mut error: LockError) -> Step {
        let named = self.record_holder(&mut error);
        let Self { queues, waiter, machine, last_holder, .. } = self;
        let refusal = WaitRefusal::of(&error, &waiter.spec, waiter.options.is_endless);
        let mut by_key = queues.lock(&waiter.spec);
        let mut line = machine.at().and_then(|key| by_key.get_mut(waiter.spec.key_at(key)));
        if let Some(shared) = line.as_mut().and_then(|line| line.shared_mut()) {
            if named {
                shared.holder.clone_from(last_holder);
            }
            if let WaitRefusal::NoQuorum { .. } = refusal {
                shared.votes = error.votes().cloned().unwrap_or_default();
            }
        }
        let step = machine.refuse(line, waiter, &now(), refusal, Waiter::wake);
        drop(by_key);
        self.refusal = Some(error);
        self.follow();
        step
    }

    /// Records that the lock was not acquired while the waiter stood in no line. Returns an error if a drain or a shutdown has
    /// begun meanwhile: from now on, it notifies the waiter.
    fn refuse_in_line(&mut self, error: LockError) -> Result<Step, LockError> {
        self.check_drain()?;
        self.queues.home.check_open()?;
        Ok(self.refuse(error))
    }

    /// Records the label of the holder that the nodes have reported, and adds the last one to a refusal without a look-up.
    /// Returns whether the nodes have refused the lock.
    fn record_holder(&mut self, error: &mut LockError) -> bool {
        let LockError::Contended { holder, votes, .. } = error else { return false };
        if votes.is_empty() {
            // This process has the lock.
            return false;
        }
        if self.ask.skip_lookup && holder.is_none() {
            holder.clone_from(&self.last_holder);
        } else {
            self.last_holder.clone_from(holder);
        }
        true
    }

    /// Joins the line of a key, and leaves the one in which it is. In each line, the caller stands in front of later
    /// callers.
    fn join(&mut self, key: usize, then: AfterJoin) -> Result<Step, LockError> {
        let Self { queues, waiter, machine, .. } = self;
        if let Some(former) = machine.leave() {
            queues.leave(waiter.spec.key_at(former), waiter);
        }
        let mut by_key = queues.lock(&waiter.spec);
        let line = by_key.entry(waiter.spec.key_at(key).clone()).or_default();
        check_room(queues, waiter, line, key)?;
        insert(queues, waiter, line, key);
        machine.join(key, &now());
        if then == AfterJoin::EndOutage {
            machine::record_quorum(Some(&mut *line), waiter, Waiter::wake);
        }
        let is_first = line.is_first(waiter);
        drop(by_key);
        if !is_first {
            // It would keep out the readers before it until it ends.
            self.withdraw_mark();
        }
        if then == AfterJoin::EvaluateRefusal
            && let Some(refusal) = self.refusal.take()
        {
            return self.refuse_in_line(refusal);
        }
        Ok(Step::Look)
    }

    /// Returns to the head of the line after the lock that was handed over turned out to be lost.
    fn rejoin(&self) {
        let Self { queues, waiter, machine, .. } = self;
        let Some(key) = machine.at() else { return };
        let mut by_key = queues.lock(&waiter.spec);
        let line = by_key.entry(waiter.spec.key_at(key).clone()).or_default();
        line.insert_first(waiter, || queues.share(&waiter.spec, key));
        waiter.options.name.metrics.waits();
    }

    /// Records the end of a sleep.
    fn woken(&mut self, wake: Wake) -> Step {
        let Self { queues, waiter, machine, .. } = self;
        let pause = machine.pause();
        let has_fired = match pause {
            Some(Pause::Split(Question { heard: Some((signal, counts)), .. })) => {
                signal.has_fired(counts)
            }
            _ => false,
        };
        let name = pause.map(Pause::name).unwrap_or_default();
        let key = waiter.spec.key_at(machine.at().unwrap_or_default());
        tracing::trace!(lock = %key, pause = %name, ?wake, "a waiter wakes");
        let is_queued =
            || queues.lock(&waiter.spec).get(key).is_some_and(|line| line.is_queued(waiter));
        let step = machine.wake(wake, has_fired, is_queued);
        self.follow();
        if wake == Wake::HomeIsIdle { self.record_idle_home() } else { step }
    }

    /// Records that no thread drives the home, so that no node keeps the fair order.
    fn record_idle_home(&mut self) -> Step {
        // The conductor may have answered since the last look.
        if let Some(Ok(Fair::Behind(since))) = self.fair.as_ref().map(FairWait::position) {
            self.with_line(|line| machine::end_outage_before(line, since));
        }
        let idle = Vote::Failed(NodeError::RuntimeIdle);
        let nodes = self.queues.ballot.nodes.iter();
        let votes = nodes.map(|node| (Arc::clone(node.name()), Some(idle.clone()))).collect();
        let error = LockError::Unavailable { key: self.key().clone(), votes };
        if self.queues.home.runtime().is_none() {
            // Outside of every runtime, nothing could end a pause.
            self.refusal = Some(error);
            return Step::Fail(Failure::Refused);
        }
        self.refuse(error)
    }

    /// Does what the machine wants beside its steps: requests a turn of the readers, and logs the begin and the end of an
    /// outage.
    fn follow(&mut self) {
        if self.machine.wants_turn() {
            let nodes = self.queues.ballot.nodes.iter();
            self.turn.get_or_insert_with(|| {
                let turns = nodes.filter_map(|node| node.turns());
                turns.map(|turns| turns.request_turn(&self.waiter.spec)).collect()
            });
        } else {
            self.turn = None;
        }
        let since = self.machine.outage_since();
        match (self.outage_since, since) {
            (None, Some(_)) => {
                let votes = self.refusal.as_ref().and_then(LockError::votes);
                let error = self.refusal.as_ref().map(LockError::diagnostics);
                log_limited!(
                    self.queues.log_limit, "waits in an outage",
                    votes.map_or("", LogLimit::failed_node), warn,
                    lock = %self.key(), error = error.map(tracing::field::display),
                    "a caller waits for ever for a lock, and goes on to wait until a quorum of nodes answers"
                );
            }
            (Some(since), None) => log_limited!(
                self.queues.log_limit, "waited in an outage", "", info,
                lock = %self.key(), outage = ?since.elapsed(),
                "a quorum of nodes has answered a caller that waits for ever for a lock"
            ),
            _ => {}
        }
        self.outage_since = since;
    }

    /// Records that the caller has the lock.
    fn done<L>(&mut self, lock: L) -> L {
        self.machine.acquired();
        self.follow();
        if let Some(fair) = &self.fair {
            fair.take_first();
        }
        lock
    }

    /// Returns an error if a drain ends the wait. A lock that was handed over before is taken.
    pub(super) fn check_drain(&self) -> Result<(), LockError> {
        let refused = self.queues.check_drain(|| self.waiter.options.caller);
        refused.or_else(|refused| if self.waiter.was_handed_over() { Ok(()) } else { Err(refused) })
    }

    fn failure(&mut self, failure: Failure) -> LockError {
        match (failure, self.refusal.take()) {
            (Failure::Refused, Some(refusal)) => refusal,
            _ => self.timed_out(),
        }
    }

    /// Returns the error of a caller whose waiting time was over before it could ask the nodes.
    fn timed_out(&self) -> LockError {
        let votes =
            |line: &mut KeyLine| line.outage().and_then(|_| Some(line.shared()?.votes.clone()));
        if let Some(votes) = self.with_line(votes).flatten() {
            return LockError::Unavailable { key: self.key().clone(), votes };
        }
        let conflict = self.queues.local_conflict(&self.waiter.spec);
        conflict.unwrap_or_else(|| {
            let refusal = LockError::contended(self.key().clone(), None, Votes::default());
            refusal.with_holder_if_known(self.last_holder.clone())
        })
    }

    /// Returns the label of the holder for which the caller waits, as far as this process knows.
    fn holder(&self) -> Option<OwnerLabel> {
        let in_line = self.with_line(|line| {
            let own = line.holders().last().and_then(|held| held.attempt().token().label());
            own.or_else(|| line.shared()?.holder.clone())
        });
        in_line.flatten().or_else(|| self.last_holder.clone())
    }

    /// Withdraws the mark from the nodes that may have it. The next question leaves another one.
    fn withdraw_mark(&mut self) {
        if self.ask.met_marks
            && let Some(mark) = &mut self.ask.mark
        {
            let mark = mem::replace(mark, Mark::random());
            self.queues.ballot.withdraw_in_background(&self.waiter.spec, mark);
        }
    }

    /// Returns the key in whose line the waiter stands.
    pub(super) fn key(&self) -> &LockKey {
        self.waiter.spec.key_at(self.machine.at().unwrap_or_default())
    }

    /// Calls `f` with the line in which the waiter stands, under the lock of the lines.
    pub(super) fn with_line<T>(&self, f: impl FnOnce(&mut KeyLine) -> T) -> Option<T> {
        let mut by_key = self.queues.lock(&self.waiter.spec);
        by_key.get_mut(self.waiter.spec.key_at(self.machine.at()?)).map(f)
    }
}

fn now() -> Now {
    Now { at: Instant::now(), chance: || jitter(0.0..1.0) }
}

/// Adds a waiter to the line of a key. The gauge of the metrics has the waiters in lines, as a snapshot.
fn insert(queues: &Queues, waiter: &Arc<Waiter>, line: &mut KeyLine, key: usize) {
    line.insert(waiter, || queues.share(&waiter.spec, key));
    waiter.options.name.metrics.waits();
}

/// Refuses a caller for whom the line of a key has no place left.
fn check_room(
    queues: &Queues,
    waiter: &Waiter,
    line: &KeyLine,
    key: usize,
) -> Result<(), LockError> {
    let limit = queues.max_waiters;
    if line.has_room(limit) {
        return Ok(());
    }
    Err(LockError::TooManyWaiters { key: waiter.spec.key_at(key).clone(), limit })
}

impl Drop for Place<'_> {
    /// Withdraws the mark, and leaves the line.
    fn drop(&mut self) {
        // Before the next waiter asks the nodes.
        self.withdraw_mark();
        if let Some(key) = self.machine.at() {
            self.queues.leave(self.waiter.spec.key_at(key), &self.waiter);
        }
    }
}
