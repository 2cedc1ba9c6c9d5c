//! Chooses the master among the views of the sentinels.

use std::sync::Arc;

use tokio::time::Instant;

use super::Master;
use super::view::MasterView;
use crate::error::NodeError;
use crate::node::redis::url::HostPort;
use crate::quorum::quorum;

/// The view of a sentinel, or the reason why it has none.
pub(super) type Report = Result<MasterView, NodeError>;

/// The name and the last report of each sentinel.
#[derive(Debug)]
pub(super) struct Views(Vec<(Arc<str>, Option<Report>)>);

/// The chosen master.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// The master, or the reason why none is known. `None` until a sentinel has named one, or all have failed.
    pub(super) master: Option<Result<Master, NodeError>>,
    /// Whether every sentinel has reported.
    pub(super) is_complete: bool,
}

impl Choice {
    pub(super) fn known(&self) -> Option<&Master> {
        self.master.as_ref()?.as_ref().ok()
    }

    pub(super) fn address(&self) -> Option<&HostPort> {
        self.known().map(|master| &master.address)
    }
}

impl Views {
    /// Creates the empty views of the sentinels with these names.
    pub(super) fn of<'a>(names: impl Iterator<Item = &'a Arc<str>>) -> Self {
        Self(names.map(|name| (Arc::clone(name), None)).collect())
    }

    /// Records the report of a sentinel. Returns whether the sentinel has failed just now.
    pub(super) fn record(&mut self, index: usize, view: Report) -> bool {
        let (_, kept) = &mut self.0[index];
        let has_failed = view.is_err() && !matches!(kept, Some(Err(_)));
        *kept = Some(view);
        has_failed
    }

    /// Chooses the master of the last failover.
    ///
    /// The sentinels order their failovers by epochs. A sentinel that was cut off from the others names the master of
    /// an earlier epoch. So a minority of the sentinels cannot lead back to an earlier epoch: the last choice stays. A
    /// majority can, because an operator may have configured the sentinels anew. Among views of one epoch, the latest
    /// wins.
    ///
    /// Without any view, the last choice stays too: the locks outlive their sentinels.
    pub(super) fn choose(&self, last: &Choice) -> Choice {
        let known = last.known();
        let views: Vec<_> = self.0.iter().flat_map(|(_, view)| view).flatten().collect();
        let is_majority = views.len() >= quorum(self.0.len());
        let newest = views.iter().max_by_key(|view| (view.epoch, view.since));
        let newest = newest
            .filter(|newest| is_majority || known.is_none_or(|known| newest.epoch >= known.epoch));
        let is_complete = self.0.iter().all(|(_, view)| view.is_some());
        let master = match (newest, known) {
            (Some(newest), known) => {
                let (address, epoch) = (newest.address.clone(), newest.epoch);
                let is_same =
                    known.is_some_and(|known| (&known.address, known.epoch) == (&address, epoch));
                let (since, is_settled) = match known {
                    Some(known) if is_same && known.is_settled => (known.since, true),
                    // This process has seen another master until now, whatever age the sentinels report.
                    Some(_) if !is_same && last.is_complete => (Instant::now(), true),
                    _ => (self.since(newest), is_majority && is_complete),
                };
                Some(Ok(Master { address, epoch, since, is_settled, is_confirmed: true }))
            }
            (None, Some(known)) => Some(Ok(Master { is_confirmed: false, ..known.clone() })),
            (None, None) => is_complete.then(|| Err(self.failure())),
        };
        Choice { master, is_complete }
    }

    /// Returns the time before which a majority of the sentinels have known this master. If fewer have replied, all of
    /// them have known it.
    ///
    /// A single sentinel may report too long an age: one that was cut off while another server was the master, or
    /// whose wall clock was stepped forward.
    fn since(&self, master: &MasterView) -> Instant {
        let now = Instant::now();
        let views = self.0.iter().flat_map(|(_, view)| view).flatten();
        let since = views.map(|view| {
            let is_same = (&view.address, view.epoch) == (&master.address, master.epoch);
            if is_same { view.since } else { now }
        });
        let mut since: Vec<_> = since.collect();
        since.sort_unstable();
        let index = quorum(self.0.len()).min(since.len()).saturating_sub(1);
        since.get(index).copied().unwrap_or(now)
    }

    /// Returns why the sentinels name no master.
    pub(super) fn failure(&self) -> NodeError {
        let failed = self.0.iter().filter_map(|(name, view)| match view {
            Some(Err(error)) => Some((name, error)),
            _ => None,
        });
        let reasons =
            failed.clone().map(|(name, error)| format!("sentinel {name}: {}", words(error)));
        let reasons: Arc<str> = reasons.collect::<Vec<_>>().join("; ").into();
        if failed.clone().any(|(_, error)| matches!(error, NodeError::NotPermitted(_))) {
            NodeError::NotPermitted(reasons)
        } else if failed.clone().any(|(_, error)| matches!(error, NodeError::Server(_))) {
            NodeError::Server(reasons)
        } else {
            NodeError::NotConnected(reasons)
        }
    }
}

