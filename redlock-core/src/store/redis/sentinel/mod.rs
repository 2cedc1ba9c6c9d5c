//! The master of a Sentinel group.
//!
//! A future for each sentinel asks which server is the master, once per second and whenever the sentinel announces a new
//! master. The replies [choose](choice) the master. A connection leads to this master, and ends when another one is
//! chosen.

mod choice;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{Cmd, ErrorKind, FromRedisValue, RedisError, Value};
use futures_util::future::{join_all, try_join};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep};

use super::link::open::{Endpoint, within};
use super::link::{Event, Link};
use super::server::{Promoted, ServerSettings};
use super::url::{Login, RedisUrl};
use crate::error::{NodeError, legible};
use crate::jitter::jitter;
use crate::store::kit::url::HostPort;
use crate::{log_limited, telemetry};

pub(crate) use choice::Choice;
use choice::{MasterView, Report};

/// The channel on which a sentinel announces a new master.
const CHANNEL: &str = "+switch-master";
/// The time between two questions, if the sentinel announces nothing, and before a new connection to it.
const INTERVAL: Duration = Duration::from_secs(1);

/// A Sentinel group: a service name, and the sentinels that know its master.
#[derive(Debug)]
pub(crate) struct SentinelGroup {
    settings: Arc<ServerSettings>,
    service: String,
    sentinels: Vec<Endpoint>,
    choice: watch::Sender<Choice>,
}

impl SentinelGroup {
    /// Creates the group of a URL, in which these sentinels watch `service`. The `login` is for the sentinels.
    pub(crate) fn new(
        url: &RedisUrl,
        sentinels: &[HostPort],
        service: &str,
        login: &Login,
        settings: &Arc<ServerSettings>,
    ) -> Self {
        // Sentinels have their own credentials, and no databases.
        let url = RedisUrl { login: login.clone(), db: 0, ..url.clone() };
        let sentinels: Vec<_> =
            sentinels.iter().map(|sentinel| Endpoint::of(&url, sentinel)).collect();
        Self {
            settings: Arc::clone(settings),
            service: service.to_owned(),
            choice: watch::Sender::new(Choice::among(sentinels.iter().map(Endpoint::name))),
            sentinels,
        }
    }

    /// Returns the choice of the master, and its changes.
    pub(crate) fn choice(&self) -> watch::Receiver<Choice> {
        self.choice.subscribe()
    }

    /// Asks the sentinels for the master over and over again. Never completes.
    pub(crate) async fn watch(&self) {
        let watch = |index| async move {
            loop {
                let Err(error) = self.watch_connection(index).await;
                self.report(index, Err(error));
                pause().await;
            }
        };
        join_all((0..self.sentinels.len()).map(watch)).await;
    }

    /// Connects to a sentinel, and reports its replies until the connection breaks or a question has no reply.
    async fn watch_connection(&self, index: usize) -> Result<Infallible, NodeError> {
        let sentinel = &self.sentinels[index];
        // A caller that waits for the connection to the master learns the reason before its own time is over.
        let limit = self.settings.node.connect_timeout / 2;
        let announced = Arc::new(Notify::new());
        let notify = Arc::clone(&announced);
        let (sender, mut subscribed) = mpsc::unbounded_channel();
        let on_event = move |event| match event {
            Event::Push(..) => notify.notify_one(),
            Event::Subscribed { result, .. } => drop(sender.send(result)),
            // Nothing is tracked.
            Event::TrackingRefused(_) | Event::Read { .. } | Event::AllRead => {}
        };
        let link = sentinel.open(limit, false, on_event).await?;
        link.subscribe(&CHANNEL.into(), 0);
        let closed = || Err((ErrorKind::Io, "the connection has ended").into());
        let subscribed = async { subscribed.recv().await.unwrap_or_else(closed) };
        match within(limit, subscribed).await {
            Err(NodeError::NotPermitted(reason)) => log_limited!(
                self.settings.log_limit, "announcements", sentinel.name(), warn,
                node = %self.settings.voter, sentinel = %sentinel.name(), %reason,
                "a sentinel denies the subscription to +switch-master, so that a failover is noticed up to a second later"
            ),
            subscribed => subscribed?,
        }
        loop {
            self.report(index, Ok(within(limit, MasterView::ask(&link, &self.service)).await?));
            // The next question fails if the connection has ended.
            tokio::select! {
                () = pause() => {}
                () = announced.notified() => {}
                _ = link.ended() => {}
            }
        }
    }

