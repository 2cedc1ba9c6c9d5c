//! The claims that the checker tests, and the situations that must occur.

use stateright::Property;

use super::Mode;
use super::machine::{Pause, Step};
use super::pauses::AFTER_EXPIRY;
use super::state::{Caller, Held, Phase, Signal, State, Who};
use super::step::{GRACE, LEASE};
use super::world::{Waiting, World};

/// A property of every state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Claim {
    /// A waiter that may go is awake, or has been woken, or sleeps until a time. The first waiter does not stand behind
    /// another one.
    NobodySleepsForEver,
    /// The first waiter is woken at the end of an outage, and beside a new holder of its process.
    TheFirstIsTold,
    /// Locks of this process that exclude each other have one holder that relies on them.
    OneHolder,
    /// A waiter that asks the nodes is given no other lock.
    NoLockWaits,
    /// A caller that has left has no place in the line, and a line without waiters keeps nothing.
    NoPlaceStays,
    /// A caller gets the lock before all callers that have come later, unless an outage lets these ask first. A caller whose
    /// lock was lost before it took it is first again.
    OrderIsKept,
    /// A caller that comes again and again gets the lock before an earlier one a few times at most, in an outage.
    NobodyIsOvertakenForEver,
    /// A waiter behind another one does not give up because of an outage.
    OnlyTheFirstGivesUp,
    /// The grace of an outage counts from its begin.
    OneGrace,
    /// Only the first waiter asks the nodes, and readers directly behind it. After a refusal, or behind a holder of its process,
    /// it asks alone.
    FewAsk,
    /// When the nodes grant a reader the lock, the reader behind the first one is called, too.
    ReadersGoTogether,
    /// A waiter does not ask again and again without a pause.
    NoBusyLoop,
    /// A reader that stands behind another waiter wants no turn of the readers, which keeps the writers of all processes out.
    TheWishEnds,
    /// The nodes have the lock of each guard for as long as the guard is valid, also of readers that share a lock.
    NoGuardOutlivesItsLock,
    /// A reader joins a lock only in the window, which no join prolongs.
    TheWindowEnds,
    /// No reader joins a lock while a caller waits that is no reader.
    AWriterClosesTheWindow,
    /// No reader joins a lock after the nodes have refused one: a writer of another process may wait.
    ARefusalClosesTheWindow,
    /// While a reader asks the nodes, the others wait for its answer for as long as the window lasts, unless they have done so.
    FewReadersAsk,
    /// A reader waits for one answer to another reader at most, until the nodes have refused it.
    OneAnswer,
    /// A message may get lost, and a holder may overrun its lease. So each pause of a first waiter has an end: that of the
    /// longest lease, at the latest.
    EachPauseEnds,
}

impl Claim {
    pub(super) const ALL: [Self; 20] = [
        Self::NobodySleepsForEver,
        Self::TheFirstIsTold,
        Self::OneHolder,
        Self::NoLockWaits,
        Self::NoPlaceStays,
        Self::OrderIsKept,
        Self::NobodyIsOvertakenForEver,
        Self::OnlyTheFirstGivesUp,
        Self::OneGrace,
        Self::FewAsk,
        Self::ReadersGoTogether,
        Self::NoBusyLoop,
        Self::TheWishEnds,
        Self::NoGuardOutlivesItsLock,
        Self::TheWindowEnds,
        Self::AWriterClosesTheWindow,
        Self::ARefusalClosesTheWindow,
        Self::FewReadersAsk,
        Self::OneAnswer,
        Self::EachPauseEnds,
    ];