fn words(error: &NodeError) -> String {
    match error {
        NodeError::NotConnected(words)
        | NodeError::ConnectionBroke(words)
        | NodeError::NotPermitted(words)
        | NodeError::Server(words) => words.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn view(port: u16, epoch: u64, since: Instant) -> MasterView {
        MasterView { address: address(port), epoch, since }
    }

    fn address(port: u16) -> HostPort {
        HostPort { host: "10.0.0.1".into(), port }
    }

    fn down() -> NodeError {
        NodeError::NotConnected("refused".into())
    }

    /// Three sentinels, and the choice after each of their reports.
    struct Case(Views, Choice);

    impl Case {
        fn new() -> Self {
            let names = ["s1", "s2", "s3"].map(Arc::from);
            Self(Views::of(names.iter()), Choice::default())
        }

        fn report(&mut self, index: usize, view: impl Into<Option<MasterView>>) -> &Choice {
            self.0.record(index, view.into().ok_or_else(down));
            self.1 = self.0.choose(&self.1);
            &self.1
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_master_of_the_last_failover_is_chosen() {
        let (mut case, now) = (Case::new(), Instant::now());
        for (index, port, epoch, chosen) in
            [(0, 1, 0, 1), (1, 2, 1, 2), (2, 1, 0, 2), (0, 2, 1, 2), (2, 3, 2, 3), (0, 1, 0, 3)]
        {
            let choice = case.report(index, view(port, epoch, now));
            assert_eq!(choice.address(), Some(&address(chosen)), "{port} {epoch}");
        }
        // An operator has set up two sentinels anew.
        case.report(1, view(1, 0, now));
        case.report(2, view(1, 0, now));
        assert_eq!(case.1.address(), Some(&address(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stale_sentinel_alone_does_not_lead_back_to_the_former_master() {
        let (mut case, now) = (Case::new(), Instant::now());
        for index in 0..3 {
            case.report(index, view(2, 1, now));
        }
        case.report(0, None);
        case.report(1, None);
        let choice = case.report(2, view(1, 0, now));
        let master = choice.known().unwrap();
        assert_eq!((&master.address, master.is_confirmed), (&address(2), false));
    }

    fn since(choice: &Choice) -> Instant {
        choice.known().unwrap().since
    }

    /// The clock of a sentinel may be wrong, and a sentinel that has restarted knows no age.
    #[tokio::test(start_paused = true)]
    async fn the_age_that_a_majority_of_the_sentinels_confirms_counts() {
        advance(100 * SECOND).await;
        let now = Instant::now();
        let ages = [[50, 3, 0], [50, 0, 3], [3, 50, 0], [3, 0, 50], [0, 50, 3], [0, 3, 50]];
        for reported in ages {
            let mut case = Case::new();
            for (index, age) in reported.into_iter().enumerate() {
                case.report(index, view(1, 4, now - age * SECOND));
            }
            assert_eq!(since(&case.1), now - 3 * SECOND, "{reported:?}");
        }
        // With two sentinels, or if only two of three reply, both have to confirm it.
        let pair = Case(Views::of(["s1", "s2"].map(Arc::from).iter()), Choice::default());
        let mut two_of_three = Case::new();
        two_of_three.report(2, None);
        for mut case in [pair, two_of_three] {
            case.report(0, view(1, 4, now - 50 * SECOND));
            assert_eq!(since(&case.1), now - 50 * SECOND);
            case.report(1, view(1, 4, now - 3 * SECOND));
            assert_eq!(since(&case.1), now - 3 * SECOND);
        }
        // A sentinel that names another master confirms nothing.
        let mut case = Case::new();
        case.report(0, view(1, 4, now - 50 * SECOND));
        case.report(1, view(2, 3, now - 50 * SECOND));
        assert_eq!(since(&case.1), now);
        // A stale sentinel that replies first is no failover.
        let mut case = Case::new();
        for (index, port, epoch) in [(0, 2, 3), (1, 1, 4), (2, 1, 4)] {
            case.report(index, view(port, epoch, now - 50 * SECOND));
        }
        assert_eq!(since(&case.1), now - 50 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn the_age_of_a_master_stays_when_sentinels_restart_or_their_clocks_step() {
        advance(100 * SECOND).await;
        let (mut case, now) = (Case::new(), Instant::now());
        for index in 0..3 {
            case.report(index, view(1, 4, now - 3 * SECOND));
        }
        for later in [now, now - 50 * SECOND] {
            for index in 0..3 {
                case.report(index, view(1, 4, later));
                assert_eq!(since(&case.1), now - 3 * SECOND);
            }
        }
    }

    /// A sentinel that was cut off while another server was the master regards this one as the master all the time.
    #[tokio::test(start_paused = true)]
    async fn a_master_is_never_older_than_the_choice_of_its_predecessor() {
        advance(100 * SECOND).await;
        let (mut case, old) = (Case::new(), Instant::now() - 50 * SECOND);
        for (port, epoch) in [(1, 1), (2, 2), (1, 3)] {
            advance(SECOND).await;
            let changed = Instant::now();
            for _ in 0..2 {
                for index in 0..3 {
                    case.report(index, view(port, epoch, old));
                    advance(SECOND).await;
                }
            }
            assert_eq!(since(&case.1), if epoch == 1 { old } else { changed }, "{epoch}");
        }
        // The process has reached no sentinel while another server was the master.
        for index in 0..3 {
            case.report(index, None);
        }
        let changed = Instant::now();
        case.report(0, view(1, 5, old));
        assert_eq!(since(&case.1), changed);
    }

    #[tokio::test(start_paused = true)]
    async fn without_sentinels_the_last_master_stays() {
        let (mut case, now) = (Case::new(), Instant::now());
        case.report(0, None);
        assert_eq!(case.report(1, None).master, None, "one sentinel has not failed yet");
        case.0.record(2, Err(NodeError::Server("ERR No such master".into())));
        let error = case.0.choose(&case.1).master.unwrap().unwrap_err();
        let words = "sentinel s1: refused; sentinel s2: refused; sentinel s3: ERR No such master";
        assert_eq!(error, NodeError::Server(words.into()));
        assert!(case.report(0, view(1, 0, now)).known().unwrap().is_confirmed);
        let choice = case.report(0, None);
        let master = choice.known().unwrap();
        assert_eq!((&master.address, master.is_confirmed), (&address(1), false));
        case.0.record(1, Err(NodeError::NotPermitted("WRONGPASS".into())));
        assert!(matches!(case.0.failure(), NodeError::NotPermitted(_)));
    }
}
