//! Who may be the second to believe in a lock, because a wall clock was stepped.
//!
//! The restart guard promises that a step forward is found at the next look at the clock, unless it is
//! too small to be told from clocks that run apart. Of the pairs of holders whose beliefs overlap, the
//! ones that this leaves open are those of which
//!
//! * a step falls into the belief of the first: what is granted after it lasts as long as it should,
//! * the second begins before its client must have looked, unless the step is too small to be found, and
//! * the overlap is no longer than what was so stepped on one server: any two quorums have a server in
//!   common, and there the lock of the first went by so much too early.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::history::Span;
use super::plan::{Fault, Plan, SLOW};

/// How long a step may go unnoticed on a network that is well: the pause between two looks at the
/// clock, a round trip, and the two rounds of a ballot that began before the answer.
pub(super) const UNNOTICED: Duration = Duration::from_millis(500 + 24 + 2 * 50);
/// How much earlier than its holder believes in it a lock may be set on a server.
const ACQUIRING: Duration = Duration::from_millis(2 * 50);

/// A server measures a lease in whole milliseconds, and what a step leaves of it by a clock that may run
/// fast: by that much of the step is not made up for by the margin, which is a part of the lease.
const ROUNDING: Duration = Duration::from_millis(5);

/// The rule of `node/redis/wall_clock.rs`: a step is noticed if it is larger than this, the mean of two
/// round trips, and so many millionths of the time between the readings.
const SMALLEST_STEP: Duration = Duration::from_millis(50);
const DRIFT: u32 = 1000;
/// For how many times the round trip of a fast reading a still faster one is kept.
const KEPT: u32 = 50;

/// What was held up gets there so much later than it is let go.
const RESENT: Duration = Duration::from_millis(20);
/// And where the way is slow.
const AFTER_ALL: Duration = Duration::from_millis(2 * *SLOW.end()).saturating_add(RESENT);

impl Plan {
    /// Whether nothing that is promised keeps this second holder from believing in the lock while the
    /// first still does.
    pub(super) fn leaves_open(&self, first: &Span, second: &Span) -> bool {
        let held = first.since.saturating_sub(ACQUIRING)..=second.start;
        let mut stepped = BTreeMap::<usize, Duration>::new();
        for step in self.steps().filter(|step| step.is_forward() && held.contains(&step.at)) {
            let way = Way { plan: self, client: second.client, step };
            if !self.promises_guard || second.since < way.known() || way.hides_it() {
                *stepped.entry(step.server).or_default() += step.size();
            }
        }
        let overlap = first.end.saturating_sub(second.start);
        stepped.values().any(|stepped| overlap <= *stepped + ROUNDING)
    }

    /// Whether a clock has been stepped forward.
    pub(super) fn has_stepped_forward(&self, now: Duration) -> bool {
        self.steps().any(|step| step.is_forward() && step.at <= now)
    }

