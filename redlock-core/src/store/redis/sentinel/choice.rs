//! Chooses the master by the reports of the sentinels.
//!
//! A server is the master once a majority of all configured sentinels names it, also the first one. So a sentinel that
//! was cut off, or that belongs to another group, leads to no other server. While fewer sentinels agree, the last master
//! stays: the locks outlive their sentinels.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::NodeError;
use crate::quorum::quorum;
use crate::store::kit::url::HostPort;
use crate::store::redis::server::Promoted;

/// How long a single sentinel stops the acquisitions of a master that the others still name. Sentinels tell each other
/// of a failover every two seconds.
const DISPUTE: Duration = Duration::from_secs(10);

/// The view of a sentinel, or the reason why it has none.
pub(super) type Report = Result<MasterView, NodeError>;

/// The master, as one sentinel names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MasterView {
    pub(super) address: HostPort,
    /// The configuration epoch: it grows with each failover.
    pub(super) epoch: u64,
    /// The time since which this sentinel knows the server as a master. It is too early if the sentinel has not noticed
    /// that another server was the master in between, or if its wall clock was stepped forward.
    pub(super) since: Instant,
    /// The time of the reply.
    pub(super) replied: Instant,
}

/// The doubt of one sentinel, which names another master by a later failover than that of the present master.
#[derive(Debug, Clone)]
struct Dispute {
    epoch: u64,
    begun: Instant,
    reason: Arc<str>,
    /// Whether a majority has named the present master again.
    is_decided: bool,
}

/// The last report of each sentinel, and the master by their majority.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    reports: Vec<(Arc<str>, Option<Report>)>,
    /// The last server that a majority has named.
    pub(crate) master: Option<Promoted>,
    dispute: Option<Dispute>,
}

