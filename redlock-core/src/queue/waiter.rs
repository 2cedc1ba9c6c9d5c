//! The record of one waiter in the queue of a key, and the states of a waiter.
//!
//! The `Place` of a caller (`place.rs`) has the state that no other caller reads. Its [`Waiter`] is a record in the
//! `KeyQueue` of one key (`key_queue.rs`), which all callers change under the lock of the `Queues` (one for each dialect).
//!
//! * **Where does it sleep, and what wakes it?** `Place::sleep` (`sleep.rs`) logs the pause, and the event that has ended it
//!   (level `TRACE`, "a waiter wakes"). Other callers wake it by [`Waiter::changed`]: this file, the functions `wake_*` of
//!   `key_queue.rs`, and `Queues::wake_all` (drain, shutdown).
//! * **Where is a lock granted?** In `Ballot::acquire`, when a quorum has granted it and validity is left; then `make_guard`
//!   (`request/grant.rs`) makes the guard. Without the nodes: in `hand_over.rs`, and `take` (`request/grant.rs`) confirms it.
//! * **What does a dropped future leave behind?** Nothing in this process: `Place::drop` removes what the waiter has
//!   entered. `CleanupGuard` (`ballot/acquire.rs`), or the `LockGuard` if there is one, releases the lock on the nodes. A node
//!   that cannot be reached keeps it until its lease ends.
//!
//! # States
//!
//! ```text
//!             it is its turn            nothing is in its way            granted
//!   Queued ───────────────► Called ───────────────────────► Asking ───────────────► guard
//!                           ▲    │                            │ └─► error
//!            its pause ends │    │ no fair order              │ refused, or no quorum,
//!                           │    ▼                            │ and it is the first
//!                           Refused ◄─────────────────────────┘
//!                           └─► error: the grace of an outage is over
//!   Called, Asking, Refused ─── it is not the first any more ───► Queued
//!   Called, Refused ─── hand-over ───► HandedOver ─── taken ───► guard
//!                                          └─── lost before ───► Called
//! ```
//!
//! * "First" is the first waiter in the queue of the key.
//! * A "reader" is a caller for a shared lock without permits that is not fair.
//! * A reader "leads" while it is Called or Asking, and has met neither a refusal nor a holder of this process.
//! * To "join" or "go on to" a queue means: to be Called there if the caller is the first, or a reader directly behind a
//!   leading reader, and otherwise to be Queued.
//!
//! A new caller asks before it joins a queue in two cases:
//!
//! * It wants several keys, and this process neither holds nor waits for any of them.
//! * Others wait for the lock, no holder of this process has it, and these waiters are in an outage or no quorum is up. If a
//!   quorum is up, a fair caller looks at the fair queue instead of asking, and joins.
//!
//! If it is refused, it joins the queue of the refused key. Without a quorum it fails; a caller that waits for ever joins the queue of
//! its first key, as Refused. Every other new caller joins a queue at once: of several keys, that of the first busy one.
//!
//! | state | event | next state | effect |
//! |---|---|---|---|
//! | new, moving | the queue has `max_waiters` waiters | error | `TooManyWaiters` |
//! | Queued | it becomes the first | Called | notified |
//! | Queued | a reader of this process was granted the lock; the first is a reader, and only Queued readers stand between | Called | notified |
//! | Queued | a waiter has left; a leading reader stands before, and only Queued readers between | Called | notified |
//! | Called | a holder of this process is in its way | Called; a reader that is not the first: Queued | sleeps (`Holder`; Queued: `Queue`) |
//! | Called | the same, but the holders share the lock, and the waiter is a writer | as without holders | asks, and leaves its mark. After a grant beside a valid holder it sleeps (`Holder`) instead |
//! | Called | this process holds another key of the waiter | goes on to its queue | keeps the time of its arrival |
//! | Called | less than 2 ms after a release, without a holder in this process: the turn of other processes | Called | sleeps (`Yield`) |
//! | Called | several nodes have named two keys within 8 ms | Called | sleeps (`Yield`) |
//! | Called | the nodes refused several keys because of this one, and no subscription is in effect here | Called | sleeps (`Subscribe`): another refusal is likely |
//! | Called | the first fair ticket is unknown, or of another process | Called | sleeps (`Fair`). Behind another process it counts as waiting, and an earlier outage ends |
//! | Called | no node keeps the fair order; or no thread drives the home | as without a quorum | |
//! | Called, Refused, first | an older caller comes from another queue, or after it has asked; or a waiter whose lock was lost returns | Queued | the older caller is Called. A reader that leads stays Called |
//! | Called | nothing is in its way | Asking | counts the releases that were published so far |
//! | Asking | granted | guard | `Queues::admit` ends the outage, and calls the readers behind it |
//! | Asking | granted beside a valid holder of this process | Called; not the first: Queued | the attempt is released, and the waiter does not listen to that. Sleeps (`Holder`), a writer beside readers for 500 ms at most |
//! | Asking | refused, not the first | Queued | |
//! | Asking | refused, the first | Refused | pauses, see below |
//! | Asking | refused for another of its keys, the first; the votes are not split, or no subscription was in effect | goes on to its queue | holds nothing while it waits. Behind others it withdraws its mark, which would keep out the readers before it. A lock of several keys is never handed over |
//! | Asking | no quorum, for a reason that may pass; it waited before the outage, or waits for ever | Refused; not the first: Queued | sleeps (`Outage`). A caller that waits for ever logs the begin and the end of the outage, and a lease that was too short for the votes is an outage too |
//! | Asking | no quorum otherwise; or another error | error | |
//! | Asking | refused, and the `wait_time` is over | error | `Contended` with the votes, or `Split`, which is repeated as without a `wait_time` |
//! | Refused | its pause ends | Called | |
//! | Refused | the time of an `Outage` is over | error | a lock that is handed over at that moment goes on. A waiter that is Queued meanwhile waits on |
//! | Called, Refused, first | a holder of this process releases a lock of one key, `hand_over.rs` allows it, and no drain has begun | `HandedOver` | leaves the queue, so that the next waiter watches the new holder |
//! | `HandedOver` | it takes the lock | guard | fenced: confirms its number. A short lease is extended in the background |
//! | `HandedOver` | the lock is lost before | Called, the first | |
//! | `HandedOver` | no quorum confirms its number | Refused (`Outage`), the first; or error | the attempt is abandoned |
//! | any | its scope gets the lock | guard, or `AlreadyHeld` | checked in each pass of `Acquisition::wait`, and after a refusal |
//! | any | shutdown, end of the runtime | error | all waiters are notified |
//! | all but `HandedOver` | drain, and neither its scope nor its task holds a lock | error | all waiters are notified, and look at `Queues::check_drain` before each step. Asking: after a refusal |
//! | Queued, Called | the `wait_time` is over while it is Queued, or a holder of this process or a fair ticket is in its way | error | `Unavailable` in an outage, else `Contended`. If nothing is in its way, it asks once more |
//! | any | its future is dropped | | `Place::drop`: withdraws its mark, leaves all queues and the readers' turn; a lock that was handed over goes on. A question in progress: `CleanupGuard` |
//!
//! The pause of a waiter that is Refused:
//!
//! 1. `Subscribe`, if no subscription was in effect at the question.
//! 2. `Split`, if the votes are split, or may be: nodes do not name their holders, and others granted the lock.
//! 3. `Release`, if the holder's TTL is known, or was not looked up because a release had just woken the waiter.
//! 4. `Release` with a single node, and `Split` otherwise.
//!
//! # Pauses
//!
//! Every pause also ends with the `wait_time`. Of the notifications, only a hand-over, a drain and a shutdown end `Yield`,
//! `Split` and `Subscribe`.
//!
//! | pause | ends |
//! |---|---|
//! | `Queue` | by a notification of another caller |
//! | `Holder` | by a notification (also of a release), when the holder's lock is lost, or 2 ms after the end of the validity that it had at first; for a writer behind readers after 250 to 500 ms at most |
//! | `Yield`, `Split` | after its time |
//! | `Subscribe` | when a quorum of subscriptions is in effect, or after `node_timeout` |
//! | `Release` | by a notification, when a quorum of nodes has published a release, or after the poll time: 2 ms after the rest of the holder's TTL, at most 250 to 500 ms; 10 to 20 ms if the TTL was not looked up |
//! | `Fair` | by a notification, when its fair position changes, or when no thread drives the home |
//! | `Outage` | by a notification; when a back-off is over and a quorum is up; `outage_grace` after the outage began, unless it waits for ever. If it does, the first pause lets the nodes try to connect |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::fair::Tickets;
use crate::caller_id::CallerId;
use crate::lease::Holding;
use crate::lock::{LockSpec, Mode};
use crate::telemetry::Named;

