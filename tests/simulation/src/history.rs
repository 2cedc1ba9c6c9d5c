//! Who believed to hold what, and when.

use std::collections::BTreeMap;
use std::time::Duration;

/// A stretch of time in which somebody believed to hold a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) key: String,
    pub(super) holder: String,
    pub(super) client: usize,
    /// When the holder was granted the lease, which has been extended since if this is not the start.
    pub(super) granted: Duration,
    /// When it may have been confirmed at the earliest: before the start, if the holder only finds
    /// later that its lease was extended.
    pub(super) since: Duration,
    pub(super) start: Duration,
    pub(super) end: Duration,
    /// The holder's number, if it asked for one.
    pub(super) number: Option<i64>,
}

impl Span {
    /// Which lease this is a stretch of.
    fn lease(&self) -> (&str, &str, Duration) {
        (&self.key, &self.holder, self.granted)
    }
}

/// What must not be: two that believe to hold one key at the same time, and a later holder whose
/// number is not greater. Of the one that was confirmed first and the other one, some are `left_open` by
/// what is promised, from when the other one was granted or extended for the first time after the first:
/// that it is extended later takes nothing more away from the first.
pub(super) fn violations(
    mut spans: Vec<Span>,
    left_open: impl Fn(&Span, &Span) -> bool,
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
        // All of them: of three, the first may leave both others open, and these not each other.
        for before in &lasting {
            // Of a lease that was extended, its holder may only find later that it was.
            let (first, second) =
                if span.since < before.since { (span, *before) } else { (*before, span) };
            let until_then =
                leases[&second.lease()].iter().take_while(|span| span.start <= second.start);
            let mut after_first = until_then.filter(|span| span.since >= first.since);
            if after_first.any(|second| left_open(first, second)) {
                continue;
            }
            found.push(format!("two held at the same time: {before:?} and {span:?}"));
        }
        lasting.push(span);
        if span.number.is_some() {
            if let Some(before) = highest
                && before.number >= span.number
            {
                found.push(format!("the number did not grow: {before:?} and {span:?}"));
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
    fn only_what_is_left_open_is_left_out() {
        let spans = vec![span("a", 0, 10, None), span("a", 4, 9, None), span("a", 10, 11, None)];
        assert_eq!(violations(spans.clone(), |_, _| true), [""; 0]);
        let open = |before: &Span, span: &Span| {
            assert_eq!([before, span].map(|span| span.start.as_millis()), [0, 4]);
            false
        };
        assert_eq!(violations(spans, open).len(), 1);
    }

    #[test]
    fn who_was_confirmed_first_is_the_first_whenever_it_is_found() {
        let second = span("a", 10, 100, None);
        let extended = Span { since: Duration::ZERO, ..span("a", 50, 60, None) };
        let open = |before: &Span, after: &Span| *before == extended && *after == second;
        assert_eq!(violations(vec![second.clone(), extended.clone()], open), [""; 0]);
    }

    #[test]
    fn who_is_extended_takes_nothing_more_from_the_first() {
        let first = span("a", 0, 100, None);
        let second = span("a", 20, 40, None);
        let extended = Span { granted: second.granted, ..span("a", 40, 60, None) };
        let other = span("a", 70, 80, None);
        let spans = [&first, &second, &extended, &other].map(Clone::clone).to_vec();
        let open = |_: &Span, after: &Span| *after == second;
        let found = violations(spans.clone(), open);
        assert_eq!(found, [format!("two held at the same time: {first:?} and {other:?}")]);
        let found = violations(spans, |_, after| *after == extended);
        assert_eq!(found.len(), 2, "the grant is not excused by its extension: {found:?}");
    }

    #[test]
    fn those_whom_one_leaves_open_are_compared_with_each_other() {
        let [a, b, c] = [(0, 100), (10, 50), (20, 60)].map(|(from, to)| span("a", from, to, None));
        let open = |before: &Span, _: &Span| *before == a;
        let found = violations(vec![c.clone(), b.clone(), a.clone()], open);
        assert_eq!(found, [format!("two held at the same time: {b:?} and {c:?}")]);
    }

    #[test]
    fn a_number_that_does_not_grow_is_found() {
        let numbered = |start, number| span("a", start, start + 1, Some(number));
        let spans = vec![numbered(0, 7), span("a", 1, 2, None), numbered(2, 8)];
        assert_eq!(violations(spans, |_, _| false), [""; 0]);
        assert_eq!(violations(vec![numbered(0, 7), numbered(1, 7)], |_, _| false).len(), 1);
        assert_eq!(violations(vec![numbered(0, 7), numbered(1, 6)], |_, _| false).len(), 1);
    }
}
