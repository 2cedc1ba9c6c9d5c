//! Decides whether a stepped wall clock excuses an overlap of two holders.
//!
//! The restart guard promises that a client finds a forward step at its next reading of the server's clock,
//! unless the step is too small to distinguish from drift. An overlap is excused only if
//!
//! * a forward step falls between the first holder's acquisition and the start of the second holder, since
//!   a lease that is granted after a step has its full length,
//! * the second holder is confirmed before its client must have read the clock, or the step is too small to
//!   be found, and
//! * the overlap is no longer than all such steps of one server together. Any two quorums share a server, and
//!   on that server the first holder's lease ended too early by the length of these steps.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::history::Span;
use super::plan::{Fault, Plan, SLOW};

/// The longest time for which a step goes unnoticed on a healthy network: the pause between two readings of
/// the clock, a round trip, and the two rounds of a ballot that began before the answer.
pub(super) const UNNOTICED: Duration = Duration::from_millis(500 + 24 + 2 * 50);
/// The longest time between the setting of a lock on a server and the grant to its holder.
const ACQUIRING: Duration = Duration::from_millis(2 * 50);

/// The tolerance of the comparison of overlap and steps. A server measures a lease in whole milliseconds,
/// and its clock may run fast in the time that a step leaves of the lease. The margin of the lease does not
/// make up for that.
const ROUNDING: Duration = Duration::from_millis(5);

/// The rule of `store/kit/wall_clock.rs`: a client finds a step that is larger than
/// `SMALLEST_STEP`, the mean of two round trips, and `DRIFT` millionths of the time between the two readings,
/// all added.
const SMALLEST_STEP: Duration = Duration::from_millis(50);
const DRIFT: u32 = 1000;
/// By the same rule, a client compares with a fast reading until that reading is `KEPT` round trips of the
/// later, slower readings old.
const KEPT: u32 = 50;

/// The longest delay of held packets after their route is resumed.
const RESENT: Duration = Duration::from_millis(20);
/// The longest time from the end of an obstruction to the last obstructed answer, on slow routes.
const RECOVERY: Duration = Duration::from_millis(2 * *SLOW.end()).saturating_add(RESENT);

impl Plan {
    /// Returns whether the restart guard does not promise to prevent this overlap of two holders.
    pub(super) fn excuses(&self, first: &Span, second: &Span) -> bool {
        let held = first.leased.saturating_sub(ACQUIRING)..=second.start;
        let mut stepped = BTreeMap::<usize, Duration>::new();
        for step in self.steps().filter(|step| step.is_forward() && held.contains(&step.at)) {
            let view = ClientView { plan: self, client: second.client, step };
            if !self.checks_guard || second.since < view.noticed_at() || view.may_miss_step() {
                *stepped.entry(step.server).or_default() += step.size();
            }
        }
        let overlap = first.end.saturating_sub(second.start);
        stepped.values().any(|stepped| overlap <= *stepped + ROUNDING)
    }

    /// Returns whether a clock has been stepped forward until `now`.
    pub(super) fn has_stepped_forward(&self, now: Duration) -> bool {
        self.steps().any(|step| step.is_forward() && step.at <= now)
    }

