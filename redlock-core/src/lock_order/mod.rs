//! Notices that requests take locks in different orders, before they wait for each other.
//!
//! A request that holds a lock A and waits for a lock B draws an edge from A to B, by their names. A closed circle of edges
//! means that requests may wait for each other until a `wait_time` ends: one holds A and waits for B, another holds B and
//! waits for A. The circle is found although these requests have never met, as the lock dependency checker of the Linux
//! kernel does it.
//!
//! Only a [`scope`](crate::scope()) knows which locks a request holds. A request that does not wait draws no edge, and
//! neither does a lock without a name.

mod place;

use std::collections::{HashMap, VecDeque};

use ahash::RandomState;
use parking_lot::Mutex;

pub use place::RequestPlace;

use crate::lock::{LockName, Mode};
use crate::random::hash_state;
use crate::telemetry;

/// The most names of a manager that are watched.
const MOST_NAMES: usize = 200;

/// The order in which the requests of a manager take locks.
#[derive(Debug)]
pub(crate) struct LockOrder(Mutex<Graph>);

#[derive(Debug)]
struct Graph {
    names: HashMap<Box<str>, usize, RandomState>,
    edges: HashMap<(usize, usize), Edge, RandomState>,
}

/// A lock that was requested while another one was held.
#[derive(Debug, Clone)]
struct Edge {
    place: RequestPlace,
    /// Whether one of the two locks is not shared by readers.
    writes: bool,
}

/// A lock that a request holds, or for which it waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrderedLock<'a> {
    pub(crate) name: &'a str,
    pub(crate) mode: Mode,
}

impl LockOrder {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Graph {
            names: HashMap::with_hasher(hash_state()),
            edges: HashMap::with_hasher(hash_state()),
        }))
    }

    /// Records that a request waits for the lock `wanted` while it holds the lock `held`, and warns of a circle that this
    /// closes.
    pub(crate) fn record(
        &self,
        held: OrderedLock<'_>,
        wanted: OrderedLock<'_>,
        place: &RequestPlace,
    ) {
        if [held, wanted].iter().any(|lock| lock.name == LockName::OTHER.as_str()) {
            return;
        }
        // Readers wait for each other only if a writer stands between them.
        let writes = held.mode != Mode::SHARED || wanted.mode != Mode::SHARED;
        let circle = self.0.lock().add(held.name, wanted.name, writes, place);
        let Some(circle) = circle else { return };
        telemetry::lock_order(1);
        if held.name == wanted.name {
            tracing::warn!(
                name = held.name, %place,
                "a request waits for a second lock of a name while it holds the first one: two such requests wait for each \
                 other if they take their keys in different orders; take all keys at once by lock_all"
            );
        } else {
            tracing::warn!(
                circle = %circle.join("; "),
                "requests take locks in different orders, so they may wait for each other until a wait_time ends; take the \
                 locks in one order everywhere, or all at once by lock_all"
            );
        }
    }
}

impl Graph {
    /// Adds an edge. Returns the edges of the circle that it closes as texts, if it is new and closes one.
    fn add(
        &mut self,
        held: &str,
        wanted: &str,
        writes: bool,
        place: &RequestPlace,
    ) -> Option<Vec<String>> {
        let (from, to) = (self.index(held)?, self.index(wanted)?);
        if self.edges.get(&(from, to)).is_some_and(|known| known.writes || !writes) {
            return None;
        }
        self.edges.insert((from, to), Edge { place: place.clone(), writes });
        let circle = self.circle(from, to, writes)?;
        Some(circle.iter().map(|edge| self.text(*edge)).collect())
    }

    /// Returns the index of a name; `None` for each name after the first 200.
    fn index(&mut self, name: &str) -> Option<usize> {
        let count = self.names.len();
        match self.names.get(name) {
            None if count >= MOST_NAMES => None,
            None => {
                self.names.insert(name.into(), count);
                Some(count)
            }
            found => found.copied(),
        }
    }