    /// Returns the name of the claim in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::NobodySleepsForEver => "nobody who may go sleeps for ever",
            Self::TheFirstIsTold => "the first waiter is told",
            Self::OneHolder => "one holder",
            Self::NoLockWaits => "no lock waits for a waiter that asks",
            Self::NoPlaceStays => "no place outlives its future",
            Self::OrderIsKept => "nobody is overtaken",
            Self::NobodyIsOvertakenForEver => "nobody is overtaken for ever",
            Self::OnlyTheFirstGivesUp => "only the first waiter gives up",
            Self::OneGrace => "one grace for an outage",
            Self::FewAsk => "only the first waiters ask",
            Self::ReadersGoTogether => "readers go together",
            Self::NoBusyLoop => "no busy loop",
            Self::TheWishEnds => "the wish for a turn ends",
            Self::NoGuardOutlivesItsLock => "no guard outlives its lock",
            Self::TheWindowEnds => "the window ends",
            Self::AWriterClosesTheWindow => "a writer closes the window",
            Self::ARefusalClosesTheWindow => "a refusal closes the window",
            Self::FewReadersAsk => "readers wait for the one that asks",
            Self::OneAnswer => "a reader waits for one answer",
            Self::EachPauseEnds => "each pause ends",
        }
    }

    pub(super) fn property(self) -> Property<Waiting> {
        let condition = match self {
            Self::NobodySleepsForEver => nobody_sleeps_for_ever,
            Self::TheFirstIsTold => the_first_is_told,
            Self::OneHolder => one_holder,
            Self::NoLockWaits => no_lock_waits,
            Self::NoPlaceStays => no_place_stays,
            Self::OrderIsKept => order_is_kept,
            Self::NobodyIsOvertakenForEver => nobody_is_overtaken_for_ever,
            Self::OnlyTheFirstGivesUp => only_the_first_gives_up,
            Self::OneGrace => one_grace,
            Self::FewAsk => few_ask,
            Self::ReadersGoTogether => readers_go_together,
            Self::NoBusyLoop => no_busy_loop,
            Self::TheWishEnds => the_wish_ends,
            Self::NoGuardOutlivesItsLock => no_guard_outlives_its_lock,
            Self::TheWindowEnds => the_window_ends,
            Self::AWriterClosesTheWindow => a_writer_closes_the_window,
            Self::ARefusalClosesTheWindow => a_refusal_closes_the_window,
            Self::FewReadersAsk => few_readers_ask,
            Self::OneAnswer => one_answer,
            Self::EachPauseEnds => each_pause_ends,
        };
        Property::always(self.name(), condition)
    }
}

/// Situations that must occur in some state of a world.
pub(super) fn situations(world: &World) -> Vec<Property<Waiting>> {
    let sleeps = |name, is: fn(&Waiting, &State) -> bool| Property::sometimes(name, is);
    let mut all = Vec::new();
    if world.readers.contains(&false) {
        all.extend([
            sleeps("a waiter sleeps behind another one", |_, state| {
                state.pauses().any(|pause| matches!(pause, Pause::Queue))
            }),
            sleeps("a waiter sleeps behind a holder of its process", |_, state| {
                state.pauses().any(|pause| matches!(pause, Pause::Holder(_)))
            }),
        ]);
    }
    if world.others > 0 {
        all.extend([
            sleeps("a waiter sleeps until its subscription is in effect", |_, state| {
                state.pauses().any(|pause| matches!(pause, Pause::Subscribe))
            }),
            sleeps("a waiter sleeps until a release", |_, state| {
                state.pauses().any(|pause| matches!(pause, Pause::Release(_)))
            }),
            sleeps("another process has its turn", |_, state| {
                state.pauses().any(|pause| matches!(pause, Pause::Yield))
            }),
        ]);
    }
    if world.splits > 0 {
        all.push(sleeps("a waiter sleeps after split votes", |_, state| {
            state.pauses().any(|pause| matches!(pause, Pause::Split(_)))
        }));
    }
    if world.outages > 0 {
        all.push(sleeps("a waiter sleeps in an outage", |_, state| {
            state.pauses().any(|pause| matches!(pause, Pause::Outage { .. }))
        }));
    }
    if world.readers.iter().filter(|is_reader| !**is_reader).count() > 1 {
        all.push(sleeps("a waiter takes a lock that was handed over", |_, state| {
            state.callers.iter().any(|caller| matches!(&caller.phase, Phase::Steps(_, Step::Take)))
        }));
    }
    if world.joins {
        all.extend([
            sleeps("a reader waits for the answer to another one", |_, state| {
                state.pauses().any(|pause| matches!(pause, Pause::Reader))
            }),
            sleeps("two readers share a lock", |_, state| {
                let mut valid = state.valid();
                valid.any(|one| state.valid().any(|other| one.is_sibling(&other)))
            }),
            sleeps("a reader takes a lock that it has joined while it waited", |_, state| {
                let mut callers = state.callers.iter();
                callers
                    .any(|caller| matches!(caller.handed_over, Some(held) if held.id != held.token))
            }),
        ]);
    } else if world.readers.iter().filter(|is_reader| **is_reader).count() > 1 {
        all.push(sleeps("two readers ask at once", |_, state| {
            let asks = |caller: &&Caller| matches!(caller.phase, Phase::Asks(_));
            state.callers.iter().filter(asks).count() > 1
        }));
    }
    all
}

