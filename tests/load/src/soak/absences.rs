//! When each server does not vote.

use std::time::Instant;

/// When each server does not vote: from its end until it votes again at the latest.
#[derive(Debug)]
pub(super) struct Absences(Vec<Vec<(Instant, Instant)>>);

impl Absences {
    pub(super) fn of(servers: usize) -> Self {
        Self(vec![Vec::new(); servers])
    }

    /// Records that `server` does not vote between two moments. Absences of one server are recorded
    /// in the order in which they begin.
    pub(super) fn add(&mut self, server: usize, from: Instant, until: Instant) {
        let absences = &mut self.0[server];
        match absences.last_mut() {
            // The server was killed again before it voted.
            Some(last) if from <= last.1 => last.1 = last.1.max(until),
            _ => absences.push((from, until)),
        }
    }

    /// The stretches of time in which fewer than `quorum` servers vote, in their order.
    pub(super) fn without_quorum(&self, quorum: usize) -> Vec<(Instant, Instant)> {
        let absences = self.0.iter().flatten();
        let mut changes: Vec<_> =
            absences.flat_map(|(from, until)| [(*from, false), (*until, true)]).collect();
        // At one moment, servers return before others leave.
        changes.sort_unstable_by_key(|(at, returns)| (*at, !returns));
        let (mut voting, mut since, mut found) = (self.0.len(), None, Vec::new());
        for (at, returns) in changes {
            if returns {
                voting += 1;
            } else {
                voting -= 1;
            }
            if voting < quorum {
                since = since.or(Some(at));
            } else if let Some(since) = since.take() {
                found.push((since, at));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Absences of five servers, by server and in seconds, and when fewer than three vote.
    fn without_quorum(absences: &[(usize, u64, u64)]) -> Vec<(u64, u64)> {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut recorded = Absences::of(5);
        for (server, from, until) in absences {
            recorded.add(*server, at(*from), at(*until));
        }
        let stretches = recorded.without_quorum(3).into_iter();
        stretches
            .map(|(from, until)| ((from - begun).as_secs(), (until - begun).as_secs()))
            .collect()
    }

    #[test]
    fn three_absences_at_once_leave_no_quorum() {
        assert_eq!(without_quorum(&[]), []);
        assert_eq!(without_quorum(&[(0, 1, 5), (1, 2, 6)]), []);
        assert_eq!(without_quorum(&[(0, 1, 5), (1, 2, 6), (2, 4, 8)]), [(4, 5)]);
        assert_eq!(without_quorum(&[(0, 1, 5), (1, 2, 6), (2, 5, 8)]), [], "they only touch");
        let twice = [(0, 1, 5), (0, 11, 20), (1, 2, 6), (1, 12, 20), (2, 3, 7), (2, 13, 20)];
        assert_eq!(without_quorum(&twice), [(3, 5), (13, 20)]);
    }

    #[test]
    fn a_server_that_is_killed_again_is_absent_once() {
        assert_eq!(without_quorum(&[(0, 1, 5), (0, 2, 6), (1, 3, 7)]), []);
        assert_eq!(without_quorum(&[(0, 1, 5), (0, 4, 9), (1, 6, 10), (2, 7, 11)]), [(7, 9)]);
    }
}
