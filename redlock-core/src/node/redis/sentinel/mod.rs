//! The master of a Sentinel group.
//!
//! A [watch] of each sentinel asks which server is the master, once per second and whenever the sentinel
//! announces a new master, and reports the reply as a [`MasterView`](view::MasterView). [`SentinelGroup`] chooses among these views. A
//! connection leads to the chosen master, and ends when another master is chosen.

mod choice;
mod view;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::link::open::Endpoint;
use super::url::{HostPort, Login, RedisUrl, Servers};
use crate::error::NodeError;
use crate::log_limit::LogLimit;
use crate::telemetry;

use choice::{Choice, Report, Views};

/// How long the first connection waits for the other sentinels once one of them has named a master. A sentinel that
/// was cut off from the others may name a former master.
const SETTLING_TIME: Duration = Duration::from_millis(100);

/// A Sentinel group: a service name, and the sentinels that know its master.
pub(crate) struct SentinelGroup {
    name: Arc<str>,
    service: String,
    /// The URL of the node: the credentials, TLS and database of the servers.
    url: RedisUrl,
    sentinels: Vec<Endpoint>,
    connect_timeout: Duration,
    views: Mutex<Views>,
    choice: Sender<Choice>,
    log_limit: LogLimit,
}

/// The master to which a connection leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Master {
    pub(crate) address: HostPort,
    /// The number of the failover that made it the master, by which the sentinels order their failovers.
    pub(crate) epoch: u64,
    /// The latest time at which it can have been promoted.
    pub(crate) since: Instant,
    /// Whether `since` is final. Until then, further replies of sentinels may change it.
    is_settled: bool,
    /// Whether a sentinel names this master now. Otherwise it was the last one, and a failover would not be noticed.
    pub(crate) is_confirmed: bool,
}

impl SentinelGroup {
    /// Creates the group of a URL, in which these sentinels watch `service`. The `login` is for the sentinels.
    pub(crate) fn new(
        url: &RedisUrl,
        sentinels: &[HostPort],
        service: &str,
        login: &Login,
        connect_timeout: Duration,
        log_limit: LogLimit,
    ) -> Self {
        let sentinels: Vec<_> =
            sentinels.iter().map(|sentinel| sentinel_endpoint(url, sentinel, login)).collect();
        Self {
            name: url.name().into(),
            service: service.to_owned(),
            url: url.clone(),
            views: Mutex::new(Views::of(sentinels.iter().map(Endpoint::name))),
            sentinels,
            connect_timeout,
            choice: Sender::default(),
            log_limit,
        }
    }

    /// Returns the endpoint of a server of this group.
    pub(crate) fn endpoint(&self, server: &HostPort) -> Endpoint {
        Endpoint::of(&self.url, server).announced_by("the sentinels")
    }

    /// Watches the sentinels in this runtime until the node is dropped.
    pub(crate) fn start(self: &Arc<Self>, runtime: &Handle, dropped: &CancellationToken) {
        for index in 0..self.sentinels.len() {
            let (group, dropped) = (Arc::clone(self), dropped.clone());
            runtime.spawn(async move {
                tokio::select! {
                    biased;
                    () = dropped.cancelled() => {}
                    () = watch::watch(&group, index) => {}
                }
            });
        }
    }

    /// Returns the master. Waits until a sentinel has named it, or all of them have failed.
    pub(crate) async fn master(&self) -> Result<Master, NodeError> {
        let mut choice = self.choice.subscribe();
        wait_until(&mut choice, |choice| choice.master.is_some()).await;
        let settled = wait_until(&mut choice, |choice| choice.is_complete);
        // The next line handles both outcomes.
        let _ = timeout(SETTLING_TIME, settled).await;
        let chosen = choice.borrow().master.clone();
        chosen.unwrap_or_else(|| Err(NodeError::NotConnected("no sentinel has replied".into())))
    }

    /// Waits until the chosen master has another address.
    pub(crate) async fn differs_from(&self, address: Option<&HostPort>) {
        let mut choice = self.choice.subscribe();
        wait_until(&mut choice, |choice| {
            choice.address().is_some_and(|chosen| Some(chosen) != address)
        })
        .await;
    }

    /// Records what a sentinel has replied, or why it has not, and chooses the master anew.
    fn report(&self, index: usize, view: Report) {
        let mut views = self.views.lock();
        let reason = view.as_ref().err().map(ToString::to_string);
        if views.record(index, view)
            && let sentinel = self.sentinels[index].name()
            && let Some(suppressed) = self.log_limit.admit("sentinel", sentinel)
        {
            tracing::warn!(
                node = %self.name, %sentinel, reason, suppressed,
                "a sentinel names no master; the others are asked"
            );
        }
        let before = self.choice.borrow().clone();
        let after = views.choose(&before);
        self.log(&before, &after);
        self.choice.send_if_modified(|choice| {
            let is_modified = *choice != after;
            *choice = after;
            is_modified
        });
    }

    /// Logs a promotion, and that no sentinel names the master any more.
    fn log(&self, before: &Choice, after: &Choice) {
        let (Some(old), Some(new)) = (before.known(), after.known()) else { return };
        if before.is_complete && (&old.address, old.epoch) != (&new.address, new.epoch) {
            telemetry::promoted(&self.name);
            if let Some(suppressed) = self.log_limit.admit("promotion", &self.name) {
                tracing::warn!(
                    node = %self.name, master = %new.address, former = %old.address, suppressed,
                    "a server was promoted, which may not know all locks that are held; see restart_guard"
                );
            }
        }
        if old.is_confirmed && !new.is_confirmed {
            if let Some(suppressed) = self.log_limit.admit("unconfirmed", &self.name) {
                tracing::warn!(
                    node = %self.name, master = %new.address, suppressed,
                    "no sentinel names the master; the node keeps the last one, and would not notice a failover"
                );
            }
        } else if !old.is_confirmed && new.is_confirmed {
            tracing::info!(node = %self.name, master = %new.address, "a sentinel names the master again");
        }
    }
}

/// Waits until the choice meets a condition.
async fn wait_until(choice: &mut Receiver<Choice>, condition: impl FnMut(&Choice) -> bool) {
    if choice.wait_for(condition).await.is_err() {
        // The group was dropped, and with it the task that would be woken.
        std::future::pending::<()>().await;
    }
}

/// Returns the endpoint of a sentinel, which has its own credentials and no databases.
fn sentinel_endpoint(url: &RedisUrl, sentinel: &HostPort, login: &Login) -> Endpoint {
    let servers = Servers::Tcp(sentinel.clone());
    let url = RedisUrl { servers, tls: url.tls.clone(), login: login.clone(), db: 0 };
    Endpoint::of(&url, sentinel)
}

impl fmt::Debug for SentinelGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentinelGroup")
            .field("name", &self.name)
            .field("choice", &*self.choice.borrow())
            .finish_non_exhaustive()
    }
}
