//! The history of a run: when each holder believed that it held a key.

use std::time::Duration;

/// The way in which a holder holds a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// Alone.
    Exclusive,
    /// Together with any number of other readers.
    Reader,
    /// Together with other holders of permits, as long as they are not more than this number.
    Permit(u32),
}

impl Hold {
    fn permits(self) -> Option<usize> {
        match self {
            Self::Permit(permits) => usize::try_from(permits).ok(),
            Self::Exclusive | Self::Reader => None,
        }
    }

    fn excludes(self, other: Self) -> bool {
        !matches!((self, other), (Self::Reader, Self::Reader) | (Self::Permit(_), Self::Permit(_)))
    }
}

/// A span of time in which a holder believed that it held a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) key: String,
    pub(super) holder: String,
    pub(super) client: usize,
    pub(super) hold: Hold,
    /// When the lease was granted: before `start` if the lease has been extended since.
    pub(super) granted: Duration,
    /// The earliest time at which a quorum may have confirmed this span: before `start` if the holder
    /// notices an extension of its lease later.
    pub(super) since: Duration,
    /// The earliest time at which a quorum may have set the end of this span: before `since` if a reader joined others,
    /// or if the holder has changed the mode of its lock.
    pub(super) leased: Duration,
    pub(super) start: Duration,
    pub(super) end: Duration,
    /// The holder's fencing number, if it asked for one.
    pub(super) number: Option<i64>,
}

impl Span {
    /// Returns whether both spans may belong to one lease. The readers of a client share a lease.
    fn may_share_lease(&self, other: &Self) -> bool {
        let lease = |span: &Self| (span.holder.clone(), span.granted);
        let are_readers = [self, other].iter().all(|span| span.hold == Hold::Reader);
        self.key == other.key
            && (lease(self) == lease(other) || are_readers && self.client == other.client)
    }
}

/// The longest time by which the order of two spans may be wrong, one of which is shared: a reader may join other
/// readers whose lease a quorum has confirmed 50 ms earlier, after a round of requests.
const UNCERTAIN: Duration = Duration::from_millis(200);

/// The longest time from the grant of a node to the return of the acquisition. Of two grants within this time, either may
/// be the first.
const GRANT: Duration = Duration::from_millis(2 * 50);

/// Returns the violations in a history: two holders of one key at the same time that exclude each other, more holders
/// of permits than the last of them allows, and a later holder without a greater fencing number.
///
/// An overlap is no violation if `is_excused` returns true for the holder that was confirmed first and the
/// second holder. It is enough that one earlier span of the second lease is excused, if a quorum confirmed
/// that span after the first holder: a later extension takes nothing more from the first holder.
pub(super) fn violations(
    mut spans: Vec<Span>,
    is_excused: impl Fn(&Span, &Span) -> bool,
) -> Vec<String> {
    spans.sort_by(|a, b| (&a.key, a.start).cmp(&(&b.key, b.start)));
    let is_excused = |before: &Span, span: &Span| {
        // A holder may notice an extension later, so the order of confirmation decides, not that of the
        // starts.
        let (first, second) =
            if span.since < before.since { (span, before) } else { (before, span) };
        let mut after_first = spans.iter().filter(|span| {
            span.may_share_lease(second)
                && (first.since..).contains(&span.since)
                && span.start <= second.start
        });
        let is_uncertain = [first, second].iter().any(|span| span.hold == Hold::Reader)
            && second.since <= first.since + UNCERTAIN;
        after_first.any(|second| is_excused(first, second))
            || is_uncertain && is_excused(second, first)
    };
    let mut found = Vec::new();
    let mut lasting: Vec<&Span> = Vec::new();
    let mut highest: Option<&Span> = None;
    for span in &spans {
        lasting.retain(|before| before.key == span.key && span.start < before.end);
        highest = highest.filter(|before| before.key == span.key);
        // Every lasting span counts: the first of three holders may excuse both others, which may still
        // violate each other.
        let overlaps = lasting.iter().filter(|before| before.hold.excludes(span.hold));
        for before in overlaps.filter(|before| !is_excused(before, span)) {
            found.push(format!("two holders at the same time: {before:?} and {span:?}"));
        }
        if span.start == span.granted
            && let Some(permits) = span.hold.permits()
        {
            let others = lasting.iter().filter(|before| before.hold.permits().is_some());
            let others: Vec<_> = others.filter(|before| !is_excused(before, span)).collect();
            let earlier = others.iter().filter(|other| other.granted + GRANT <= span.granted);
            let mut all: Vec<_> = others.iter().filter_map(|other| other.hold.permits()).collect();
            all.push(permits);
            all.sort_unstable();
            // The first of them found no other, the second found one, and so on, in any order.
            let is_possible = (0..).zip(&all).all(|(place, permits)| place < *permits);
            if !is_possible || earlier.count() >= permits {
                found.push(format!("too many holders of permits: {others:?} and {span:?}"));
            }
        }
        lasting.push(span);
        if span.number.is_some() {
            if let Some(before) = highest
                && before.number >= span.number
            {
                found.push(format!("the fencing number did not grow: {before:?} and {span:?}"));
            }
            highest = Some(span);
        }
    }
    found
}