    fn steps(&self) -> impl Iterator<Item = Step> {
        self.faults.iter().filter_map(|(at, fault)| match *fault {
            Fault::StepClock { server, by, ends_connections } => {
                Some(Step { at: *at, server, by, ends_connections })
            }
            _ => None,
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Step {
    at: Duration,
    server: usize,
    by: i64,
    ends_connections: bool,
}

impl Step {
    fn is_forward(self) -> bool {
        self.by > 0
    }

    fn size(self) -> Duration {
        Duration::from_millis(self.by.unsigned_abs())
    }
}

/// The view that one client has of one step.
#[derive(Debug, Clone, Copy)]
struct ClientView<'a> {
    plan: &'a Plan,
    client: usize,
    step: Step,
}

impl ClientView<'_> {
    /// Returns the latest time at which the client finds the step, if the step is large enough.
    fn noticed_at(self) -> Duration {
        if self.step.ends_connections { self.step.at } else { self.blind().end }
    }

    /// Returns the longest possible time without a reading of the stepped clock: from the earliest time of
    /// the last reading before the step to the latest time of the first reading after it.
    fn blind(self) -> Range<Duration> {
        let obstructions = self.obstructions();
        let at = self.step.at;
        last_clear_start(at, UNNOTICED, &obstructions)..next_clear_end(at, UNNOTICED, &obstructions)
    }

    /// Returns whether the client may miss the step, because the step is too small or because other steps
    /// hide it: a backward step may cancel it if the client compares with a reading from before both steps.
    fn may_miss_step(self) -> bool {
        let blind = self.blind();
        let in_blind = |time: &Range<Duration>| {
            time.end.min(blind.end).saturating_sub(time.start.max(blind.start))
        };
        let round_trip = Duration::from_millis(2 * *self.plan.latency.end());
        let apart = in_blind(&blind) * (DRIFT + self.plan.runs_apart()) / 1_000_000;
        // The rule tolerates one round trip, and the step may look smaller by another one. This includes
        // the drift while a reading is kept.
        let unnoticed = SMALLEST_STEP + 2 * round_trip + apart;
        let kept = blind.start.saturating_sub(KEPT * round_trip)..blind.start;
        let others = self
            .plan
            .steps()
            .filter(|other| other.server == self.step.server && other.at != self.step.at);
        let mut hidden = Duration::ZERO;
        for other in others {
            let is_near = blind.contains(&other.at);
            let is_kept = kept.contains(&other.at) && other.size() <= unnoticed;
            if !other.is_forward() && (is_near || is_kept) {
                hidden += other.size();
            }
            // A slow reading is kept if it finds another step. It may hide a step as long as its round
            // trip.
            if is_near {
                hidden += self.obstructions().iter().map(in_blind).sum::<Duration>();
            }
        }
        self.step.size() <= unnoticed + hidden
    }

    /// Returns the times in which no answer of the server reaches the client, or only slow answers do.
    fn obstructions(self) -> Vec<Range<Duration>> {
        let mut all = Vec::new();
        let (mut causes, mut begun) = (0_u32, Duration::ZERO);
        for (at, fault) in &self.plan.faults {
            match self.starts_obstruction(*fault) {
                Some(true) => {
                    if causes == 0 {
                        begun = *at;
                    }
                    causes += 1;
                }
                Some(false) => {
                    causes -= 1;
                    if causes == 0 {
                        all.push(begun..*at + RECOVERY);
                    }
                }
                None => {}
            }
        }
        all
    }

    /// Returns `Some(true)` if the fault begins an obstruction of the client, `Some(false)` if it ends one.
    fn starts_obstruction(self, fault: Fault) -> Option<bool> {
        let is_ours = |client, server| (client, server) == (self.client, self.step.server);
        match fault {
            Fault::Hold { client, server, .. }
            | Fault::Slow { client, server, .. }
            | Fault::Stall { client, server } => is_ours(client, server).then_some(true),
            Fault::Resume { client, server, .. }
            | Fault::NormalSpeed { client, server, .. }
            | Fault::Unstall { client, server } => is_ours(client, server).then_some(false),
            Fault::Crash { server } => is_ours(self.client, server).then_some(true),
            Fault::Restart { server, .. } => is_ours(self.client, server).then_some(false),
            _ => None,
        }
    }
}

/// Returns the end of the first period of `length` that begins at `at` or later and has no obstruction.
fn next_clear_end(at: Duration, length: Duration, obstructions: &[Range<Duration>]) -> Duration {
    let mut end = at + length;
    let next = |end: Duration| {
        let overlaps = |time: &&Range<Duration>| time.start < end && at < time.end;
        obstructions.iter().filter(overlaps).map(|time| time.end + length).max()
    };
    while let Some(further) = next(end).filter(|further| *further > end) {
        end = further;
    }
    end
}

/// Returns the start of the last period of `length` that ends at `at` or earlier and has no obstruction.
fn last_clear_start(at: Duration, length: Duration, obstructions: &[Range<Duration>]) -> Duration {
    let mut begin = at.saturating_sub(length);
    let next = |begin: Duration| {
        let overlaps = |time: &&Range<Duration>| begin < time.end && time.start < at;
        obstructions.iter().filter(overlaps).map(|time| time.start.saturating_sub(length)).min()
    };
    while let Some(further) = next(begin).filter(|further| *further < begin) {
        begin = further;
    }
    begin
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Hold;
    use crate::network::Direction;

    const MILLI: Duration = Duration::from_millis(1);

    fn plan(faults: &[(u32, Fault)]) -> Plan {
        let faults = faults.iter().map(|(at, fault)| (*at * MILLI, *fault)).collect();
        Plan { latency: 0..=10, faults, ..Plan::rolling_steps(0, true) }
    }

    fn step(by: i64) -> Fault {
        Fault::StepClock { server: 0, by, ends_connections: false }
    }

    fn span(client: usize, start: u32, end: u32) -> Span {
        let [start, end] = [start, end].map(|at| at * MILLI);
        let [key, holder] = ["key", ""].map(str::to_owned);
        let (granted, since, leased) = (start, start, start);
        let hold = Hold::Exclusive;
        Span { key, holder, client, hold, granted, since, leased, start, end, number: None }
    }

    /// Returns whether the plan excuses an overlap of a holder from 1000 to 5000 ms with one from `second`
    /// on.
    fn is_excused(plan: &Plan, second: u32) -> bool {
        plan.excuses(&span(0, 1000, 5000), &span(1, second, second + 1))
    }

    #[test]
    fn an_overlap_that_begins_before_the_client_can_notice_the_step_is_excused() {
        let stepped = plan(&[(2000, step(3010))]);
        assert_eq!(
            [1999, 2000, 2623, 2624].map(|at| is_excused(&stepped, at)),
            [false, true, true, false]
        );
        let before = plan(&[(899, step(3000))]);
        assert!(!is_excused(&before, 1001), "the first lease was granted after the step");
        let noticed = Fault::StepClock { server: 0, by: 3000, ends_connections: true };
        assert!(!is_excused(&plan(&[(2000, noticed)]), 2000));
        assert!(!is_excused(&plan(&[(2000, step(-3000))]), 2000));
    }

    #[test]
    fn a_small_step_excuses_no_longer_overlap_than_its_size() {
        // The client may miss a step of 50 ms, four latencies of 10 ms, and the drift in 1248 ms.
        for (by, excused) in [(40, true), (95, true), (110, false)] {
            let stepped = plan(&[(2000, step(by))]);
            let by = u32::try_from(by).unwrap();
            assert_eq!(is_excused(&stepped, 4995 - by), excused, "{by}");
            assert!(!is_excused(&stepped, 4995 - by - 1), "{by}");
        }
        let back = plan(&[(1000, step(-40)), (2000, step(120))]);
        assert!(is_excused(&back, 4880), "the client did not find the step back either");
        let back = plan(&[(1000, step(-400)), (2000, step(120))]);
        assert!(!is_excused(&back, 4880), "the client found the step back before");
        let undone = plan(&[(1900, step(-3000)), (2000, step(3000))]);
        assert!(is_excused(&undone, 4000), "the client did not read the clock between the steps");
    }

    #[test]
    fn a_step_that_the_client_cannot_have_noticed_excuses_no_longer_overlap_than_its_size() {
        let stepped = plan(&[(2000, step(120))]);
        assert!(!is_excused(&stepped, 2100), "the overlap takes 2.9 s, the step only 120 ms");
        for checks_guard in [true, false] {
            let stepped = Plan { checks_guard, ..plan(&[(2000, step(1200)), (2000, step(1700))]) };
            assert_eq!([2094, 2095].map(|at| is_excused(&stepped, at)), [false, true]);
            let other = Fault::StepClock { server: 1, by: 1700, ends_connections: false };
            let stepped = Plan { checks_guard, ..plan(&[(2000, step(1200)), (2000, other)]) };
            assert!(!is_excused(&stepped, 2100), "the steps of two servers do not add up");
        }
    }

    #[test]
    fn an_extension_counts_from_its_earliest_confirmation() {
        let stepped = plan(&[(2000, step(3000))]);
        let [first, second] = [span(0, 1000, 5000), span(1, 2700, 2701)];
        assert!(!stepped.excuses(&first, &second));
        let extended = Span { since: 2600 * MILLI, ..second.clone() };
        assert!(stepped.excuses(&first, &extended));
        let since = 2500 * MILLI;
        let extended = Span { since, leased: since, start: 2600 * MILLI, ..first.clone() };
        let second = span(1, 2620, 2621);
        assert!(
            !stepped.excuses(&extended, &second),
            "the first lease was extended after the step"
        );
    }

    /// A change of the mode is confirmed by a quorum, but keeps the end of the lease.
    #[test]
    fn a_step_before_a_change_of_the_mode_excuses_an_overlap_after_it() {
        let stepped = plan(&[(2000, step(3000))]);
        let [first, second] = [span(0, 1000, 5000), span(1, 2600, 2601)];
        let downgraded = Span { since: 2500 * MILLI, start: 2500 * MILLI, ..first };
        assert!(stepped.excuses(&downgraded, &second));
        assert!(!stepped.excuses(&Span { leased: 2500 * MILLI, ..downgraded }, &second));
    }

    #[test]
    fn a_client_that_cannot_read_the_clock_notices_the_step_later() {
        let direction = Direction::ToClient;
        for (client, last) in [(0, 2623), (1, 3423)] {
            let held = plan(&[
                (1500, Fault::Hold { client, server: 0, direction }),
                (2000, step(3000)),
                (2600, Fault::Resume { client, server: 0, direction }),
            ]);
            assert!(is_excused(&held, last), "{client}");
            assert!(!is_excused(&held, last + 1), "{client}");
        }
    }

    #[test]
    fn without_the_guard_a_step_excuses_every_overlap_up_to_its_size() {
        let unguarded = Plan { checks_guard: false, ..plan(&[(2000, step(3000))]) };
        assert_eq!([1999, 2000, 4999].map(|at| is_excused(&unguarded, at)), [false, true, true]);
    }
}
