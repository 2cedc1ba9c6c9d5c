//! The state that a manager, its requests and its guards share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::sync::DropGuard;

use crate::ballot::Ballot;
use crate::buffer_space::BufferSpace;
use crate::error::LossCause;
use crate::home::Home;
use crate::lease::LeaseKeeper;
use crate::limits::Limits;
use crate::lock::LockOwner;
use crate::lock_order::LockOrder;
use crate::log_limit::LogLimit;
use crate::options::Defaults;
use crate::telemetry::{self, Telemetry};
use crate::waiting::{FairQueues, Queues};

/// The time between two reports of what no event reports: whether a quorum would grant.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// The state that a manager, its requests and its guards share. No public API.
pub struct Context {
    /// The runtime of the background work.
    pub(crate) home: Arc<Home>,
    pub(crate) ballot: Ballot,
    pub(crate) keeper: Arc<LeaseKeeper>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) fair: Arc<FairQueues>,
    pub(crate) prefix: Arc<str>,
    pub(crate) owner: LockOwner,
    /// When the manager was created, as the time since 1970.
    pub(crate) started: Duration,
    /// The options of requests that set none.
    pub(crate) defaults: Defaults,
    pub(crate) limits: Limits,
    pub(crate) telemetry: Arc<Telemetry>,
    /// The order in which requests take locks, unless it is not watched.
    pub(crate) order: Option<LockOrder>,
    /// Limits how often similar events are logged.
    pub(crate) log_limit: Arc<LogLimit>,
    pub(crate) connect_timeout: Duration,
    /// The request bodies that the layers of `redlock-axum` read before they request a lock.
    pub(crate) body_buffers: Arc<BufferSpace>,
    /// Ends the background work when the manager and its last guard have been dropped.
    pub(crate) _end_on_drop: DropGuard,
}

impl Context {
    /// Reports the nodes to the metrics, until the manager and its last guard have been dropped.
    fn report_nodes(&self, runtime: &Handle) {
        if cfg!(not(feature = "metrics")) {
            return;
        }
        let Ballot { nodes, statuses, .. } = &self.ballot;
        for (node, status) in nodes.iter().zip(&**statuses) {
            let (name, status, mut was_up) = (Arc::clone(node.name()), status.clone(), None);
            let report = async move {
                loop {
                    let changed = status.wait_for(|status| Some(status.is_up()) != was_up).await;
                    telemetry::node_up(&name, changed.is_up());
                    was_up = Some(changed.is_up());
                }
            };
            runtime.spawn(self.home.gone.clone().run_until_cancelled_owned(report));
        }
        // A quarantine begins and ends without a change of a status.
        let (ballot, telemetry) = (self.ballot.clone(), Arc::clone(&self.telemetry));
        let report = async move {
            // Without a recorder, an idle process has no timer.
            telemetry.recorder_installed().await;
            // A process may have several managers, each with nodes of its own.
            let names: Vec<&str> = ballot.nodes.iter().map(|node| &**node.name()).collect();
            let names = Arc::from(names.join(","));
            loop {
                // Again, because the recorder may be new.
                let nodes = ballot.nodes.iter().zip(&*ballot.statuses);
                nodes.for_each(|(node, status)| {
                    telemetry::node_up(node.name(), status.get().is_up());
                });
                telemetry::quorum(&names, ballot.is_granting());
                sleep(REPORT_PERIOD).await;
            }
        };
        runtime.spawn(self.home.gone.clone().run_until_cancelled_owned(report));
    }

    /// Starts the background work in the runtime of this thread, unless it runs already.
    pub(crate) fn enter(self: &Arc<Self>) {
        self.home.enter(|runtime| {
            let queues = Arc::downgrade(&self.queues);
            self.keeper.start(runtime, &self.ballot, self.home.gone.clone(), move |held| {
                if let Some(queues) = queues.upgrade() {
                    queues.hand_over_or_release(held);
                }
            });
            self.report_nodes(runtime);
            let context = Arc::downgrade(self);
            move || {
                let Some(context) = context.upgrade() else { return };
                // Nobody renews these locks any more, and nobody notices when they end.
                for held in context.queues.close() {
                    held.lose(
                        "shutdown",
                        LossCause::ManagerEnded,
                        "the Tokio runtime of its manager has ended",
                    );
                }
            }
        });
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}