impl State {
    fn pauses(&self) -> impl Iterator<Item = &Pause<Held, Signal>> {
        self.callers.iter().filter_map(|caller| match &caller.phase {
            Phase::Sleeps(machine, ..) => machine.pause(),
            _ => None,
        })
    }
}

fn nobody_sleeps_for_ever(_: &Waiting, state: &State) -> bool {
    let is_first_queued =
        state.line.first().is_some_and(|first| state.line.is_queued(&first.waiter));
    !is_first_queued
        && (0..state.callers.len()).all(|caller| {
            let one = &state.callers[caller];
            let Phase::Sleeps(machine, ..) = &one.phase else { return true };
            // A waiter that was put behind another one during its pause is called when that one leaves.
            let is_queued = state.line.is_queued(&one.who);
            let waits_for_something = match machine.pause() {
                // It stands behind another one, or was called and is woken.
                Some(Pause::Queue) => is_queued,
                Some(Pause::Holder(held)) => {
                    let mut holders = state.line.holders().iter();
                    is_queued
                        || holders.any(|holder| holder.id == held.id)
                        || state.releases(held.id)
                }
                Some(Pause::Reader) => {
                    is_queued || state.line.follows(&one.who, state.now).is_some()
                }
                _ => true,
            };
            waits_for_something || !state.reasons(caller).is_empty()
        })
}

impl State {
    /// Returns whether a holder has ended its holding, and wakes the first waiter when the nodes have deleted its lock.
    fn releases(&self, id: usize) -> bool {
        self.callers.iter().any(|caller| match caller.phase {
            Phase::Releases(held) => held.id == id,
            _ => false,
        })
    }
}

fn the_first_is_told(_: &Waiting, state: &State) -> bool {
    let Some(Who { caller, mode, .. }) = state.line.first().map(|first| first.waiter) else {
        return true;
    };
    let Phase::Sleeps(machine, ..) = &state.callers[caller].phase else { return true };
    // A writer behind readers asks the nodes now and then.
    let holder = state.line.conflict(mode, || state.now);
    let has_holder = holder.is_some_and(|(held, _)| held.mode == Mode::Exclusive);
    let knows_all = match machine.pause() {
        Some(Pause::Outage { .. }) => state.line.outage().is_some(),
        Some(Pause::Release(_)) => !has_holder,
        _ => true,
    };
    knows_all || !state.reasons(caller).is_empty()
}

fn no_lock_waits(_: &Waiting, state: &State) -> bool {
    // After a shutdown, each attempt fails at once.
    let asks = |caller: &Caller| matches!(caller.phase, Phase::Asks(_)) && !state.is_closed;
    !state.callers.iter().any(|caller| asks(caller) && caller.handed_over.is_some())
}

fn one_holder(_: &Waiting, state: &State) -> bool {
    let holders = || state.valid();
    holders().count() <= 1 || holders().all(|held| held.mode == Mode::Shared)
}

