//! A look at a lock, the removal of its holder, and the description of a node.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures_util::future::OptionFuture;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use super::channels::channel;
use super::link::RequestContext;
use super::session::{Answer, SqlValue, Work};
use super::sql::Statement;
use super::state::PostgresState;
use super::url::{PostgresUrl, address};
use crate::error::{ForeignKind, NodeError};
use crate::lock::{HolderId, LockSpec, Token};
use crate::node::{
    Effect, Finding, Found, FoundHolder, NodeReport, Notify, Removal, ServerReport, Subscription,
};

impl PostgresState {
    /// Returns the holder of a lock, also while the gate is closed. The first poll sends the question.
    pub(super) async fn look(self: Arc<Self>, spec: LockSpec) -> Result<Found, NodeError> {
        // No holder has the empty token.
        let values = vec![SqlValue::Text(spec.name().into()), SqlValue::Text("".into())];
        let work = Work::Statement(Statement::Holder, values);
        let link = self.answering_link(spec.name())?;
        link.send(work, RequestContext::default()).await.map(found)
    }

    /// Removes the holder of a lock, if it is this one, and notifies the channel of the lock. The first poll sends the statement.
    pub(super) async fn remove(
        self: Arc<Self>,
        spec: LockSpec,
        holder: HolderId,
    ) -> Result<Removal, NodeError> {
        let name = spec.name();
        let values = vec![SqlValue::Text(name.into()), SqlValue::Text(holder.to_string().into())];
        let work = Work::Statement(Statement::Remove, values);
        let context = RequestContext { released: Some(channel(name)), ..RequestContext::default() };
        let link = self.answering_link(name)?;
        Ok(match link.send(work, context).await? {
            Answer { rows: 0, .. } => Removal::NotHeld,
            Answer { rest, .. } => Removal::removed(rest),
        })
    }

    /// Watches a lock until the returned subscription is dropped. A break notifies the channel of the lock, and nobody else does
    /// while the lock is held.
    pub(super) fn watch(
        self: &Arc<Self>,
        spec: &LockSpec,
        token: Token,
        notify: Notify,
        runtime: &Handle,
    ) -> Subscription {
        let changed = Arc::new(tokio::sync::Notify::new());
        let on_changed = Arc::clone(&changed);
        let mut subscription = self
            .channels
            .subscribe(channel(spec.name()), Arc::new(move || on_changed.notify_one()));
        let (ready, state, spec) = (subscription.take_ready(), Arc::clone(self), spec.clone());
        let watch = async move {
            OptionFuture::from(ready).await;
            loop {
                // A break before the subscription was not notified.
                let found = Arc::clone(&state).look(spec.clone()).await;
                let holds = |found: &Found| {
                    found.holders.iter().any(|holder| holder.id == token.holder_id())
                };
                if found.is_ok_and(|found| !holds(&found)) {
                    notify();
                }
                changed.notified().await;
            }
        };
        let task = AbortOnDropHandle::new(runtime.spawn(watch));
        Subscription::new(move || drop((task, subscription)))
    }

    /// Describes the node and the servers behind its connections.
    pub(super) fn report(&self) -> NodeReport {
        let mut report = report(&self.url);
        report.quarantine = self.gate.check_grants().err();
        report.round_trip = *self.last_round_trip.lock();
        let mut servers = Vec::new();
        for link in self.operation_slots().iter().filter_map(|slot| slot.link().ok()) {
            let is_it = |known: &ServerReport| {
                (&known.address, known.timeline) == (&link.server.address, link.server.timeline)
            };
            if servers.iter().any(is_it) {
                continue;
            }
            servers.push(link.server.clone());
            let mut add = |kind, effect, text: &str| {
                report.findings.push(Finding::new(
                    kind,
                    effect,
                    link.server.address.as_str(),
                    text,
                ));
            };
            if link.may_forget && self.settings.restart_guard.is_none() {
                add(
                    "synchronous_commit",
                    Effect::Guarantee,
                    "synchronous_commit is off, so that a crash of the server forgets the last locks; set it to on, or set restart_guard",
                );
            }
            if link.may_block {
                add(
                    "lock_timeout",
                    Effect::Convenience,
                    "lock_timeout is 0, so that a row that somebody locks blocks the other locks of its connection: alter role .. set lock_timeout = '500ms'",
                );
            }
        }
        if !servers.is_empty() {
            servers.sort_by(|one, other| one.address.cmp(&other.address));
            report.servers = servers;
        }
        report
    }
}

/// Describes a node without a connection: the servers are those of its URL.
pub(super) fn report(url: &PostgresUrl) -> NodeReport {
    let servers = url.servers().map(|(host, port)| ServerReport::new(address(host, port), false));
    let mut report = NodeReport::new("postgres");
    report.servers = servers.collect();
    report
}

fn found(answer: Answer) -> Found {
    let Answer { rows, holder, label, since, rest, .. } = answer;
    match holder {
        _ if rows == 0 => Found::free(),
        Some(id) => {
            let since = since.filter(|_| label.is_some());
            let since = since.map(|since| UNIX_EPOCH + Duration::from_secs(since.into()));
            Found::exclusive(FoundHolder::new(id, rest).of_owner(label, since))
        }
        // Another program has written the row.
        None => Found::foreign(ForeignKind::WrongType),
    }
}