impl Choice {
    /// Creates the choice among sentinels with these names, none of which has reported.
    pub(super) fn among<'a>(names: impl Iterator<Item = &'a Arc<str>>) -> Self {
        let reports = names.map(|name| (Arc::clone(name), None)).collect();
        Self { reports, master: None, dispute: None }
    }

    /// Returns whether every sentinel has reported.
    pub(crate) fn is_complete(&self) -> bool {
        self.reports.iter().all(|(_, report)| report.is_some())
    }

    /// Records the report of a sentinel, and chooses the master anew. Returns whether another server was promoted.
    pub(super) fn record(&mut self, index: usize, report: Report) -> bool {
        let was_complete = self.is_complete();
        self.reports[index].1 = Some(report);
        let mut has_promoted = false;
        match (self.named(), &mut self.master) {
            (Some(mut named), Some(known)) => {
                has_promoted =
                    named.address != known.address || named.epoch > known.epoch && was_complete;
                if has_promoted {
                    // This process has seen another master until now, whatever age the sentinels report.
                    named.since = Instant::now();
                } else {
                    named.epoch = named.epoch.max(known.epoch);
                    // The first report of each sentinel may confirm a longer age. Later ones may be wrong: a sentinel
                    // that was restarted knows no age, and clocks are stepped.
                    if was_complete {
                        named.since = known.since;
                    }
                }
                *known = named;
            }
            (None, Some(known)) => known.is_unconfirmed = true,
            (named, None) => self.master = named,
        }
        self.choose_dispute();
        has_promoted
    }

    fn views(&self) -> impl Iterator<Item = (&Arc<str>, &MasterView)> {
        let reports = self.reports.iter();
        reports.filter_map(|(name, report)| Some((name, report.as_ref()?.as_ref().ok()?)))
    }

    /// Returns the server that a majority of the sentinels names.
    ///
    /// A majority of the sentinels knows its epoch, and has known the server as the master since its time. A single
    /// sentinel may report too long an age: because another server was the master while the sentinel was cut off, or
    /// because the sentinel's wall clock was stepped forward.
    fn named(&self) -> Option<Promoted> {
        let last = quorum(self.reports.len()) - 1;
        self.views().find_map(|(_, candidate)| {
            let address = &candidate.address;
            let named = || self.views().filter(|(_, view)| view.address == *address);
            let mut epochs: Vec<_> = named().map(|(_, view)| view.epoch).collect();
            epochs.sort_unstable_by(|a, b| b.cmp(a));
            let epoch = *epochs.get(last)?;
            let known = named().filter(|(_, view)| view.epoch >= epoch);
            let mut since: Vec<_> = known.map(|(_, view)| view.since).collect();
            since.sort_unstable();
            Some(Promoted {
                address: address.clone(),
                epoch,
                since: since[last],
                announced_by: named().map(|(name, _)| Arc::clone(name)).collect(),
                is_unconfirmed: false,
            })
        })
    }

    /// Notices a sentinel that names another master by a later failover, and the decision of the majority.
    fn choose_dispute(&mut self) {
        let Some(master) = &self.master else { return };
        let others = self.views().filter(|(_, view)| view.address != master.address);
        let disputes = others.map(|(name, view)| Dispute {
            epoch: view.epoch,
            begun: Instant::now(),
            reason: format!("sentinel {name} names another master: {}", view.address).into(),
            is_decided: false,
        });
        // The last of several maxima counts, so that a dispute about the same failover is not begun anew.
        let disputes = disputes.chain(self.dispute.clone());
        let newest = disputes.max_by_key(|dispute| dispute.epoch);
        self.dispute = newest.filter(|dispute| dispute.epoch > master.epoch).map(|dispute| {
            let until = dispute.begun + DISPUTE;
            let again = self
                .views()
                .filter(|(_, view)| view.address == master.address && view.replied >= until);
            let is_decided = dispute.is_decided || again.count() >= quorum(self.reports.len());
            Dispute { is_decided, ..dispute }
        });
    }

    /// Returns an error as long as one sentinel names another master by a later failover and no majority has decided:
    /// neither for that master, nor again for the present one.
    pub(crate) fn check_dispute(&self) -> Result<(), NodeError> {
        match &self.dispute {
            Some(dispute) if !dispute.is_decided => {
                Err(NodeError::Disputed(Arc::clone(&dispute.reason)))
            }
            _ => Ok(()),
        }
    }

    /// Returns why this sentinel names no master.
    pub(super) fn reason(&self, index: usize) -> Option<&NodeError> {
        self.reports[index].1.as_ref()?.as_ref().err()
    }

    /// Returns why there is no majority of the sentinels.
    pub(crate) fn failure(&self) -> NodeError {
        let reasons = self.reports.iter().map(|(name, report)| match report {
            Some(Ok(view)) => format!("sentinel {name} names {}", view.address),
            Some(Err(error)) => format!("sentinel {name}: {error}"),
            None => format!("sentinel {name} has not replied"),
        });
        let reasons = reasons.collect::<Vec<_>>().join("; ");
        let reason = format!("no majority of the sentinels names a master: {reasons}").into();
        let mut errors =
            self.reports.iter().filter_map(|(_, report)| report.as_ref()?.as_ref().err());
        if errors.clone().any(|error| matches!(error, NodeError::NotPermitted(_))) {
            NodeError::NotPermitted(reason)
        } else if errors.clone().any(|error| matches!(error, NodeError::Credentials(_))) {
            NodeError::Credentials(reason)
        } else if errors.any(|error| matches!(error, NodeError::NotSetUp(_) | NodeError::Server(_)))
        {
            NodeError::Server(reason)
        } else {
            NodeError::NotConnected(reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn view(port: u16, epoch: u64, since: Instant) -> MasterView {
        MasterView { address: address(port), epoch, since, replied: Instant::now() }
    }

    fn address(port: u16) -> HostPort {
        HostPort { host: "10.0.0.1".into(), port }
    }

    fn down() -> NodeError {
        NodeError::NotConnected("refused".into())
    }

    /// A choice among sentinels.
    struct Case(Choice);

    impl Case {
        fn new() -> Self {
            Self::among(["s1", "s2", "s3"])
        }

        fn among<const COUNT: usize>(names: [&str; COUNT]) -> Self {
            Self(Choice::among(names.map(Arc::from).iter()))
        }

        /// Records a report, and returns whether it has promoted another server.
        fn report(&mut self, index: usize, view: impl Into<Option<MasterView>>) -> bool {
            self.0.record(index, view.into().ok_or_else(down))
        }

        /// Records that each sentinel names a server with this port by this epoch; `None` stands for a sentinel that is down.
        fn report_all(&mut self, views: [Option<(u16, u64)>; 3]) {
            for (index, named) in views.into_iter().enumerate() {
                self.report(index, named.map(|(port, epoch)| view(port, epoch, Instant::now())));
            }
        }

        fn master(&self) -> Option<u16> {
            self.0.master.as_ref().map(|master| master.address.port)
        }

        fn is_unconfirmed(&self) -> bool {
            self.0.master.as_ref().unwrap().is_unconfirmed
        }

        fn since(&self) -> Instant {
            self.0.master.as_ref().unwrap().since
        }

        fn is_disputed(&self) -> bool {
            self.0.check_dispute().is_err()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_master_is_the_server_that_a_majority_names() {
        let mut case = Case::new();
        let now = Instant::now();
        for (index, port, epoch, chosen) in [
            (0, 3, 9, None),
            (1, 1, 0, None),
            (2, 1, 0, Some(1)),
            (1, 2, 1, Some(1)),
            (2, 2, 1, Some(2)),
            (0, 2, 1, Some(2)),
            // Two sentinels were set up anew.
            (1, 1, 0, Some(2)),
            (2, 1, 0, Some(1)),
        ] {
            let before = case.master();
            let has_promoted = case.report(index, view(port, epoch, now));
            assert_eq!(case.master(), chosen, "sentinel {index} names {port}");
            assert_eq!(has_promoted, before.is_some() && before != chosen);
        }
        // The sentinels that are down count too.
        for views in [[Some((1, 1)), None, None], [Some((1, 1)), Some((2, 2)), None]] {
            let mut case = Case::new();
            case.report_all(views);
            assert_eq!(case.master(), None, "{views:?}");
        }
    }

    /// Finding: one sentinel with a higher epoch led the manager to another server, to which it sent the password.
    #[tokio::test(start_paused = true)]
    async fn one_sentinel_with_a_later_failover_does_not_overrule_two() {
        for first in [1, 2] {
            let mut case = Case::new();
            case.report_all([Some((first, 9)), Some((1, 1)), Some((1, 1))]);
            case.report_all([Some((2, 99)), Some((1, 1)), Some((1, 1))]);
            assert_eq!((case.master(), case.is_unconfirmed()), (Some(1), false));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_majority_the_last_master_stays() {
        let mut case = Case::new();
        case.report_all([Some((2, 1)); 3]);
        for (views, is_unconfirmed) in [
            ([Some((2, 1)), Some((2, 1)), None], false),
            ([Some((2, 1)), None, None], true),
            // A sentinel that was cut off names the former master.
            ([None, None, Some((1, 0))], true),
            ([None; 3], true),
            // A single sentinel that has learned of a failover is not enough either.
            ([None, None, Some((3, 2))], true),
            ([None, Some((2, 1)), Some((2, 1))], false),
        ] {
            case.report_all(views);
            assert_eq!(
                (case.master(), case.is_unconfirmed()),
                (Some(2), is_unconfirmed),
                "{views:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_failure_says_what_each_sentinel_reports() {
        let mut case = Case::new();
        case.report(0, None);
        case.report(1, view(1, 0, Instant::now()));
        assert!(!case.0.is_complete(), "one sentinel has not failed yet");
        case.0.record(2, Err(NodeError::Server("ERR No such master".into())));
        assert!(case.0.is_complete());
        let words = "no majority of the sentinels names a master: sentinel s1: not connected: refused; \
                     sentinel s2 names 10.0.0.1:1; sentinel s3: ERR No such master";
        assert_eq!(case.0.failure(), NodeError::Server(words.into()));
        case.0.record(1, Err(NodeError::Credentials("WRONGPASS".into())));
        assert!(matches!(case.0.failure(), NodeError::Credentials(_)));
        case.0.record(0, Err(NodeError::NotPermitted("NOPERM".into())));
        assert!(matches!(case.0.failure(), NodeError::NotPermitted(_)));
        case.report_all([None; 3]);
        assert!(matches!(case.0.failure(), NodeError::NotConnected(_)));
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
            assert_eq!(case.since(), now - 3 * SECOND, "{reported:?}");
        }
        // With two sentinels, or if only two of three reply, both have to confirm it.
        let mut two_of_three = Case::new();
        two_of_three.report(2, None);
        for mut case in [Case::among(["s1", "s2"]), two_of_three] {
            case.report(0, view(1, 4, now - 50 * SECOND));
            case.report(1, view(1, 4, now - 3 * SECOND));
            assert_eq!(case.since(), now - 3 * SECOND);
        }
        // A sentinel that names another master, or that does not know the last failover, confirms nothing.
        for (port, epoch) in [(2, 3), (1, 3)] {
            let mut case = Case::new();
            case.report(0, view(port, epoch, now - 50 * SECOND));
            case.report(1, view(1, 4, now - SECOND));
            case.report(2, view(1, 4, now - 3 * SECOND));
            assert_eq!(case.since(), now - SECOND, "{port} {epoch}");
        }
        // A stale sentinel that replies first is no failover.
        let mut case = Case::new();
        for (index, port, epoch) in [(0, 2, 3), (1, 1, 4), (2, 1, 4)] {
            assert!(!case.report(index, view(port, epoch, now - 50 * SECOND)));
        }
        assert_eq!(case.since(), now - 50 * SECOND);
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
                assert!(!case.report(index, view(1, 4, later)));
                assert_eq!(case.since(), now - 3 * SECOND);
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
            let mut promoted = None;
            for _ in 0..2 {
                for index in 0..3 {
                    if case.report(index, view(port, epoch, old)) {
                        assert_eq!(promoted.replace(Instant::now()), None);
                    }
                    advance(SECOND).await;
                }
            }
            assert_eq!(promoted.is_some(), epoch > 1);
            assert_eq!(case.since(), promoted.unwrap_or(old), "{epoch}");
        }
        // The process has reached no sentinel while another server was the master.
        case.report_all([None; 3]);
        for index in 0..3 {
            advance(SECOND).await;
            assert_eq!(case.report(index, view(1, 5, old)), index == 1);
        }
        assert_eq!(case.since(), Instant::now() - SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sentinel_that_comes_back_is_no_promotion() {
        let mut case = Case::new();
        case.report_all([Some((1, 3)), Some((1, 3)), Some((1, 1))]);
        case.report(0, None);
        assert!(!case.report(0, view(1, 3, Instant::now())));
    }

    /// The first sentinel knows the failover before the others: they learn of it, or stay cut off from it.
    #[tokio::test(start_paused = true)]
    async fn a_dispute_lasts_until_a_majority_decides() {
        for decision in [[Some((2, 2)); 3], [Some((2, 2)), Some((2, 2)), None]] {
            let mut case = Case::new();
            case.report_all([Some((1, 1)); 3]);
            assert!(!case.is_disputed());
            case.report_all([Some((2, 2)), Some((1, 1)), Some((1, 1))]);
            assert!(case.is_disputed());
            // Without a majority, nothing is decided, however long that lasts.
            for views in [[Some((2, 2)), None, None], [None, Some((1, 1)), None], [None; 3]] {
                for _ in 0..3 {
                    case.report_all(views);
                    assert!(case.is_disputed(), "{views:?}");
                    advance(DISPUTE).await;
                }
            }
            case.report_all(decision);
            assert_eq!((case.master(), case.is_disputed()), (Some(2), false));
        }
        // The majority knows a later failover, which has promoted the present master again.
        let mut case = Case::new();
        case.report_all([Some((2, 2)), Some((1, 1)), Some((1, 1))]);
        assert!(case.is_disputed());
        case.report_all([Some((2, 2)), Some((1, 3)), Some((1, 3))]);
        assert!(!case.is_disputed());
    }

    /// A sentinel of another group must not stop the locks of this one for ever.
    #[tokio::test(start_paused = true)]
    async fn a_majority_that_names_the_master_for_longer_decides_for_it() {
        let mut case = Case::new();
        let stray = [Some((2, 99)), Some((1, 1)), Some((1, 1))];
        case.report_all(stray);
        let begun = Instant::now();
        while begun.elapsed() < DISPUTE {
            assert!(case.is_disputed());
            advance(SECOND).await;
            // Its reports do not prolong the dispute.
            case.report(0, view(2, 99, Instant::now()));
        }
        // The last replies of the others are too old to decide.
        assert!(case.is_disputed());
        case.report(1, view(1, 1, Instant::now()));
        assert!(case.is_disputed());
        case.report(2, view(1, 1, Instant::now()));
        assert!(!case.is_disputed());
        // The choice lasts until another failover happens.
        for views in [[Some((2, 99)), None, None], stray] {
            case.report_all(views);
            assert!(!case.is_disputed(), "{views:?}");
        }
        case.report(0, view(3, 100, Instant::now()));
        assert!(case.is_disputed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_failover_is_no_dispute() {
        let mut case = Case::new();
        case.report_all([Some((2, 1)), Some((1, 1)), Some((1, 1))]);
        case.report_all([Some((2, 0)), Some((1, 1)), Some((1, 1))]);
        // The same master after a later failover.
        case.report_all([Some((1, 5)), Some((1, 1)), Some((1, 1))]);
        assert!(!case.is_disputed());
    }
}