fn no_place_stays(_: &Waiting, state: &State) -> bool {
    let is_in_line =
        |caller: usize| state.line.entries().any(|entry| entry.waiter.caller == caller);
    let is_over = |phase: &Phase| {
        matches!(phase, Phase::Absent | Phase::Holds(_) | Phase::Releases(_) | Phase::Gone)
    };
    let mut callers = state.callers.iter().enumerate();
    // A caller that waits no longer ends what an idle line keeps when it drops its place, or when its lock is deleted.
    let has_place = |one: &Caller| !is_over(&one.phase) || matches!(one.phase, Phase::Releases(_));
    let keeps = state.line.is_idle() && state.line.shared().is_some();
    callers.all(|(caller, one)| !(is_over(&one.phase) && is_in_line(caller)))
        && (!keeps || state.callers.iter().any(has_place))
}

fn order_is_kept(model: &Waiting, state: &State) -> bool {
    let may_be_overtaken = model.world.outages > 0;
    may_be_overtaken || state.callers.iter().all(|caller| caller.overtaken == 0)
}

/// In an outage, each caller that comes asks before it joins the line.
fn nobody_is_overtaken_for_ever(model: &Waiting, state: &State) -> bool {
    let most = state.callers.len() * usize::from(model.world.outages);
    state.callers.iter().all(|caller| usize::from(caller.overtaken) <= most)
}

fn one_grace(_: &Waiting, state: &State) -> bool {
    let Some(noticed) = state.noticed else { return true };
    state.callers.iter().all(|caller| match &caller.phase {
        Phase::Sleeps(machine, _, Some(until)) => {
            !matches!(machine.pause(), Some(Pause::Outage { .. })) || *until <= noticed + GRACE
        }
        _ => true,
    })
}

fn few_ask(_: &Waiting, state: &State) -> bool {
    !state.broken.contains(&Claim::FewAsk)
}

fn readers_go_together(_: &Waiting, state: &State) -> bool {
    !state.broken.contains(&Claim::ReadersGoTogether)
}

fn only_the_first_gives_up(_: &Waiting, state: &State) -> bool {
    !state.broken.contains(&Claim::OnlyTheFirstGivesUp)
}

fn no_busy_loop(_: &Waiting, state: &State) -> bool {
    state.callers.iter().all(|caller| caller.questions <= 3)
}

fn the_wish_ends(_: &Waiting, state: &State) -> bool {
    state.callers.iter().all(|caller| match &caller.phase {
        Phase::Sleeps(machine, ..) => {
            !(matches!(machine.pause(), Some(Pause::Queue)) && machine.wants_turn())
        }
        _ => true,
    })
}

impl Held {
    fn is_sibling(&self, other: &Self) -> bool {
        self.id != other.id && self.token == other.token
    }
}

fn no_guard_outlives_its_lock(model: &Waiting, state: &State) -> bool {
    let has = |held: &Held| {
        let mut granted = state.granted.iter();
        granted.any(|other| other.token == held.token && other.until >= held.until)
    };
    // Nodes that forget a lock do not notify its holder.
    model.world.losses > 0 || state.valid().all(|held| has(&held))
}

fn the_window_ends(_: &Waiting, state: &State) -> bool {
    !state.broken.contains(&Claim::TheWindowEnds)
}

fn a_writer_closes_the_window(_: &Waiting, state: &State) -> bool {
    !state.broken.contains(&Claim::AWriterClosesTheWindow)
}

fn a_refusal_closes_the_window(_: &Waiting, state: &State) -> bool {
    !state.broken.contains(&Claim::ARefusalClosesTheWindow)
}

fn few_readers_ask(_: &Waiting, state: &State) -> bool {
    !state.broken.contains(&Claim::FewReadersAsk)
}

fn one_answer(_: &Waiting, state: &State) -> bool {
    !state.broken.contains(&Claim::OneAnswer)
}

fn each_pause_ends(_: &Waiting, state: &State) -> bool {
    state.callers.iter().all(|caller| match &caller.phase {
        Phase::Sleeps(machine, since, until) => {
            let longest = *since + LEASE + AFTER_EXPIRY;
            matches!(machine.pause(), Some(Pause::Queue | Pause::Outage { .. }))
                || until.is_some_and(|until| until <= longest)
        }
        _ => true,
    })
}