/// The requirements of one waiter.
#[derive(Debug, Clone)]
pub(crate) struct WaiterOptions {
    /// The lease that the waiter requests.
    pub(crate) expire: Duration,
    /// Whether the waiter may take a lock that another caller acquired.
    pub(crate) accepts_hand_over: bool,
    /// Whether the waiter needs a fencing token.
    pub(crate) fenced: bool,
    /// Whether the waiter waits for ever, also while no quorum of nodes answers.
    pub(crate) is_endless: bool,
    pub(crate) caller: CallerId,
    /// The name of the lock, which the caller has given to it.
    pub(crate) name: Named,
    /// When the caller began to wait. A lock of several keys may have waited in other queues before.
    pub(crate) since: Instant,
    /// The fair queue in which the caller waits, if any.
    pub(crate) fair: Option<Arc<Tickets>>,
}

/// The record of one waiter. A caller that changes the state of a waiter in a queue holds the lock of the queues.
#[derive(Debug)]
pub(super) struct Waiter {
    /// The lock that the waiter requests. Its other keys have other queues.
    pub(super) spec: LockSpec,
    pub(super) options: WaiterOptions,
    state: Mutex<WaiterState>,
    /// Whether the waiter asks the nodes alone, although readers stand behind it: they have refused it, or a holder of this
    /// process was in its way.
    asks_alone: AtomicBool,
    /// The address of the holder for whose end the waiter waits, or zero.
    watched: AtomicUsize,
    /// Notified at each change that concerns the waiter.
    pub(super) changed: Notify,
}

