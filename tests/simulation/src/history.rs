//! The history of a run: when each holder believed that it held a key.

use std::collections::BTreeMap;
use std::time::Duration;

/// A span of time in which a holder believed that it held a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) key: String,
    pub(super) holder: String,
    pub(super) client: usize,
    /// When the lease was granted: before `start` if the lease has been extended since.
    pub(super) granted: Duration,
    /// The earliest time at which a quorum may have confirmed this span: before `start` if the holder
    /// notices an extension of its lease later.
    pub(super) since: Duration,
    pub(super) start: Duration,
    pub(super) end: Duration,
    /// The holder's fencing number, if it asked for one.
    pub(super) number: Option<i64>,
}

impl Span {
    /// Returns the lease that the span belongs to.
    fn lease(&self) -> (&str, &str, Duration) {
        (&self.key, &self.holder, self.granted)
    }
}

/// Returns the violations in a history: two holders of one key at the same time, and a later holder without
/// a greater fencing number.
///
/// An overlap is no violation if `is_excused` returns true for the holder that was confirmed first and the
/// second holder. It is enough that one earlier span of the second lease is excused, if a quorum confirmed
/// that span after the first holder: a later extension takes nothing more from the first holder.
pub(super) fn violations(
    mut spans: Vec<Span>,
    is_excused: impl Fn(&Span, &Span) -> bool,
) -> Vec<String> {
    spans.sort_by(|a, b| (&a.key, a.start).cmp(&(&b.key, b.start)));
    let mut leases = BTreeMap::<_, Vec<&Span>>::new();
    for span in &spans {
        leases.entry(span.lease()).or_default().push(span);
    }
    let mut found = Vec::new();
    let mut lasting: Vec<&Span> = Vec::new();
    let mut highest: Option<&Span> = None;
    for span in &spans {
        lasting.retain(|before| before.key == span.key && span.start < before.end);
        highest = highest.filter(|before| before.key == span.key);
        // Every lasting span counts: the first of three holders may excuse both others, which may still
        // violate each other.
        for before in &lasting {
            // A holder may notice an extension later, so the order of confirmation decides, not that of the
            // starts.
            let (first, second) =
                if span.since < before.since { (span, *before) } else { (*before, span) };
            let until_then =
                leases[&second.lease()].iter().take_while(|span| span.start <= second.start);
            let mut after_first = until_then.filter(|span| span.since >= first.since);
            if after_first.any(|second| is_excused(first, second)) {
                continue;
            }
            found.push(format!("two holders at the same time: {before:?} and {span:?}"));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn span(key: &str, start: u64, end: u64, number: Option<i64>) -> Span {
        let (key, holder) = (key.to_owned(), String::new());
        let [start, end] = [start, end].map(Duration::from_millis);
        Span { key, holder, client: 0, granted: start, since: start, start, end, number }
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