    /// Records what a sentinel has replied, or why it has not, and chooses the master anew.
    fn report(&self, index: usize, report: Report) {
        self.choice.send_modify(|choice| {
            let before = choice.clone();
            let has_promoted = choice.record(index, report);
            self.log(index, has_promoted, &before, choice);
        });
    }

    /// Logs the changes that one report has made.
    fn log(&self, index: usize, has_promoted: bool, before: &Choice, after: &Choice) {
        let (node, limit) = (&self.settings.voter, &self.settings.log_limit);
        if let Some(reason) = after.reason(index).filter(|_| before.reason(index).is_none()) {
            let sentinel = self.sentinels[index].name();
            log_limited!(
                limit, "sentinel", sentinel, warn, %node, %sentinel, %reason,
                "a sentinel names no master; the others are asked"
            );
        }
        let Some(Promoted { address: master, is_unconfirmed, .. }) = &after.master else { return };
        match (before.check_dispute(), after.check_dispute()) {
            (Ok(()), Err(reason)) => log_limited!(
                limit, "dispute", node, warn, %node, %master, %reason,
                "the node keeps the master until a majority of the sentinels names another one; with restart_guard, it grants no locks until the majority decides"
            ),
            (Err(_), Ok(())) => {
                tracing::info!(%node, %master, "a majority of the sentinels has decided which server is the master");
            }
            _ => {}
        }
        let Some(old) = &before.master else { return };
        if has_promoted {
            telemetry::promoted(node, 1);
            let remedy = match self.settings.node.restart_guard {
                Some(_) => "it grants no locks until they have ended",
                None => "set restart_guard",
            };
            log_limited!(
                limit, "promotion", node, warn, %node, %master, former = %old.address,
                "a server was promoted, which may not know all locks that are held; {remedy}"
            );
        }
        match (old.is_unconfirmed, is_unconfirmed) {
            (false, true) => log_limited!(
                limit, "unconfirmed master", node, warn, %node, %master, reason = %after.failure(),
                "no majority of the sentinels names the master; the node keeps the last one, and would not notice a failover"
            ),
            (true, false) => {
                tracing::info!(%node, %master, "a majority of the sentinels names the master again");
            }
            _ => {}
        }
    }
}

impl MasterView {
    /// Asks a sentinel for the master of a service.
    ///
    /// Two commands are needed. Only `SENTINEL MASTER` has the epoch, and since when the server reports that it is a
    /// master. But the sentinel that leads a failover names the former master in that reply until all replicas follow
    /// the new one, and names the new one only in the reply to `SENTINEL GET-MASTER-ADDR-BY-NAME`.
    async fn ask(sentinel: &Link, service: &str) -> Result<Self, RedisError> {
        let [master, address] = ["MASTER", "GET-MASTER-ADDR-BY-NAME"].map(|subcommand| {
            let mut question = Cmd::new();
            question.arg("SENTINEL").arg(subcommand).arg(service);
            sentinel.send(&question)
        });
        let (master, address) = try_join(master, address).await?;
        Self::read(&master, &address, Instant::now()).ok_or_else(|| {
            (ErrorKind::UnexpectedReturnType, "unexpected reply of a sentinel").into()
        })
    }

    fn read(master: &Value, address: &Value, replied: Instant) -> Option<Self> {
        let fields: HashMap<String, String> = HashMap::from_redis_value_ref(master).ok()?;
        let (host, port) = <(String, u16)>::from_redis_value_ref(address).ok()?;
        let has = |name: &str, value: &str| fields.get(name).is_some_and(|field| field == value);
        // During a failover, the fields may be those of another server.
        let is_same = has("ip", &host) && has("port", &port.to_string());
        let age = match fields.get("role-reported-time") {
            Some(age) if is_same && has("role-reported", "master") => age.parse().ok()?,
            _ => 0,
        };
        Some(Self {
            // The address is logged.
            address: HostPort { host: legible(&host), port },
            epoch: fields.get("config-epoch")?.parse().ok()?,
            since: replied.checked_sub(Duration::from_millis(age)).unwrap_or(replied),
            replied,
        })
    }
}

async fn pause() {
    sleep(INTERVAL.mul_f64(jitter(0.75..1.25))).await;
}