/// The state of a waiter. The [module](self) has the table of the transitions.
#[derive(Debug, Clone)]
pub(super) enum WaiterState {
    /// The waiter stands behind another one.
    Queued,
    /// The waiter may ask the nodes, unless something is in its way. The first waiter of a queue never stays `Queued`.
    /// Readers behind it are called together.
    Called,
    /// The waiter asks the nodes.
    Asking,
    /// The nodes have refused the first waiter, or no quorum has answered it. It pauses.
    Refused,
    /// The lock was handed over to the waiter, which has left the queue and has not taken the lock yet.
    HandedOver(Arc<Holding>),
}

impl Waiter {
    pub(super) fn new(spec: LockSpec, options: WaiterOptions) -> Self {
        Self {
            spec,
            options,
            state: Mutex::new(WaiterState::Called),
            asks_alone: AtomicBool::new(false),
            watched: AtomicUsize::new(0),
            changed: Notify::new(),
        }
    }

    pub(super) fn state(&self) -> WaiterState {
        self.state.lock().clone()
    }

    /// Sets the state, and returns the former one.
    pub(super) fn set(&self, state: WaiterState) -> WaiterState {
        match state {
            WaiterState::Refused => self.asks_alone.store(true, Ordering::Relaxed),
            WaiterState::Queued => self.asks_alone.store(false, Ordering::Relaxed),
            WaiterState::Called | WaiterState::Asking | WaiterState::HandedOver(_) => {}
        }
        std::mem::replace(&mut *self.state.lock(), state)
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(*self.state.lock(), WaiterState::Queued)
    }

    /// Returns whether the nodes have the waiter's question, or have refused it.
    pub(super) fn is_asking(&self) -> bool {
        matches!(*self.state.lock(), WaiterState::Asking | WaiterState::Refused)
    }

    /// Returns whether the waiter may take a lock that is handed over: it does not ask the nodes at the moment.
    pub(super) fn may_take(&self) -> bool {
        matches!(*self.state.lock(), WaiterState::Called | WaiterState::Refused)
    }

    /// Returns whether the next reader may ask the nodes together with this one.
    pub(super) fn leads_readers(&self) -> bool {
        self.is_reader()
            && !self.asks_alone.load(Ordering::Relaxed)
            && matches!(*self.state.lock(), WaiterState::Called | WaiterState::Asking)
    }

    /// Lets a waiter that stands behind another one ask the nodes. Returns false if that changes nothing.
    pub(super) fn call(&self) -> bool {
        let is_queued = self.is_queued();
        if is_queued {
            self.set(WaiterState::Called);
            self.changed.notify_one();
        }
        is_queued
    }

    /// Returns whether the waiter is a reader that waits for its turn in this process only. Whether a fair reader is next
    /// of all processes is known only when the ticket before it has left.
    pub(super) fn is_reader(&self) -> bool {
        self.spec.mode() == Mode::SHARED && self.options.fair.is_none()
    }

    /// Hands a lock over to the waiter, and wakes it.
    pub(super) fn assign(&self, held: Arc<Holding>) {
        self.set(WaiterState::HandedOver(held));
        self.changed.notify_one();
    }

    /// Records for the end of which holder the waiter waits.
    pub(super) fn watch(&self, held: &Arc<Holding>) {
        self.asks_alone.store(true, Ordering::Relaxed);
        self.watched.store(Arc::as_ptr(held).addr(), Ordering::Relaxed);
    }

    /// Returns whether the waiter waits for the end of this holder.
    pub(super) fn watches(&self, held: &Arc<Holding>) -> bool {
        self.watched.load(Ordering::Relaxed) == Arc::as_ptr(held).addr()
    }
}
