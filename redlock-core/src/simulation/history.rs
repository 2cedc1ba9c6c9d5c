//! Who believed to hold what, and when.

use std::ops::Range;
use std::time::Duration;

/// A stretch of time in which somebody believed to hold a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) key: String,
    pub(super) holder: String,
    pub(super) start: Duration,
    pub(super) end: Duration,
    /// The holder's number, if it asked for one.
    pub(super) number: Option<i64>,
}

/// What must not be: two that believe to hold one key at the same time, and a later holder whose
/// number is not greater. Whoever begins to believe in a time for which nothing is promised may be the
/// second.
pub(super) fn violations(mut spans: Vec<Span>, unpromised: &[Range<Duration>]) -> Vec<String> {
    spans.sort_by(|a, b| (&a.key, a.start).cmp(&(&b.key, b.start)));
    let mut found = Vec::new();
    let mut furthest: Option<&Span> = None;
    let mut highest: Option<&Span> = None;
    for span in &spans {
        furthest = furthest.filter(|before| before.key == span.key);
        highest = highest.filter(|before| before.key == span.key);
        if let Some(before) = furthest
            && span.start < before.end
            && !unpromised.iter().any(|time| time.contains(&span.start))
        {
            found.push(format!("two held at the same time: {before:?} and {span:?}"));
        }
        if furthest.is_none_or(|before| before.end < span.end) {
            furthest = Some(span);
        }
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
        Span { key, holder, start, end, number }
    }

    #[test]
    fn an_overlap_is_found() {
        let spans = vec![span("a", 0, 10, None), span("b", 5, 6, None), span("a", 10, 11, None)];
        assert_eq!(violations(spans, &[]), [""; 0]);
        let spans = vec![span("a", 2, 3, None), span("a", 0, 10, None), span("a", 9, 10, None)];
        assert_eq!(violations(spans, &[]).len(), 2);
    }

    #[test]
    fn only_who_begins_in_a_time_without_a_promise_is_left_out() {
        let spans = vec![span("a", 0, 10, None), span("a", 4, 9, None), span("a", 5, 6, None)];
        let found = |from, to| {
            let [from, to] = [from, to].map(Duration::from_millis);
            violations(spans.clone(), &[from..to]).len()
        };
        assert_eq!([found(4, 5), found(4, 6), found(0, 4), found(6, 9)], [1, 0, 2, 2]);
    }

    #[test]
    fn a_number_that_does_not_grow_is_found() {
        let numbered = |start, number| span("a", start, start + 1, Some(number));
        let spans = vec![numbered(0, 7), span("a", 1, 2, None), numbered(2, 8)];
        assert_eq!(violations(spans, &[]), [""; 0]);
        assert_eq!(violations(vec![numbered(0, 7), numbered(1, 7)], &[]).len(), 1);
        assert_eq!(violations(vec![numbered(0, 7), numbered(1, 6)], &[]).len(), 1);
    }
}