    /// Returns the edges of a shortest circle through an edge, which has a writer.
    fn circle(&self, from: usize, to: usize, writes: bool) -> Option<Vec<(usize, usize)>> {
        // A step of the search: the end of the way so far, and whether a writer is on it. With the step before.
        let first = (to, writes);
        let mut before = HashMap::from([(first, None::<(usize, bool)>)]);
        let mut next = VecDeque::from([first]);
        while let Some(step) = next.pop_front() {
            if step == (from, true) {
                // From its end to its begin.
                let mut way = vec![step.0];
                let mut last = step;
                while let Some(earlier) = before[&last] {
                    way.push(earlier.0);
                    last = earlier;
                }
                way.push(from);
                return Some(way.windows(2).rev().map(|edge| (edge[1], edge[0])).collect());
            }
            if step.0 == from {
                // A circle of readers.
                continue;
            }
            for (&(_, end), edge) in self.edges.iter().filter(|((begin, _), _)| *begin == step.0) {
                let new = (end, step.1 || edge.writes);
                before.entry(new).or_insert_with(|| {
                    next.push_back(new);
                    Some(step)
                });
            }
        }
        None
    }

    fn text(&self, edge: (usize, usize)) -> String {
        let name = |index: usize| {
            let found = self.names.iter().find(|(_, known)| **known == index);
            found.map_or("", |(name, _)| name)
        };
        let place = self.edges.get(&edge).map(|edge| edge.place.to_string()).unwrap_or_default();
        format!("{} then {} at {place}", name(edge.0), name(edge.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> Graph {
        let LockOrder(graph) = LockOrder::new();
        graph.into_inner()
    }

    #[derive(Debug)]
    struct Watched(Graph);

    impl Watched {
        /// Adds an edge whose locks a writer takes, or readers.
        fn add(&mut self, held: &str, wanted: &str, writes: bool) -> Option<Vec<String>> {
            let place = format!("{held}{wanted}");
            self.0.add(held, wanted, writes, &RequestPlace::Layer(place.into()))
        }
    }

    #[test]
    fn a_circle_is_reported_once_with_its_edges_in_their_order() {
        let mut order = Watched(graph());
        assert_eq!(order.add("a", "b", true), None);
        assert_eq!(order.add("b", "c", true), None);
        assert_eq!(order.add("a", "c", true), None);
        assert_eq!(order.add("b", "d", true), None);
        let circle = ["a then b at ab", "b then c at bc", "c then a at ca"];
        let mut found = order.add("c", "a", true).unwrap();
        // The circle of two edges is shorter.
        assert_eq!(found, ["c then a at ca", "a then c at ac"].map(str::to_owned));
        assert_eq!(order.add("c", "a", true), None);
        let mut order = Watched(graph());
        for (held, wanted) in [("a", "b"), ("b", "c")] {
            assert_eq!(order.add(held, wanted, true), None);
        }
        found = order.add("c", "a", true).unwrap();
        found.sort();
        assert_eq!(found, circle);
    }

    #[test]
    fn readers_close_a_circle_only_with_a_writer() {
        let mut order = Watched(graph());
        assert_eq!(order.add("a", "b", false), None);
        assert_eq!(order.add("b", "a", false), None);
        assert_eq!(order.add("b", "c", true), None);
        assert_eq!(order.add("b", "a", true).map(|circle| circle.len()), Some(2));
        assert_eq!(order.add("a", "b", true).map(|circle| circle.len()), Some(2));
        assert_eq!(order.add("a", "b", false), None);
        // Readers around a writer's circle, which is reported alone.
        let mut order = Watched(graph());
        assert_eq!(order.add("b", "c", true), None);
        assert_eq!(order.add("c", "b", true).map(|circle| circle.len()), Some(2));
        assert_eq!(order.add("a", "b", false), None);
        assert_eq!(order.add("b", "a", false), None);
        // The writer is on another edge of the circle.
        let mut order = Watched(graph());
        assert_eq!(order.add("a", "b", true), None);
        assert_eq!(order.add("b", "a", false).map(|circle| circle.len()), Some(2));
    }

    #[test]
    fn two_keys_of_one_name_are_a_circle_unless_readers_hold_them() {
        let mut order = Watched(graph());
        assert_eq!(order.add("a", "a", false), None);
        assert_eq!(order.add("a", "a", true), Some(vec!["a then a at aa".to_owned()]));
        assert_eq!(order.add("a", "a", true), None);
    }

    #[test]
    fn names_after_the_first_200_are_not_watched() {
        let mut order = Watched(graph());
        for number in 0..10_000 {
            order.add("a", &number.to_string(), true);
        }
        assert_eq!(order.0.names.len(), MOST_NAMES);
        assert_eq!(order.0.edges.len(), MOST_NAMES - 1);
        assert!(order.add("198", "a", true).is_some());
        assert_eq!(order.add("199", "a", true), None);
    }
}
