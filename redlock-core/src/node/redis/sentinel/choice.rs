//! Chooses the master among the views of the sentinels.

use std::sync::Arc;

use tokio::time::Instant;

use super::Master;
use super::view::MasterView;
use crate::error::NodeError;
use crate::node::redis::url::HostPort;

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
    /// an earlier epoch. If only a minority of the sentinels can be reached, and names the master of an earlier epoch,
    /// the last choice stays. A majority may go back to an earlier epoch: an operator has set the sentinels up anew.
    /// Among views of one epoch, the latest wins.
    ///
    /// Without any view, the last choice stays too: the locks outlive their sentinels.
    pub(super) fn choose(&self, last: &Choice) -> Choice {
        let last = last.known();
        let views: Vec<_> = self.0.iter().flat_map(|(_, view)| view).flatten().collect();
        let is_majority = views.len() * 2 > self.0.len();
        let newest = views.iter().max_by_key(|view| (view.epoch, view.since));
        let newest = newest
            .filter(|newest| is_majority || last.is_none_or(|last| newest.epoch >= last.epoch));
        let is_complete = self.0.iter().all(|(_, view)| view.is_some());
        let master = match (newest, last) {
            (Some(newest), _) => {
                let same =
                    |address: &HostPort, epoch| (address, epoch) == (&newest.address, newest.epoch);
                // Each sentinel has known the master for at least this long.
                let agreeing = views.iter().filter(|view| same(&view.address, view.epoch));
                let known = last.filter(|last| same(&last.address, last.epoch));
                let since = agreeing.map(|view| view.since).chain(known.map(|last| last.since));
                let (address, epoch) = (newest.address.clone(), newest.epoch);
                let since = since.min().unwrap_or_else(Instant::now);
                Some(Ok(Master { address, epoch, since, is_confirmed: true }))
            }
            (None, Some(last)) => Some(Ok(Master { is_confirmed: false, ..last.clone() })),
            (None, None) => is_complete.then(|| Err(self.failure())),
        };
        Choice { master, is_complete }
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

    #[tokio::test(start_paused = true)]
    async fn the_longest_known_age_of_a_master_counts() {
        let (mut case, now) = (Case::new(), Instant::now() + 10 * SECOND);
        case.report(0, view(1, 0, now));
        case.report(1, view(1, 0, now - 2 * SECOND));
        assert_eq!(case.1.known().unwrap().since, now - 2 * SECOND);
        // The sentinel has restarted.
        case.report(1, view(1, 0, now + SECOND));
        assert_eq!(case.1.known().unwrap().since, now - 2 * SECOND);
        case.report(1, view(2, 1, now + SECOND));
        assert_eq!(case.1.known().unwrap().since, now + SECOND);
        case.report(0, view(2, 1, now));
        assert_eq!(case.1.known().unwrap().since, now);
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