    fn steps(&self) -> impl Iterator<Item = Step> {
        self.faults.iter().filter_map(|(at, fault)| match *fault {
            Fault::StepClock { server, by, noticed } => Some(Step { at: *at, server, by, noticed }),
            _ => None,
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Step {
    at: Duration,
    server: usize,
    by: i64,
    noticed: bool,
}

impl Step {
    fn is_forward(self) -> bool {
        self.by > 0
    }

    fn size(self) -> Duration {
        Duration::from_millis(self.by.unsigned_abs())
    }
}

/// From a client to the server whose clock is stepped.
#[derive(Debug, Clone, Copy)]
struct Way<'a> {
    plan: &'a Plan,
    client: usize,
    step: Step,
}

impl Way<'_> {
    /// When the client knows of a step that can be noticed.
    fn known(self) -> Duration {
        if self.step.noticed { self.step.at } else { self.blind().end }
    }

    /// From the last reading before the step, at the earliest, to the first one after it, at the latest.
    fn blind(self) -> Range<Duration> {
        let in_the_way = self.in_the_way();
        let at = self.step.at;
        earlier(at, UNNOTICED, &in_the_way)..later(at, UNNOTICED, &in_the_way)
    }

    /// Whether the step may be too small to be noticed, or made up for by a step back that the kept
    /// reading is older than.
    fn hides_it(self) -> bool {
        let blind = self.blind();
        let in_blind = |time: &Range<Duration>| {
            time.end.min(blind.end).saturating_sub(time.start.max(blind.start))
        };
        let round_trip = Duration::from_millis(2 * *self.plan.latency.end());
        let apart = in_blind(&blind) * (DRIFT + self.plan.runs_apart()) / 1_000_000;
        // Twice: the step may look smaller by what is granted for the round trips. That includes how far
        // clocks run apart while a reading is kept.
        let unnoticed = SMALLEST_STEP + 2 * round_trip + apart;
        let kept = blind.start.saturating_sub(KEPT * round_trip)..blind.start;
        let others = self
            .plan
            .steps()
            .filter(|other| other.server == self.step.server && other.at != self.step.at);
        let mut made_up_for = Duration::ZERO;
        for other in others {
            let is_near = blind.contains(&other.at);
            let is_kept = kept.contains(&other.at) && other.size() <= unnoticed;
            if !other.is_forward() && (is_near || is_kept) {
                made_up_for += other.size();
            }
            // A slow reading that finds a step is kept.
            if is_near {
                made_up_for += self.in_the_way().iter().map(in_blind).sum::<Duration>();
            }
        }
        self.step.size() <= unnoticed + made_up_for
    }

    /// When no answer of the server reaches the client, or only slow ones.
    fn in_the_way(self) -> Vec<Range<Duration>> {
        let mut all = Vec::new();
        let (mut causes, mut begun) = (0_u32, Duration::ZERO);
        for (at, fault) in &self.plan.faults {
            match self.begins(*fault) {
                Some(true) => {
                    if causes == 0 {
                        begun = *at;
                    }
                    causes += 1;
                }
                Some(false) => {
                    causes -= 1;
                    if causes == 0 {
                        all.push(begun..*at + AFTER_ALL);
                    }
                }
                None => {}
            }
        }
        all
    }

    /// Whether the fault begins or ends to be in the way.
    fn begins(self, fault: Fault) -> Option<bool> {
        let is_ours = |client, server| (client, server) == (self.client, self.step.server);
        match fault {
            Fault::Hold { client, server, .. }
            | Fault::Slow { client, server, .. }
            | Fault::Stall { client, server } => is_ours(client, server).then_some(true),
            Fault::LetGo { client, server, .. }
            | Fault::AsFastAsBefore { client, server, .. }
            | Fault::Unstall { client, server } => is_ours(client, server).then_some(false),
            Fault::Crash { server } => is_ours(self.client, server).then_some(true),
            Fault::Restart { server, .. } => is_ours(self.client, server).then_some(false),
            _ => None,
        }
    }
}

/// The end of so long a time from `at` on in which nothing is in the way.
fn later(at: Duration, so_long: Duration, in_the_way: &[Range<Duration>]) -> Duration {
    let mut end = at + so_long;
    let next = |end: Duration| {
        let in_it = |way: &&Range<Duration>| way.start < end && at < way.end;
        in_the_way.iter().filter(in_it).map(|way| way.end + so_long).max()
    };
    while let Some(further) = next(end).filter(|further| *further > end) {
        end = further;
    }
    end
}

/// The beginning of so long a time up to `at` in which nothing was in the way.
fn earlier(at: Duration, so_long: Duration, in_the_way: &[Range<Duration>]) -> Duration {
    let mut begin = at.saturating_sub(so_long);
    let next = |begin: Duration| {
        let in_it = |way: &&Range<Duration>| begin < way.end && way.start < at;
        in_the_way.iter().filter(in_it).map(|way| way.start.saturating_sub(so_long)).min()
    };
    while let Some(further) = next(begin).filter(|further| *further < begin) {
        begin = further;
    }
    begin
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Direction;

    const MILLI: Duration = Duration::from_millis(1);

    fn plan(faults: &[(u32, Fault)]) -> Plan {
        let faults = faults.iter().map(|(at, fault)| (*at * MILLI, *fault)).collect();
        Plan { latency: 0..=10, faults, ..Plan::rolling_steps(0, true) }
    }

    fn step(by: i64) -> Fault {
        Fault::StepClock { server: 0, by, noticed: false }
    }

    fn span(client: usize, start: u32, end: u32) -> Span {
        let [start, end] = [start, end].map(|at| at * MILLI);
        let [key, holder] = ["key", ""].map(str::to_owned);
        Span { key, holder, client, granted: start, since: start, start, end, number: None }
    }

    /// Whether a first who believed from 1000 to 5000 and a second who begins then are left open.
    fn is_open(plan: &Plan, second: u32) -> bool {
        plan.leaves_open(&span(0, 1000, 5000), &span(1, second, second + 1))
    }

    #[test]
    fn what_begins_before_a_step_can_be_known_is_left_open() {
        let stepped = plan(&[(2000, step(3010))]);
        assert_eq!(
            [1999, 2000, 2623, 2624].map(|at| is_open(&stepped, at)),
            [false, true, true, false]
        );
        let before = plan(&[(899, step(3000))]);
        assert!(!is_open(&before, 1001), "the first was granted after it");
        let noticed = Fault::StepClock { server: 0, by: 3000, noticed: true };
        assert!(!is_open(&plan(&[(2000, noticed)]), 2000));
        assert!(!is_open(&plan(&[(2000, step(-3000))]), 2000));
    }

    #[test]
    fn a_small_step_leaves_no_more_open_than_its_size() {
        // 50 ms, four slow ways, and what clocks may run apart in 1248 ms.
        for (by, open) in [(40, true), (95, true), (110, false)] {
            let stepped = plan(&[(2000, step(by))]);
            let by = u32::try_from(by).unwrap();
            assert_eq!(is_open(&stepped, 4995 - by), open, "{by}");
            assert!(!is_open(&stepped, 4995 - by - 1), "{by}");
        }
        let back = plan(&[(1000, step(-40)), (2000, step(120))]);
        assert!(is_open(&back, 4880), "it was not found either");
        let back = plan(&[(1000, step(-400)), (2000, step(120))]);
        assert!(!is_open(&back, 4880), "it was found before");
        let undone = plan(&[(1900, step(-3000)), (2000, step(3000))]);
        assert!(is_open(&undone, 4000), "in between nobody has looked");
    }

    #[test]
    fn a_step_that_nobody_knows_of_yet_leaves_no_more_open_than_its_size() {
        let stepped = plan(&[(2000, step(120))]);
        assert!(!is_open(&stepped, 2100), "the lock was gone by 2.9 s too early");
        for promises_guard in [true, false] {
            let stepped =
                Plan { promises_guard, ..plan(&[(2000, step(1200)), (2000, step(1700))]) };
            assert_eq!([2094, 2095].map(|at| is_open(&stepped, at)), [false, true]);
            let other = Fault::StepClock { server: 1, by: 1700, noticed: false };
            let stepped = Plan { promises_guard, ..plan(&[(2000, step(1200)), (2000, other)]) };
            assert!(!is_open(&stepped, 2100), "the other server's lock was not gone");
        }
    }

    #[test]
    fn what_an_extension_finds_later_may_have_been_confirmed_earlier() {
        let stepped = plan(&[(2000, step(3000))]);
        let [first, second] = [span(0, 1000, 5000), span(1, 2700, 2701)];
        assert!(!stepped.leaves_open(&first, &second));
        let extended = Span { since: 2600 * MILLI, ..second.clone() };
        assert!(stepped.leaves_open(&first, &extended));
        let extended = Span { since: 2500 * MILLI, start: 2600 * MILLI, ..first.clone() };
        let second = span(1, 2620, 2621);
        assert!(!stepped.leaves_open(&extended, &second), "it was extended after the step");
    }

    #[test]
    fn a_client_that_cannot_look_knows_later() {
        let direction = Direction::ToClient;
        for (client, last) in [(0, 2623), (1, 3423)] {
            let held = plan(&[
                (1500, Fault::Hold { client, server: 0, direction }),
                (2000, step(3000)),
                (2600, Fault::LetGo { client, server: 0, direction }),
            ]);
            assert!(is_open(&held, last), "{client}");
            assert!(!is_open(&held, last + 1), "{client}");
        }
    }

    #[test]
    fn without_the_guard_nothing_is_promised_to_who_held_before() {
        let unguarded = Plan { promises_guard: false, ..plan(&[(2000, step(3000))]) };
        assert_eq!([1999, 2000, 4999].map(|at| is_open(&unguarded, at)), [false, true, true]);
    }
}