/// Returns how often a reader, or the holder of a permit, got a lock that a holder of another client had.
pub(super) fn shared_grants(spans: &[Span]) -> u64 {
    let is_new = |span: &&Span| span.hold != Hold::Exclusive && span.start == span.granted;
    let has_company = |span: &&Span| {
        spans.iter().any(|other| {
            (&other.key, other.hold == Hold::Exclusive) == (&span.key, false)
                && other.client != span.client
                && (other.start..other.end).contains(&span.start)
        })
    };
    spans.iter().filter(is_new).filter(has_company).map(|_| 1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(key: &str, start: u64, end: u64, number: Option<i64>) -> Span {
        let (key, holder) = (key.to_owned(), String::new());
        let [start, end] = [start, end].map(Duration::from_millis);
        let (granted, since, leased) = (start, start, start);
        let hold = Hold::Exclusive;
        Span { key, holder, client: 0, hold, granted, since, leased, start, end, number }
    }

    fn shared(client: usize, hold: Hold, start: u64, end: u64) -> Span {
        Span { client, hold, ..span("a", start, end, None) }
    }

    #[test]
    fn readers_may_overlap_readers_and_nobody_else() {
        let readers = [
            shared(0, Hold::Reader, 0, 10),
            shared(1, Hold::Reader, 5, 15),
            shared(0, Hold::Reader, 10, 11),
        ];
        assert_eq!(violations(readers.to_vec(), |_, _| false), [""; 0]);
        assert_eq!(shared_grants(&readers), 2);
        for other in [Hold::Exclusive, Hold::Permit(9)] {
            for (start, end) in [(9, 20), (3, 6), (11, 12)] {
                let mut spans = readers.to_vec();
                spans.push(shared(2, other, start, end));
                assert!(!violations(spans, |_, _| false).is_empty(), "{other:?} {start}");
            }
        }
        assert_eq!(shared_grants(&readers[..1]), 0);
    }

    #[test]
    fn each_holder_of_a_permit_compares_the_others_with_its_own_number() {
        let permit = |permits, start, end| shared(0, Hold::Permit(permits), start, end);
        let [one, two] = [permit(2, 0, 1000), permit(2, 100, 2000)];
        for (third, is_allowed) in [
            (permit(3, 500, 600), true),
            (permit(2, 500, 600), false),
            (permit(1, 500, 600), false),
            (permit(2, 1000, 1100), true),
            (permit(1, 1000, 1100), false),
            (permit(1, 2000, 2100), true),
        ] {
            let found = violations(vec![one.clone(), two.clone(), third.clone()], |_, _| false);
            assert_eq!(found.is_empty(), is_allowed, "{third:?}");
        }
        let extended = Span { granted: Duration::ZERO, ..permit(1, 500, 600) };
        assert_eq!(violations(vec![one.clone(), two.clone(), extended], |_, _| false), [""; 0]);
        let excuse = |first: &Span, _: &Span| *first == one;
        assert_eq!(violations(vec![one.clone(), two, permit(2, 500, 600)], excuse), [""; 0]);
    }

    #[test]
    fn two_grants_at_almost_the_same_time_may_have_been_in_either_order() {
        let permit = |permits, start| shared(0, Hold::Permit(permits), start, start + 300);
        for (first, second, is_allowed) in [(2, 1, true), (1, 2, true), (1, 1, false)] {
            let found = violations(vec![permit(first, 0), permit(second, 99)], |_, _| false);
            assert_eq!(found.is_empty(), is_allowed, "{first} {second}");
        }
        assert_eq!(violations(vec![permit(2, 0), permit(1, 100)], |_, _| false).len(), 1);
    }

    /// A reader may share a lease that a quorum confirmed before the writer's.
    #[test]
    fn a_reader_may_be_excused_in_either_order() {
        for (hold, gap, excused) in
            [(Hold::Reader, 199, 0), (Hold::Reader, 201, 1), (Hold::Exclusive, 1, 1)]
        {
            let writer = span("a", 0, 1000, None);
            let reader = shared(1, hold, gap, 1000);
            let excuse = |first: &Span, _: &Span| *first == reader;
            assert_eq!(violations(vec![writer, reader.clone()], excuse).len(), excused, "{gap}");
        }
    }

    #[test]
    fn an_overlap_is_found() {
        let spans = vec![span("a", 0, 10, None), span("b", 5, 6, None), span("a", 10, 11, None)];
        assert_eq!(violations(spans, |_, _| false), [""; 0]);
        let spans = vec![span("a", 2, 3, None), span("a", 0, 10, None), span("a", 9, 10, None)];
        assert_eq!(violations(spans, |_, _| false).len(), 2);
    }

    #[test]
    fn only_excused_overlaps_are_dropped() {
        let spans = vec![span("a", 0, 10, None), span("a", 4, 9, None), span("a", 10, 11, None)];
        assert_eq!(violations(spans.clone(), |_, _| true), [""; 0]);
        let excuse = |before: &Span, span: &Span| {
            assert_eq!([before, span].map(|span| span.start.as_millis()), [0, 4]);
            false
        };
        assert_eq!(violations(spans, excuse).len(), 1);
    }

    #[test]
    fn the_first_holder_is_the_one_that_was_confirmed_first() {
        let second = span("a", 10, 100, None);
        let extended = Span { since: Duration::ZERO, ..span("a", 50, 60, None) };
        let excuse = |before: &Span, after: &Span| *before == extended && *after == second;
        assert_eq!(violations(vec![second.clone(), extended.clone()], excuse), [""; 0]);
    }

    #[test]
    fn an_excused_holder_stays_excused_after_an_extension() {
        let first = span("a", 0, 100, None);
        let second = span("a", 20, 40, None);
        let extended = Span { granted: second.granted, ..span("a", 40, 60, None) };
        let other = span("a", 70, 80, None);
        let spans = [&first, &second, &extended, &other].map(Clone::clone).to_vec();
        let excuse = |_: &Span, after: &Span| *after == second;
        let found = violations(spans.clone(), excuse);
        assert_eq!(found, [format!("two holders at the same time: {first:?} and {other:?}")]);
        let found = violations(spans, |_, after| *after == extended);
        assert_eq!(found.len(), 2, "an excused extension does not excuse the grant: {found:?}");
    }

    #[test]
    fn a_reader_that_joins_an_excused_reader_is_excused() {
        let writer = span("a", 0, 300, None);
        let joined = |client| {
            let reader = shared(0, Hold::Reader, 20, 90);
            let spans =
                vec![writer.clone(), reader.clone(), shared(client, Hold::Reader, 230, 250)];
            violations(spans, |_, after| *after == reader).len()
        };
        assert_eq!([0, 1].map(joined), [0, 1]);
    }

    #[test]
    fn two_excused_holders_are_compared_with_each_other() {
        let [a, b, c] = [(0, 100), (10, 50), (20, 60)].map(|(from, to)| span("a", from, to, None));
        let excuse = |before: &Span, _: &Span| *before == a;
        let found = violations(vec![c.clone(), b.clone(), a.clone()], excuse);
        assert_eq!(found, [format!("two holders at the same time: {b:?} and {c:?}")]);
    }

    #[test]
    fn a_fencing_number_that_does_not_grow_is_found() {
        let numbered = |start, number| span("a", start, start + 1, Some(number));
        let spans = vec![numbered(0, 7), span("a", 1, 2, None), numbered(2, 8)];
        assert_eq!(violations(spans, |_, _| false), [""; 0]);
        assert_eq!(violations(vec![numbered(0, 7), numbered(1, 7)], |_, _| false).len(), 1);
        assert_eq!(violations(vec![numbered(0, 7), numbered(1, 6)], |_, _| false).len(), 1);
    }
}
